"""A table of a report, and its formats: CSV, Markdown, LaTeX, and text for the terminal.

CSV holds the numbers; the other formats hold what a reader sees: rounded means ±standard
deviations, the best in bold, what falls below Source marked with ▼.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal

import pandas as pd
from rich.markup import escape
from rich.table import Table as RichTable

NONE, WORSE = "–", "▼"
SIGNED = {"gain", "difference", "low", "high", "end", "worst"}
LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "–": "--",
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": "$-$",
        "▼": r"$\downarrow$",
        "▲": r"$\uparrow$",
    }
)

Mean = tuple[float, float]
"""A mean and its standard deviation over replicates; NaN where there is none."""
NAN = math.nan
UNKNOWN: Mean = (NAN, NAN)


def mean_std(values: Iterable[float]) -> Mean:
    """Return the mean and the sample standard deviation, leaving out NaN.

    >>> mean_std([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    known = [float(value) for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN, stdev(known) if len(known) > 1 else NAN


@dataclass(frozen=True)
class Column:
    """A column: its heading, and the names of the quantities in its cells (none: it holds text)."""

    heading: str
    parts: tuple[str, ...] = ()
    digits: int = 1
    published: bool = False
    """By others, and therefore set in italics."""

    def write(self, part: str, mean: Mean) -> str:
        """Return a quantity as a reader sees it.

        >>> Column("a").write("accuracy", (76.71, 0.52)), Column("a").write("gain", (-1.0, NAN))
        ('76.7 ±0.5', '−1.0')
        """
        value, spread = mean
        if math.isnan(value):
            return NONE
        sign = "+" if part in SIGNED else ""
        number = format(rounded(value, self.digits), f"{sign}.{self.digits}f").replace("-", "−")
        return number if math.isnan(spread) else f"{number} ±{spread:.{self.digits}f}"


def texts(*headings: str) -> list[Column]:
    """Return columns of text."""
    return [Column(heading) for heading in headings]


def numbers(*headings: str, part: str = "value", digits: int = 1) -> list[Column]:
    """Return columns with one number per cell."""
    return [Column(heading, (part,), digits) for heading in headings]


def rounded(value: float, digits: int = 1) -> float:
    """Return a value as a reader sees it, without a negative zero."""
    return value if math.isnan(value) else round(value, digits) + 0.0


@dataclass(frozen=True)
class Cell:
    """Text, or one mean per part of its column; with both, the text is what a reader sees."""

    text: str = ""
    means: tuple[Mean, ...] = ()
    best: bool = False
    worse: bool = False
    """Than Source, or than a limit that the caption gives."""
    run: str = ""
    """Key of the run that the cell links to."""


def mean_cell(mean: Mean, worse: bool = False) -> Cell:
    """Return a cell with one mean."""
    return Cell(means=(mean,), worse=worse)


def number(value: float | None, text: str = "", worse: bool = False) -> Cell:
    """Return a cell with one number, without a deviation."""
    return Cell(text, ((NAN if value is None else float(value), NAN),), worse=worse)


@dataclass(frozen=True)
class Table:
    """A table with its caption; `name` is that of its files."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def frame(self) -> pd.DataFrame:
        """Return the numbers: one column per quantity, and one per standard deviation."""
        heads: list[str] = []
        for column in self.columns:
            for part in column.parts:
                name = column.heading if len(column.parts) == 1 else f"{column.heading} {part}"
                heads += [name, f"{name} std"]
            heads += [] if column.parts else [column.heading]
        rows: list[list[str | float]] = []
        for row in self.rows:
            values: list[str | float] = []
            for cell, column in zip(row, self.columns, strict=True):
                values += [v for mean in cell.means for v in mean] if column.parts else [cell.text]
            rows.append(values)
        return pd.DataFrame(rows, columns=heads)

    def lines(self, cell: Cell, column: Column) -> list[str]:
        """Return the lines of a cell as a reader sees them; the last one has the mark ▼."""
        if cell.text or not column.parts:
            return cell.text.split("\n")
        if all(math.isnan(value) for value, _ in cell.means):
            return [NONE]
        lines = [column.write(*pair) for pair in zip(column.parts, cell.means, strict=True)]
        return [*lines[:-1], WORSE * cell.worse + lines[-1]]

    def to_csv(self) -> str:
        """Return the numbers as CSV."""
        return str(self.frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))

    def to_markdown(self) -> str:
        """Return the table in GitHub's Markdown."""

        def write(cell: Cell, column: Column) -> str:
            lines = [line.replace("|", r"\|") for line in self.lines(cell, column)]
            lines = [f"*{line}*" for line in lines] if column.published else lines
            return "<br>".join([f"**{lines[0]}**" if cell.best else lines[0], *lines[1:]])

        head = [f"*{c.heading}*" if c.published else c.heading for c in self.columns]
        rules = ["---:" if column.parts else "---" for column in self.columns]
        rows = [[write(*pair) for pair in zip(row, self.columns, strict=True)] for row in self.rows]
        lines = ["| " + " | ".join(words) + " |" for words in (head, rules, *rows)]
        return "\n".join([f"**{self.caption}**", "", *lines, ""])

    def to_latex(self) -> str:
        """Return the table as a LaTeX float; it needs the package booktabs."""

        def write(cell: Cell, column: Column) -> str:
            lines = [line.translate(LATEX) for line in self.lines(cell, column)]
            lines[0] = rf"\textbf{{{lines[0]}}}" if cell.best else lines[0]
            lines = [rf"\textit{{{line}}}" for line in lines] if column.published else lines
            stacked = r" \\ ".join(lines)
            return stacked if len(lines) == 1 else rf"\shortstack[r]{{{stacked}}}"

        rows = [[write(*pair) for pair in zip(row, self.columns, strict=True)] for row in self.rows]
        shown = pd.DataFrame(rows, columns=[c.heading.translate(LATEX) for c in self.columns])
        return str(
            shown.to_latex(
                index=False,
                escape=False,
                column_format="".join("r" if column.parts else "l" for column in self.columns),
                caption=self.caption.translate(LATEX),
                label=f"tab:{self.name}",
            )
        )

    def to_rich(self) -> RichTable:
        """Return the table for a terminal, without its caption."""
        drawn = RichTable(box=None, pad_edge=False, collapse_padding=True)
        wide = sum(len(column.parts) > 1 for column in self.columns) > 3
        for column in self.columns:
            justify: Literal["left", "right"] = "right" if column.parts else "left"
            style = "italic" if column.published else ""
            drawn.add_column(column.heading, justify=justify, no_wrap=not column.parts, style=style)
        for row in self.rows:
            words = []
            for cell, column in zip(row, self.columns, strict=True):
                lines = [escape(line) for line in self.lines(cell, column)]
                if cell.best:
                    lines[0] = f"[bold green]{lines[0]}[/]"
                if cell.worse or len(lines) > 1:
                    lines[-1] = f"[{'red' if cell.worse else 'dim'}]{lines[-1]}[/]"
                words.append(("\n" if wide else "  ").join(lines))
            drawn.add_row(*words)
        return drawn


def mark_best(
    cells: Sequence[Cell], able: Sequence[bool] = (), digits: int = 1, least: bool = False
) -> list[Cell]:
    """Mark the cells with the highest (or least) first number as a reader sees it.

    Only the cells that are `able` compete, by default all.
    """
    sign = -1 if least else 1
    shown = [
        sign * rounded(cell.means[0][0], digits) if may else math.nan
        for cell, may in zip(cells, able or [True] * len(cells), strict=True)
    ]
    top = max((value for value in shown if not math.isnan(value)), default=None)
    return [replace(c, best=value == top) for c, value in zip(cells, shown, strict=True)]
