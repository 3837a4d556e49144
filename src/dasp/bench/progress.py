"""What a run shows while it goes on: a bar for each phase, and a row for each running cell."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

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
        """Work through `results`, showing how far it is."""
        if total:
            for _ in self._progress.track(results, total=total, description=title):
                pass

    @contextmanager
    def listening(self, news: Any, total: int, done: int, cells: int) -> Iterator[None]:
        """Show the batches that workers report until the block ends."""
        title = f"adapt ({done} of {cells} cells were done)" if done else f"adapt ({cells} cells)"
        overall = self._progress.add_task(title, total=total)
        rows: dict[str, Any] = {}

        def listen() -> None:
            while True:
                name, batches = news.get()
                if not name:
                    return
                self._progress.advance(overall, batches)
                if name not in rows:
                    if len(rows) >= ROWS:
                        self._progress.remove_task(rows.pop(next(iter(rows))))
                    rows[name] = self._progress.add_task(f"  {name}", total=None)
                self._progress.advance(rows[name], batches)

        listener = threading.Thread(target=listen, daemon=True)
        if news is not None:
            listener.start()
        try:
            yield
        finally:
            if news is not None:
                news.put(("", 0))
                listener.join()
            for task in rows.values():
                self._progress.remove_task(task)
