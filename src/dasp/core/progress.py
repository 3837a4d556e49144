"""Progress bars of long jobs: items done, and the time left."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Result = TypeVar("Result")
LINE_EVERY = 30  # seconds


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
    """Yield `results` while a bar shows how many of `total` are done.

    Without a terminal, which shows a bar only at the end, print a line every half minute.
    """
    with bars(show) as bar:
        told, lines = time.monotonic(), show and not sys.stderr.isatty()
        for done, result in enumerate(bar.track(results, total, description=what), start=1):
            if lines and time.monotonic() - told > LINE_EVERY:
                told = time.monotonic()
                print(f"{what}: {done} of {total} done", file=sys.stderr, flush=True)
            yield result
