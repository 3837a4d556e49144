"""What time goes by on: seconds of work by its name, and the line that shows their shares."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Seconds = Mapping[str, float]
"""Seconds by what they were spent on: "decode", "corrupt", "encode", "load", "adapt" …"""


class _End:
    """Comes after the last item."""


_END = _End()


class Clock:
    """Adds up the seconds that each kind of work takes.

    Work within other work counts for itself alone, so that the seconds add up to those on the
    wall.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._within = 0.0
        self._told: dict[str, float] = {}

    @contextmanager
    def on(self, work: str) -> Iterator[None]:
        """Count the block's time as this work."""
        outer, self._within = self._within, 0.0
        start = time.perf_counter()
        try:
            yield
        finally:
            passed = time.perf_counter() - start
            self.add({work: passed - self._within})
            self._within = outer + passed

    def add(self, seconds: Seconds) -> None:
        """Add what another clock has counted."""
        for work, value in seconds.items():
            self.seconds[work] = self.seconds.get(work, 0.0) + value

    def news(self) -> dict[str, float]:
        """Return what was added since the last call."""
        new = {work: value - self._told.get(work, 0.0) for work, value in self.seconds.items()}
        self._told = dict(self.seconds)
        return {work: value for work, value in new.items() if value}


def shares(seconds: Seconds) -> str:
    """Say how the time was divided.

    >>> shares({"load": 0.3, "adapt": 9.7})
    'load 3% · adapt 97%'
    >>> shares({})
    ''
    """
    total = sum(seconds.values())
    return " · ".join(f"{work} {value / total:.0%}" for work, value in seconds.items() if value)


def timed(items: Iterable[Item], clock: Clock, work: str = "load") -> Iterator[Item]:
    """Pass items on, counting the time that each was waited for as this work."""
    source = iter(items)
    while True:
        with clock.on(work):
            item = next(source, _END)
        if isinstance(item, _End):
            return
        yield item
