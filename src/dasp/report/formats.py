"""A table of a report, and its formats: CSV, Markdown, LaTeX, and text for the terminal.

CSV holds the numbers; the other formats hold what a reader sees: rounded means ±standard
deviations, the best in bold, what falls below Source marked with ▼.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table as RichTable

NONE, WORSE = "–", "▼"
SIGNED = {"gain", "difference", "low", "high", "end", "worst"}
LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"–": "--", "±": r"$\pm$", "×": r"$\times$", "−": "$-$"}
    | {"▼": r"$\downarrow$"}
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


def write_mean(mean: Mean, digits: int = 1, part: str = "") -> str:
    """Return a mean as a reader sees it; differences have a sign.

    >>> write_mean((76.71, 0.52)), write_mean((-1.0, NAN), part="gain")
    ('76.7 ±0.5', '−1.0')
    """
    value, spread = mean
    if math.isnan(value):
        return NONE
    sign = "+" if part in SIGNED else ""
    number = format(round(value, digits) + 0.0, f"{sign}.{digits}f").replace("-", "−")
    return number if math.isnan(spread) else f"{number} ±{spread:.{digits}f}"


@dataclass(frozen=True)
class Cell:
    """Text, or one mean per quantity in `parts`; with both, the text is what a reader sees."""

    means: tuple[Mean, ...] = ()
    parts: tuple[str, ...] = ("value",)
    digits: int = 1
    text: str = ""
    best: bool = False
    worse: bool = False  # than Source, or than a limit that the caption gives
    published: bool = False  # by others, and therefore set in italics
    run: str = ""  # key of the run that the cell links to

    @property
    def lines(self) -> list[str]:
        """Return the lines that a reader sees; the last one has the mark ▼."""
        if self.text or not self.means:
            return self.text.split("\n")
        if all(math.isnan(value) for value, _ in self.means):
            return [NONE]
        pairs = zip(self.parts, self.means, strict=True)
        lines = [write_mean(mean, self.digits, part) for part, mean in pairs]
        return [*lines[:-1], (WORSE if self.worse else "") + lines[-1]]


def mean_cell(values: Iterable[float], digits: int = 1, part: str = "value") -> Cell:
    """Return a cell with the mean of some values, and their deviation."""
    return Cell((mean_std(values),), (part,), digits)


def number(value: float, digits: int = 1, **marks: Any) -> Cell:
    """Return a cell with one number; an integer has no decimals."""
    digits = 0 if isinstance(value, int) else digits
    return Cell(((float(value), NAN),), digits=digits, **marks)


def mark_best(
    cells: Mapping[str, Cell], able: Collection[str] | None = None, least: bool = False
) -> dict[str, Cell]:
    """Mark the cells with the highest (or least) first number as a reader sees it.

    Only the cells that are `able` compete, by default all.
    """
    numbers = pd.Series({name: round(cell.means[0][0], 1) for name, cell in cells.items()})
    shown = numbers if able is None else numbers[numbers.index.isin(able)]
    top = shown.min() if least else shown.max()
    return {name: replace(cell, best=shown.get(name) == top) for name, cell in cells.items()}


@dataclass(frozen=True)
class Table:
    """A table with its caption; `name` is that of its files."""

    name: str
    caption: str
    content: Sequence[Mapping[str, Any]]  # rows of text, numbers and cells by their headings

    @cached_property
    def rows(self) -> list[dict[str, Cell]]:
        """Return the content with plain text and numbers as cells."""

        def cell(value: Any) -> Cell:
            plain = Cell(text=value) if isinstance(value, str) else value
            return plain if isinstance(plain, Cell) else number(plain)

        return [{heading: cell(value) for heading, value in row.items()} for row in self.content]

    def files(self) -> dict[str, bytes]:
        """Return the table in each format, by the ending of its file."""
        texts = {"csv": self.to_csv(), "md": self.to_markdown(), "tex": self.to_latex()}
        return {ending: text.encode() for ending, text in texts.items()}

    @property
    def columns(self) -> dict[str, Cell]:
        """Return the headings, each with its first cell, which tells the kind of the column."""
        return self.rows[0]

    @property
    def frame(self) -> pd.DataFrame:
        """Return the numbers: one column per quantity, and one per standard deviation."""
        records: list[dict[str, str | float]] = [{} for _ in self.rows]
        for record, row in zip(records, self.rows, strict=True):
            for heading, cell in row.items():
                if not cell.means:
                    record[heading] = cell.text
                for part, mean in zip(cell.parts, cell.means, strict=False):
                    name = heading if len(cell.parts) == 1 else f"{heading} {part}"
                    record[name], record[f"{name} std"] = mean
        return pd.DataFrame(records)

    def _written(
        self, escaped: Callable[[str], str], best: str, worse: str, published: str, joint: str
    ) -> list[list[str]]:
        """Return the headings and all rows as text, in the marks of a format."""

        def write(cell: Cell) -> str:
            lines = [escaped(line) for line in cell.lines]
            lines[0] = best.format(lines[0]) if cell.best else lines[0]
            lines[-1] = worse.format(lines[-1]) if cell.worse else lines[-1]
            return joint.join(published.format(n) if cell.published else n for n in lines)

        return [list(map(escaped, self.columns)), *([*map(write, r.values())] for r in self.rows)]

    def to_csv(self) -> str:
        """Return the numbers as CSV."""
        return str(self.frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))

    def to_markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        marks = "**{}**", "{}", "*{}*", "<br>"
        head, *rows = self._written(lambda text: text.replace("|", r"\|"), *marks)
        rules = ["---:" if cell.means else "---" for cell in self.columns.values()]
        lines = ["| " + " | ".join(words) + " |" for words in (head, rules, *rows)]
        return "\n".join([f"**{self.caption}**", "", *lines, ""])

    def to_latex(self) -> str:
        """Return the table as a LaTeX float; it needs the package booktabs."""
        marks = r"\textbf{{{}}}", "{}", r"\textit{{{}}}", r" \\ "
        head, *rows = self._written(lambda text: text.translate(LATEX), *marks)
        rows = [[rf"\shortstack[r]{{{c}}}" if r"\\" in c else c for c in row] for row in rows]
        sides = "".join("r" if cell.means else "l" for cell in self.columns.values())
        words = {"caption": self.caption.translate(LATEX), "label": f"tab:{self.name}"}
        shown = pd.DataFrame(rows, columns=head)
        return str(shown.to_latex(index=False, escape=False, column_format=sides, **words))

    def to_rich(self) -> RichTable:
        """Return the table for a terminal, without its caption."""
        several = sum(len(cell.means) > 1 for cell in self.columns.values())
        joint = "\n" if several > 3 else "  "
        marks = "[bold green]{}[/]", "[red]{}[/]", "[italic]{}[/]", joint
        head, *rows = self._written(escape, *marks)
        drawn = RichTable(box=None, pad_edge=False, collapse_padding=True)
        for heading, cell in zip(head, self.columns.values(), strict=True):
            numbers = bool(cell.means)
            drawn.add_column(heading, justify="right" if numbers else "left", no_wrap=not numbers)
        for row in rows:
            drawn.add_row(*row)
        return drawn
