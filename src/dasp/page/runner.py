"""Run a feed in a thread of its own and keep the history that browsers read.

A `Feed` produces one `Update` per batch. The `Runner` plays, pauses, steps and resets it and
publishes every update to its `History`. Nothing here knows about the web.
"""

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dasp.core.errors import OptionError, unknown_name

HISTORY = 600  # points kept
SOUNDS = 12  # batches whose sounds are kept
SPEEDS = (0.5, 1, 2, 4, 8)  # maximum batches per second
POLL = 0.2  # seconds between two looks at a process that runs elsewhere
ENDED = "The stream has ended. Reset starts it over."
READ_ONLY = "this page is read-only: it shows a process that runs elsewhere."
RUN_COMMANDS = ("play", "pause", "step", "speed", "reset")

Command = Mapping[str, Any]
"""A message from a browser as parsed JSON, such as {"do": "corrupt", "modality": "audio", ...}."""

Point = dict[str, Any]
"""What the charts show of one batch, ready for JSON. `n` counts batches since the last reset.

`missing`, `biased` [modality]; `scores`, `limits` {modality: number}; `norms` {part: distance from
the source}; `loss`; `note`. Where they are known: `truth` {modality: text}, `accuracy` (of the last
batches) and `overall` {lane: share}, `time`.
"""


@dataclass(frozen=True)
class Update:
    """What a page shows of one batch."""

    point: Point
    samples: list[dict[str, Any]] = field(default_factory=list)  # pictures, class, predictions
    sounds: Mapping[int, bytes] = field(default_factory=dict)  # WAV files by index of the sample
    keep: int | None = None  # after a restart or resume: drop points numbered from here on


class Feed(ABC):
    """A source of updates. One thread calls `next` and `reset`; any thread may call the others."""

    follows = False  # True if it watches another process, which cannot be paused or stepped

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """Return what is fixed: title, modalities, lanes, and in `can` the accepted commands."""

    @abstractmethod
    def next(self) -> Update | None:
        """Process the next batch; return None if there is none."""

    def reset(self) -> None:
        """Start over from the source state."""
        raise OptionError(READ_ONLY)

    def state(self) -> dict[str, Any]:
        """Return the current values of the feed's own controls."""
        return {}

    def control(self, command: Command) -> None:
        """Set a control; raise OptionError and change nothing if the command is invalid."""
        raise OptionError(f"'{command['do']}': {READ_ONLY}")


@dataclass(frozen=True)
class Cursor:
    """What one browser has seen: run of the history, last point, last samples, and state."""

    run: int = -1
    point: int = -1
    samples: int = -1
    state: Mapping[str, Any] | None = None


class History:
    """The latest points, samples and sounds. Safe to use from any thread.

    There is no queue per browser that could grow. A browser that is ready for more gets the points
    after its cursor, as far back as they are kept, and only the newest samples. A slow browser
    therefore skips samples, and eventually points, but never delays the runner.
    """

    def __init__(self, limit: int = HISTORY) -> None:
        self._lock = threading.Lock()
        self._points: deque[Point] = deque(maxlen=limit)
        self._samples: dict[str, Any] | None = None
        self._sounds: deque[tuple[str, Mapping[int, bytes]]] = deque(maxlen=SOUNDS)
        self._run = self._sample_version = 0

    def publish(self, update: Update) -> None:
        """Append one batch."""
        with self._lock:
            if update.keep is not None:
                self._drop_from(update.keep)
            self._points.append(update.point)
            key = f"{self._run}-{update.point['n']}"
            if update.samples:
                self._samples = {"key": key, "list": update.samples}
                self._sample_version += 1
            if update.sounds:
                self._sounds.append((key, update.sounds))

    def clear(self) -> None:
        """Drop all points and samples, after a reset."""
        with self._lock:
            self._drop_from(0)

    def since(
        self, seen: Cursor, state: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any] | None, Cursor]:
        """Return the news after a cursor (None if there are none) and the new cursor.

        `fresh` in the news tells the browser to drop the points it has.
        """
        with self._lock:
            last = self._points[-1]["n"] if self._points else -1
            now = Cursor(self._run, last, self._sample_version, state)
            if now == seen:
                return None, seen
            fresh = seen.run != now.run
            points = [point for point in self._points if fresh or point["n"] > seen.point]
            news: dict[str, Any] = {"kind": "news", "fresh": fresh, "points": points}
            if fresh or seen.samples != now.samples:
                news["samples"] = self._samples
            if seen.state != state:
                news["state"] = state
            return news, now

    def sound(self, key: str, index: int) -> bytes | None:
        """Return the WAV file of a recent sample."""
        with self._lock:
            return next((wavs.get(index) for name, wavs in self._sounds if name == key), None)

    def _drop_from(self, number: int) -> None:
        kept = [point for point in self._points if point["n"] < number]
        self._points.clear()
        self._points.extend(kept)
        self._samples = None
        self._sample_version += 1
        self._run += 1


