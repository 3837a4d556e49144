"""The board between the one who runs and all who look: a bounded history, and who has seen what.

There is no queue for a browser that could grow. Each keeps a mark of what it has seen; when it is
ready for more, it gets the points since then, as far as the history reaches, and the newest
samples alone. A slow browser skips samples, and after long also points; nobody waits for it.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dasp.page.feed import Point, Update

HISTORY = 600  # points
SOUNDS = 12  # batches whose sounds can still be fetched


@dataclass(frozen=True)
class Mark:
    """What one browser has seen."""

    run: int = -1  # how often the history had started over
    point: int = -1  # the number of the last point
    samples: int = -1
    state: int = -1


class Board:
    """What there is to see; any thread may write to it or read from it."""

    def __init__(self, history: int = HISTORY) -> None:
        self._lock = threading.Lock()
        self._points: deque[Point] = deque(maxlen=history)
        self._samples: dict[str, Any] = {}
        self._sounds: deque[tuple[str, dict[int, bytes]]] = deque(maxlen=SOUNDS)
        self._state: dict[str, Any] = {}
        self._run = self._sample_number = self._state_number = 0
        self._watchers: set[Callable[[], None]] = set()

    def publish(self, update: Update) -> None:
        """Show one more batch."""
        with self._lock:
            if update.keep is not None:
                self._forget(update.keep)
            self._points.append(update.point)
            key = f"{self._run}-{update.point['n']}"
            if update.samples:
                self._samples = {"batch": update.point["n"], "key": key, "list": update.samples}
                self._sample_number += 1
            if update.sounds:
                self._sounds.append((key, dict(update.sounds)))
        self.tell()

    def clear(self) -> None:
        """Forget what was, after a reset."""
        with self._lock:
            self._forget(0)
        self.tell()

    def set_state(self, state: dict[str, Any]) -> None:
        """Show how the controls stand."""
        with self._lock:
            if state == self._state:
                return
            self._state = state
            self._state_number += 1
        self.tell()

    def since(self, mark: Mark) -> tuple[dict[str, Any] | None, Mark]:
        """Return what a browser with this mark has not seen, None if nothing, and its new mark.

        `fresh` says that what the browser has no longer counts.
        """
        with self._lock:
            fresh = mark.run != self._run
            points = [p for p in self._points if fresh or p["n"] > mark.point]
            last = self._points[-1]["n"] if self._points else -1
            now = Mark(self._run, last, self._sample_number, self._state_number)
            if not fresh and now == mark:
                return None, mark
            news: dict[str, Any] = {"kind": "news", "fresh": fresh, "points": points}
            if mark.samples != now.samples or fresh:
                news["samples"] = self._samples or None
            if mark.state != now.state:
                news["state"] = self._state
            return news, now

    def sound(self, key: str, place: int) -> bytes | None:
        """Return the WAV file of a sample shown not long ago."""
        with self._lock:
            return next((own.get(place) for name, own in self._sounds if name == key), None)

    def watch(self, tell: Callable[[], None]) -> None:
        """Call `tell`, from any thread, whenever there is news; it must return at once."""
        with self._lock:
            self._watchers.add(tell)

    def unwatch(self, tell: Callable[[], None]) -> None:
        """Call it no longer."""
        with self._lock:
            self._watchers.discard(tell)

    @property
    def watching(self) -> int:
        """How many look on."""
        with self._lock:
            return len(self._watchers)

    def _forget(self, keep: int) -> None:
        kept = [point for point in self._points if point["n"] < keep]
        self._points.clear()
        self._points.extend(kept)
        self._samples = {}
        self._sample_number += 1
        self._run += 1

    def tell(self) -> None:
        """Call all who watch."""
        with self._lock:
            watchers = list(self._watchers)
        for tell in watchers:
            tell()
