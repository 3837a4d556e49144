"""A table before it is drawn: quantities with spread and marks, no markup."""

from dataclasses import dataclass

NONE = "–"


@dataclass(frozen=True)
class Quantity:
    """A number, its standard deviation over replicates, and how to write it."""

    value: float | None
    spread: float | None = None
    digits: int = 1
    signed: bool = False

    @property
    def rounded(self) -> float | None:
        """Return the value as a reader sees it."""
        return None if self.value is None else round(self.value, self.digits) + 0.0

    @property
    def number(self) -> str:
        """Return the value as text, without its spread.

        >>> Quantity(-0.04, signed=True).number, Quantity(None).number
        ('+0.0', '–')
        """
        if self.rounded is None:
            return NONE
        return format(self.rounded, f"{'+' if self.signed else ''}.{self.digits}f")

    @property
    def deviation(self) -> str:
        """Return the spread as text, empty where there is one replicate only."""
        return "" if self.spread is None else f"{self.spread:.{self.digits}f}"

    @property
    def text(self) -> str:
        """Return value and spread.

        >>> Quantity(76.71, 0.52).text, Quantity(-1.0, signed=True).text
        ('76.7 ±0.5', '−1.0')
        """
        number = self.number.replace("-", "−")
        return f"{number} ±{self.deviation}" if self.deviation else number


@dataclass(frozen=True)
class Cell:
    """One cell: plain text, or quantities, the first of them the main one.

    With both, the text (lines) is what a reader sees and the quantities are what CSV holds.
    """

    text: str = ""
    quantities: tuple[Quantity, ...] = ()
    best: bool = False
    worse: bool = False  # than Source
    run: str = ""  # the key of the run whose page tells more

    @property
    def missing(self) -> bool:
        """Say whether there are quantities, but none is known."""
        return bool(self.quantities) and all(q.value is None for q in self.quantities)


@dataclass(frozen=True)
class Column:
    """A column's heading, and the names of its cells' quantities (none: a column of text)."""

    title: str
    quantities: tuple[str, ...] = ()
    published: bool = False  # by others: set apart from what was measured, in every dress

    @property
    def heading(self) -> str:
        """Return the title, led by a word that keeps published figures from passing for ours.

        >>> Column("Kinetics50-C", ("gain",), published=True).heading
        'published, Kinetics50-C'
        """
        return f"published, {self.title}" if self.published else self.title


@dataclass(frozen=True)
class Table:
    """A table with its caption; `name` is fit for a file name."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
