"""What a run shows while it goes on: a bar for each phase, and a row for each running cell."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import Progress, TaskID

from dasp.core.clock import Clock, Seconds, shares
from dasp.core.progress import bars

ROWS = 6  # running cells shown at once


class Bars:
    """Progress bars on standard error; silent where `show` is off."""

    def __init__(self, show: bool) -> None:
        self._progress = bars(show)

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def phase(self, title: str, results: Iterable[Any], total: int) -> None:
        """Work through `results`, showing how far it is; seconds of work are shown as shares."""
        if not total:
            return
        task, clock = self._progress.add_task(title, total=total), Clock()
        for result in results:
            if isinstance(result, Mapping):
                clock.add(result)
            self._progress.update(task, advance=1, description=_line(title, clock))

    @contextmanager
    def listening(
        self, news: Any, total: int, done: int, cells: int, work: str = "adapt"
    ) -> Iterator[None]:
        """Show what workers report until the block ends: (row name, batches, seconds of work)."""
        before = f"{done} of " if done else ""
        title = f"{work} ({before}{cells} cells{' were done' if done else ''})"
        rows = Rows(self._progress, title, total)

        def listen() -> None:
            while True:
                name, batches, seconds = news.get()
                if not name:
                    return
                rows.add(name, batches, seconds)

        listener = threading.Thread(target=listen, daemon=True)
        if news is not None:
            listener.start()
        try:
            yield
        finally:
            if news is not None:
                news.put(("", 0, {}))
                listener.join()
            rows.remove()


class Rows:
    """The bar of all cells, and a row for each of the running ones, with their time shares."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self._progress, self._title = progress, title
        self._overall, self._spent = progress.add_task(title, total=total), Clock()
        self._rows: dict[str, tuple[TaskID, Clock]] = {}

    def add(self, name: str, batches: int, seconds: Seconds) -> None:
        """Show that a cell has done batches, and what it spent its time on."""
        self._spent.add(seconds)
        line = _line(self._title, self._spent)
        self._progress.update(self._overall, advance=batches, description=line)
        if name not in self._rows:
            if len(self._rows) >= ROWS:
                self._progress.remove_task(self._rows.pop(next(iter(self._rows)))[0])
            self._rows[name] = self._progress.add_task(f"  {name}", total=None), Clock()
        task, clock = self._rows[name]
        clock.add(seconds)
        self._progress.update(task, advance=batches, description=_line(f"  {name}", clock))

    def remove(self) -> None:
        """Take the rows of the cells away; the bar of all stays."""
        for task, _ in self._rows.values():
            self._progress.remove_task(task)


def _line(title: str, clock: Clock) -> str:
    spent = shares(clock.seconds)
    return f"{title}  {spent}" if spent else title
