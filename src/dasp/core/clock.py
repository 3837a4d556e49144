"""Time spent per stage of a job, and items made in a thread before they are needed."""

import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Seconds = Mapping[str, float]
"""Seconds per stage: "decode", "corrupt", "encode", "load", "adapt" …"""

_Drawn = tuple[tuple[Item, ...], BaseException | None]  # one item, or none at the end
_END = object()  # follows the last item


class Clock:
    """Adds up the seconds spent in each stage.

    A stage inside another one counts only for itself, so that the stages add up to wall time.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._within = 0.0
        self._reported: dict[str, float] = {}

    @contextmanager
    def on(self, stage: str) -> Iterator[None]:
        """Count the time of the block towards `stage`."""
        outer, self._within = self._within, 0.0
        start = time.perf_counter()
        try:
            yield
        finally:
            passed = time.perf_counter() - start
            self.add({stage: passed - self._within})
            self._within = outer + passed

    def add(self, seconds: Seconds) -> None:
        """Add the seconds of another clock."""
        for stage, value in seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + value

    def news(self) -> dict[str, float]:
        """Return the seconds added since the last call."""
        new = {stage: t - self._reported.get(stage, 0.0) for stage, t in self.seconds.items()}
        self._reported = dict(self.seconds)
        return {stage: value for stage, value in new.items() if value}


def shares(seconds: Seconds) -> str:
    """Return the share of each stage in the total time as text.

    >>> shares({"load": 0.3, "adapt": 9.7})
    'load 3% · adapt 97%'
    >>> shares({})
    ''
    """
    total = sum(seconds.values())
    return " · ".join(f"{stage} {value / total:.0%}" for stage, value in seconds.items() if value)


def timed(items: Iterable[Item], clock: Clock, stage: str = "load") -> Iterator[Item]:
    """Yield the items, counting the time spent waiting for each towards `stage`."""
    source = iter(items)
    while True:
        with clock.on(stage):
            item = next(source, _END)
        if item is _END:
            return
        yield item  # type: ignore[misc]


@contextmanager
def drawn_ahead(items: Iterable[Item], depth: int = 2) -> Iterator[Iterator[Item]]:
    """Yield an iterator over the items; a thread makes up to `depth` of them in advance.

    An error in making an item is raised where the item is asked for. The thread ends with the
    block, even when not all items were taken. With depth 0 no thread is used.

    >>> with drawn_ahead(range(3)) as numbers:
    ...     print(list(numbers))
    [0, 1, 2]
    """
    if depth == 0:
        yield iter(items)
        return
    ready: SimpleQueue[_Drawn[Item]] = SimpleQueue()
    room, over = threading.Semaphore(depth), threading.Event()

    def draw() -> None:
        source = iter(items)
        try:
            while room.acquire() and not over.is_set():
                ready.put(((next(source),), None))
        except StopIteration:
            ready.put(((), None))
        except BaseException as error:
            ready.put(((), error))
        if isinstance(source, Generator):
            source.close()

    thread = threading.Thread(target=draw, name="drawn ahead", daemon=True)
    thread.start()
    try:
        yield _taken(ready, room)
    finally:
        over.set()
        room.release()
        thread.join()


def _taken(ready: SimpleQueue[_Drawn[Item]], room: threading.Semaphore) -> Iterator[Item]:
    while True:
        drawn, error = ready.get()
        if error is not None:
            raise error
        if not drawn:
            return
        room.release()
        yield drawn[0]
