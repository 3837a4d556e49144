"""Progress bars of long jobs: items done, and the time left."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Result = TypeVar("Result")


def bars(show: bool = True) -> Progress:
    """Return progress bars on standard error; they print nothing if `show` is False."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        disable=not show,
    )


def with_bar(results: Iterable[Result], total: int, what: str, show: bool) -> Iterator[Result]:
    """Yield `results` while a bar shows how many of `total` are done."""
    with bars(show) as bar:
        yield from bar.track(results, total=total, description=what)
