"""Time spent per stage of a job, and items made in a thread before they are needed."""

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")
Seconds = Mapping[str, float]  # per stage: "decode", "corrupt", "encode", "load", "adapt" …
_END: Any = object()  # follows the last item


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
    """
    total = sum(seconds.values())
    return " · ".join(f"{stage} {value / total:.0%}" for stage, value in seconds.items() if value)


def timed(items: Iterable[Item], clock: Clock) -> Iterator[Item]:
    """Yield the items, counting the time spent waiting for each towards the stage "load"."""
    source = iter(items)
    while True:
        with clock.on("load"):
            item = next(source, _END)
        if item is _END:
            return
        yield item


@contextmanager
def drawn_ahead(items: Iterable[Item], depth: int = 2) -> Iterator[Iterator[Item]]:
    """Yield an iterator over the items; a thread makes up to `depth` of them in advance.

    An error in making an item is raised where the item is asked for. The thread ends with the
    block, even when not all items were taken. With depth 0 no thread is used.

    >>> with drawn_ahead(range(3)) as numbers:
    ...     print(list(numbers))
    [0, 1, 2]
    """
    source = iter(items)
    if depth == 0:
        yield source
        return
    with ThreadPoolExecutor(1, "drawn ahead") as pool:
        ready = deque(pool.submit(next, source, _END) for _ in range(depth))

        def take() -> Iterator[Item]:
            while (item := ready.popleft().result()) is not _END:
                ready.append(pool.submit(next, source, _END))
                yield item

        try:
            yield take()
        finally:
            pool.shutdown(cancel_futures=True)
            if isinstance(source, Generator):
                source.close()
