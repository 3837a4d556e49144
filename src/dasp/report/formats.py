"""A table of a report, and its formats: CSV, Markdown, LaTeX, and text for the terminal.

CSV holds the numbers; the other formats hold what a reader sees: rounded means ±standard
deviations, the best in bold, what falls below Source marked with ▼.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

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


def mean_std(values: Iterable[float]) -> Mean:
    """Return the mean and the sample standard deviation, leaving out NaN.

    >>> mean_std([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    known = [float(value) for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN, stdev(known) if len(known) > 1 else NAN


def rounded(value: float, digits: int = 1) -> float:
    """Return a value as a reader sees it, without a negative zero."""
    return value if math.isnan(value) else round(value, digits) + 0.0


def write_mean(mean: Mean, digits: int = 1, part: str = "") -> str:
    """Return a mean as a reader sees it; differences have a sign.

    >>> write_mean((76.71, 0.52)), write_mean((-1.0, NAN), part="gain")
    ('76.7 ±0.5', '−1.0')
    """
    value, spread = mean
    if math.isnan(value):
        return NONE
    sign = "+" if part in SIGNED else ""
    number = format(rounded(value, digits), f"{sign}.{digits}f").replace("-", "−")
    return number if math.isnan(spread) else f"{number} ±{spread:.{digits}f}"


@dataclass(frozen=True)
class Cell:
    """One mean per quantity in `parts`, one below the other; `text` replaces what is read."""

    means: tuple[Mean, ...]
    parts: tuple[str, ...] = ("value",)
    digits: int = 1
    text: str = ""
    best: bool = False
    worse: bool = False
    """Than Source, or than a limit that the caption gives."""
    published: bool = False
    """By others, and therefore set in italics."""
    run: str = ""
    """Key of the run that the cell links to."""

    @property
    def lines(self) -> list[str]:
        """Return the lines that a reader sees; the last one has the mark ▼."""
        if self.text:
            return self.text.split("\n")
        if all(math.isnan(value) for value, _ in self.means):
            return [NONE]
        pairs = zip(self.parts, self.means, strict=True)
        lines = [write_mean(mean, self.digits, part) for part, mean in pairs]
        return [*lines[:-1], WORSE * self.worse + lines[-1]]


def mean_cell(values: Iterable[float], digits: int = 1, part: str = "value") -> Cell:
    """Return a cell with the mean of some values, and their deviation."""
    return Cell((mean_std(values),), (part,), digits)


def number(value: float, digits: int = 1, **marks: Any) -> Cell:
    """Return a cell with one number, without a deviation."""
    return Cell(((float(value), NAN),), digits=digits, **marks)


Row = Mapping[str, str | Cell]
"""Text or numbers by the heading of their column."""


@dataclass(frozen=True)
class Table:
    """A table with its caption; `name` is that of its files. All rows have the same columns."""

    name: str
    caption: str
    rows: Sequence[Row]

    @property
    def frame(self) -> pd.DataFrame:
        """Return the numbers: one column per quantity, and one per standard deviation."""
        records = []
        for row in self.rows:
            record: dict[str, str | float] = {}
            for heading, cell in row.items():
                if isinstance(cell, str):
                    record[heading] = cell
                    continue
                for part, mean in zip(cell.parts, cell.means, strict=True):
                    name = heading if len(cell.parts) == 1 else f"{heading} {part}"
                    record[name], record[f"{name} std"] = mean
            records.append(record)
        return pd.DataFrame(records)

    def written(
        self, escaped: Callable[[str], str], mark: Callable[[list[str], Cell], str]
    ) -> list[list[str]]:
        """Return the headings and all rows as text; `mark` joins the lines of a cell."""
        rows = [
            [
                escaped(cell) if isinstance(cell, str) else mark([*map(escaped, cell.lines)], cell)
                for cell in row.values()
            ]
            for row in self.rows
        ]
        return [list(map(escaped, self.rows[0])), *rows]

    def to_csv(self) -> str:
        """Return the numbers as CSV."""
        return str(self.frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))

    def to_markdown(self) -> str:
        """Return the table in GitHub's Markdown."""

        def mark(lines: list[str], cell: Cell) -> str:
            lines = [f"*{line}*" for line in lines] if cell.published else lines
            return "<br>".join([f"**{lines[0]}**" if cell.best else lines[0], *lines[1:]])

        rules = ["---" if isinstance(cell, str) else "---:" for cell in self.rows[0].values()]
        head, *rows = self.written(lambda text: text.replace("|", r"\|"), mark)
        lines = ["| " + " | ".join(words) + " |" for words in (head, rules, *rows)]
        return "\n".join([f"**{self.caption}**", "", *lines, ""])

    def to_latex(self) -> str:
        """Return the table as a LaTeX float; it needs the package booktabs."""

        def mark(lines: list[str], cell: Cell) -> str:
            lines[0] = rf"\textbf{{{lines[0]}}}" if cell.best else lines[0]
            lines = [rf"\textit{{{line}}}" for line in lines] if cell.published else lines
            stacked = r" \\ ".join(lines)
            return stacked if len(lines) == 1 else rf"\shortstack[r]{{{stacked}}}"

        head, *rows = self.written(lambda text: text.translate(LATEX), mark)
        aligned = "".join("l" if isinstance(cell, str) else "r" for cell in self.rows[0].values())
        return str(
            pd.DataFrame(rows, columns=head).to_latex(
                index=False,
                escape=False,
                column_format=aligned,
                caption=self.caption.translate(LATEX),
                label=f"tab:{self.name}",
            )
        )

    def to_rich(self) -> RichTable:
        """Return the table for a terminal, without its caption."""
        first = self.rows[0].values()
        several = sum(isinstance(cell, Cell) and len(cell.parts) > 1 for cell in first)

        def mark(lines: list[str], cell: Cell) -> str:
            if cell.best:
                lines[0] = f"[bold green]{lines[0]}[/]"
            if cell.worse or len(lines) > 1:
                lines[-1] = f"[{'red' if cell.worse else 'dim'}]{lines[-1]}[/]"
            return ("\n" if several > 3 else "  ").join(lines)

        head, *rows = self.written(escape, mark)
        drawn = RichTable(box=None, pad_edge=False, collapse_padding=True)
        for heading, cell in zip(head, first, strict=True):
            if isinstance(cell, str):
                drawn.add_column(heading, no_wrap=True)
            else:
                drawn.add_column(heading, justify="right", style="italic" * cell.published)
        for row in rows:
            drawn.add_row(*row)
        return drawn


def mark_best(cells: Sequence[Cell], able: Sequence[bool] = (), least: bool = False) -> list[Cell]:
    """Mark the cells with the highest (or least) first number as a reader sees it.

    Only the cells that are `able` compete, by default all.
    """
    sign = -1 if least else 1
    shown = [
        sign * rounded(cell.means[0][0]) if may else NAN
        for cell, may in zip(cells, able or [True] * len(cells), strict=True)
    ]
    top = max((value for value in shown if not math.isnan(value)), default=None)
    return [replace(c, best=value == top) for c, value in zip(cells, shown, strict=True)]