class Runner:
    """Runs one feed for all browsers: all see the same run, and each can control it."""

    def __init__(self, feed: Feed, playing: bool = True) -> None:
        self.feed, self.history = feed, History()
        self._playing, self._speed, self._note = playing, 4.0, ""
        self._step = self._reset = False
        self.stopped = False  # whether `stop` has been called
        self._seconds = 0.0  # per batch, exponentially averaged
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dasp-page", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop after the current batch; wait for it for up to `timeout` seconds."""
        with self._wake:
            self.stopped = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def news(self, seen: Cursor) -> tuple[dict[str, Any] | None, Cursor]:
        """Return what a browser has not seen, None if there is nothing, and its new cursor."""
        state: dict[str, Any] = {
            "playing": self._playing,
            "speed": self._speed,
            "speeds": SPEEDS,
            "note": self._note,
            "seconds": round(self._seconds, 2),
            **self.feed.state(),
        }
        return self.history.since(seen, state)

    def control(self, command: Command) -> None:
        """Carry out a command; raise OptionError and change nothing if it is invalid."""
        do, value, known = command.get("do"), command.get("value"), self.feed.about()["can"]
        if not known:
            raise OptionError(READ_ONLY)
        if do not in known:
            raise OptionError(unknown_name("command", str(do), known))
        if do == "speed" and (isinstance(value, bool) or value not in SPEEDS):
            raise OptionError(f"speed is one of {SPEEDS} batches per second, not {value!r}.")
        if do not in RUN_COMMANDS:
            self.feed.control(command)
            return
        with self._wake:
            if do == "speed":
                self._speed = float(command["value"])
            elif do == "reset":
                self._reset = True
            elif do == "step":
                self._playing, self._step = False, True
            elif do in ("play", "pause"):
                self._playing = do == "play"
            self._wake.notify()

    def _run(self) -> None:
        while (task := self._next_task()) != "stop":
            try:
                if task == "reset":
                    self.feed.reset()
                    self._note = ""
                    self.history.clear()
                else:
                    self._run_batch()
            except Exception as error:  # from the user's model or stream: show it and go on
                self._pause(f"{type(error).__name__}: {error}")

    def _next_task(self) -> str:
        with self._wake:
            while True:
                if self.stopped:
                    return "stop"
                if self._reset:
                    self._reset = False
                    return "reset"
                if self._playing or self._step:
                    self._step = False
                    return "batch"
                self._wake.wait()

    def _run_batch(self) -> None:
        start = time.monotonic()
        update = self.feed.next()
        if update is not None:
            self._note = ""
            self.history.publish(update)
            spent = time.monotonic() - start
            self._seconds = 0.8 * self._seconds + 0.2 * spent if self._seconds else spent
        elif not self.feed.follows:
            self._pause(ENDED)
            return
        if self.feed.follows:
            rest = POLL if update is None else 0.0
        else:
            rest = start + 1 / self._speed - time.monotonic()
        with self._wake:
            if rest > 0 and self._playing and not (self.stopped or self._reset):
                self._wake.wait(rest)  # any command ends it

    def _pause(self, note: str) -> None:
        with self._wake:
            self._playing, self._note = False, note


def finite(value: float | None) -> float | None:
    """Round a number to five digits for JSON; return None if it is not finite.

    >>> finite(float("nan")), finite(0.1234567)
    (None, 0.12346)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")
