"""One table in five dresses: console, Markdown, CSV, LaTeX and HTML."""

import csv
import io
from html import escape
from typing import Literal

from rich.markup import escape as escape_markup
from rich.table import Table as RichTable

from dasp.report.grid import NONE, Cell, Column, Table

WORSE = "▼"
MANY = 9  # columns; with more, a cell on the page breaks before its ± where room is short
LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "▼": r"$\downarrow$",
    "▲": r"$\uparrow$",
}


def to_rich(table: Table) -> RichTable:
    """Return the table for a terminal, without its caption."""
    drawn = RichTable(box=None, pad_edge=False)
    drawn.collapse_padding = True
    several = [column for column in table.columns if len(column.quantities) > 1]
    between = "\n" if len(several) > 3 else "  "  # few columns leave room for one line a row
    for column in table.columns:
        justify: Literal["left", "right"] = "right" if column.quantities else "left"
        style = "italic" if column.published else ""
        drawn.add_column(
            column.heading, justify=justify, no_wrap=not column.quantities, style=style
        )
    for row in table.rows:
        drawn.add_row(*(_rich_cell(cell, between) for cell in row))
    return drawn


def _rich_cell(cell: Cell, between: str) -> str:
    lines = [escape_markup(line) for line in _lines(cell)]
    if cell.best:
        lines[0] = f"[bold green]{lines[0]}[/]"
    if cell.worse:
        lines[-1] = f"[red]{lines[-1]}[/]"
    elif len(lines) > 1:
        lines[-1] = f"[dim]{lines[-1]}[/]"
    return between.join(lines)


def to_markdown(table: Table) -> str:
    """Return the table in GitHub's Markdown."""
    head = [_leaning(column.heading, column, "*{}*") for column in table.columns]
    rules = ["---:" if column.quantities else "---" for column in table.columns]
    rows = [
        [_markdown_cell(*pair) for pair in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    lines = ["| " + " | ".join(words) + " |" for words in (head, rules, *rows)]
    return "\n".join([f"**{table.caption}**", "", *lines, ""])


def _markdown_cell(cell: Cell, column: Column) -> str:
    lines = [_leaning(line.replace("|", r"\|"), column, "*{}*") for line in _lines(cell)]
    lines[0] = f"**{lines[0]}**" if cell.best else lines[0]
    return "<br>".join(lines)


def to_csv(table: Table) -> str:
    """Return the table with a column for each value and each standard deviation."""
    head: list[str] = []
    for column in table.columns:
        for name in column.quantities:
            title = column.heading if len(column.quantities) == 1 else f"{column.heading} {name}"
            head += [title, f"{title} std"]
        head += [] if column.quantities else [column.heading]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(head)
    for row in table.rows:
        words: list[str] = []
        for cell in row:
            for quantity in cell.quantities:
                words += [_plain(quantity.value), _plain(quantity.spread)]
            words += [] if cell.quantities else [cell.text]
        writer.writerow(words)
    return lines.getvalue()


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def to_latex(table: Table) -> str:
    """Return the table as a LaTeX float; it needs the package booktabs."""
    align = "".join("r" if column.quantities else "l" for column in table.columns)
    head = " & ".join(_leaning(_latex(c.heading), c, _SLANTED) for c in table.columns)
    rows = [
        " & ".join(_latex_cell(*pair) for pair in zip(row, table.columns, strict=True))
        + r" \\[2pt]"
        for row in table.rows
    ]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{_latex(table.caption)}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex(words: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in words)


_SLANTED = r"\textit{{{}}}"


def _latex_cell(cell: Cell, column: Column) -> str:
    lines = [_leaning(_latex(line), column, _SLANTED) for line in _lines(cell)]
    lines[0] = rf"\textbf{{{lines[0]}}}" if cell.best else lines[0]
    if len(lines) == 1:
        return lines[0]
    small = [rf"{{\scriptsize {line}}}" for line in lines[1:]]
    stacked = r" \\ ".join([lines[0], *small])
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{stacked}\end{{tabular}}"


def to_html(table: Table) -> str:
    """Return the table as HTML, in a box that scrolls sideways on a small screen."""
    head = "".join(
        f'<th scope="col"{_classes(_kinds(column))}>{escape(column.heading)}</th>'
        for column in table.columns
    )
    rows = ""
    for row in table.rows:
        cells = [f'<th scope="row">{escape(row[0].text)}</th>']
        cells += map(_html_cell, row[1:], table.columns[1:])
        rows += f"<tr>{''.join(cells)}</tr>\n"
    return (
        f"<figure><figcaption>{escape(table.caption)}</figcaption>\n"
        f'<div class="scroll"><table{_classes(["many"] * (len(table.columns) > MANY))}>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div></figure>\n"
    )


def _html_cell(cell: Cell, column: Column) -> str:
    lines = [escape(line) for line in _lines(cell)]
    lines[0] = f"<strong>{lines[0]}</strong>" if cell.best else lines[0]
    lines[1:] = [f"<small>{line}</small>" for line in lines[1:]]
    if cell.run:
        lines[0] = f'<a href="#run-{escape(cell.run)}">{lines[0]}</a>'
    names = [name for name in ("best", "worse") if getattr(cell, name)]
    return f"<td{_classes(names + _kinds(column))}>{'<br>'.join(lines)}</td>"


def _kinds(column: Column) -> list[str]:
    return ["published"] * column.published + ["text"] * (not column.quantities)


def _classes(names: list[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""


def _leaning(words: str, column: Column, pattern: str) -> str:
    """Set the words of a published column in italics."""
    return pattern.format(words) if column.published else words


def _lines(cell: Cell) -> list[str]:
    """Return the lines of a cell; the last one bears the mark of falling below Source."""
    if cell.text or not cell.quantities:
        return cell.text.split("\n")
    if cell.missing:
        return [NONE]
    lines = [quantity.text for quantity in cell.quantities]
    if cell.worse:
        lines[-1] = f"{WORSE}{lines[-1]}"
    return lines
