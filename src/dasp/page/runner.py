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

`missing`, `biased` [modality]; `scores`, `limits`, `probability` {modality: number}; `norms` {part:
distance from the source}; `loss`; `note`; `skipped` (why nothing was learned). Where they are
known: `truth` {modality: text}, `accuracy` (of the last batches) and `overall` {lane: share},
`miss` (where the diagnosis is wrong, and why), `time`.
"""


@dataclass(frozen=True)
class Update:
    """What a page shows of one batch."""

    point: Point
    samples: list[dict[str, Any]] = field(default_factory=list)  # pictures, class, predictions
    sounds: Mapping[int, bytes] = field(default_factory=dict)  # WAV files by index of the sample
    keep: int | None = None  # after a restart or resume: drop points numbered from here on
    pause: str = ""  # why the run pauses after this batch


class Feed(ABC):
    """A source of updates. One thread calls `next` and `reset`; any thread may call the others."""

    follows = False  # True if it watches another process, which cannot be paused or stepped
    waits = False  # True if it shows its first batch and then waits until somebody looks

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

    def control(self, command: Command) -> bool:
        """Set a control and return whether the run must start over for it.

        Raise OptionError and change nothing if the command is invalid.
        """
        raise OptionError(f"'{command['do']}': {READ_ONLY}")

    def predict(self, files: Mapping[str, bytes]) -> dict[str, Any]:
        """Return what is predicted for a sample that was dropped on the page."""
        raise OptionError(f"this page takes no samples: {', '.join(files)}.")


class History:
    """The latest points, samples and sounds. Safe to use from any thread.

    There is no queue per browser that could grow. A browser that is ready for more gets the points
    after the version it has, as far back as they are kept, and only the newest samples. A slow
    browser therefore skips samples, and eventually points, but never delays the runner.
    """

    def __init__(self, limit: int = HISTORY) -> None:
        self._lock = threading.RLock()
        self._version = self._cleared = self._sampled = self._stated = 0  # now, and of each change
        self._points: deque[tuple[int, Point]] = deque(maxlen=limit)  # with their versions
        self._samples: dict[str, Any] | None = None
        self._sounds: deque[tuple[str, Mapping[int, bytes]]] = deque(maxlen=SOUNDS)
        self._state: Mapping[str, Any] | None = None

    def publish(self, update: Update) -> None:
        """Append one batch."""
        with self._lock:
            if update.keep is not None:
                self.clear(update.keep)
            self._version += 1
            self._points.append((self._version, update.point))
            key = f"{self._cleared}-{update.point['n']}"
            if update.samples:
                self._samples, self._sampled = {"key": key, "list": update.samples}, self._version
            if update.sounds:
                self._sounds.append((key, update.sounds))

    def clear(self, first: int = 0) -> None:
        """Drop the samples, and the points numbered from `first` on."""
        with self._lock:
            kept = [one for one in self._points if one[1]["n"] < first]
            self._points = deque(kept, self._points.maxlen)
            self._samples = None
            self._version += 1
            self._cleared = self._version

    def since(
        self, seen: int, state: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any] | None, int]:
        """Return what is new after version `seen` (None if nothing is) and the new version.

        `fresh` in the news tells the browser to drop the points it has. A browser begins at -1.
        """
        with self._lock:
            if state != self._state:
                self._version += 1
                self._state, self._stated = state, self._version
            if seen == self._version:
                return None, seen
            fresh = seen < self._cleared
            points = [point for version, point in self._points if fresh or version > seen]
            news: dict[str, Any] = {"kind": "news", "fresh": fresh, "points": points}
            if fresh or self._sampled > seen:
                news["samples"] = self._samples
            if fresh or self._stated > seen:
                news["state"] = self._state
            return news, self._version

    def points(self) -> list[Point]:
        """Return the points that are kept."""
        with self._lock:
            return [point for _, point in self._points]

    def sound(self, key: str, index: int) -> bytes | None:
        """Return the WAV file of a recent sample."""
        with self._lock:
            return dict(self._sounds).get(key, {}).get(index)


class Runner:
    """Runs one feed for all browsers: all see the same run, and each can control it."""

    def __init__(self, feed: Feed, playing: bool = True) -> None:
        self.feed, self.history = feed, History()
        self.stopped = False  # whether `stop` has been called
        self._waiting = playing and feed.waits  # until the first command
        self._playing, self._note = playing and not feed.waits, ""
        self._speed = 2.0 if feed.waits else 4.0  # slow enough to read
        self._step, self._reset = self._waiting, False  # whether a step or a reset is to be done
        self._begun, self._idle = -math.inf, False  # of the last batch: when; whether none came
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dasp-page", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop after the current batch; wait for it for up to `timeout` seconds."""
        with self._wake:
            self.stopped = True
            self._wake.notify()
        self._thread.join(timeout)

    def news(self, seen: int) -> tuple[dict[str, Any] | None, int]:
        """Return what is new after version `seen`, None if nothing is, and the new version."""
        state = {"playing": self._playing, "speed": self._speed, "note": self._note}
        state |= {"waiting": self._waiting}
        return self.history.since(seen, {**state, "speeds": SPEEDS, **self.feed.state()})

    def control(self, command: Command) -> None:
        """Carry out a command; raise OptionError and change nothing if it is invalid."""
        do, value, known = command.get("do"), command.get("value"), self.feed.about()["can"]
        if not known:
            raise OptionError(READ_ONLY)
        if do not in known:
            raise OptionError(unknown_name("command", str(do), known))
        if do == "speed" and (isinstance(value, bool) or value not in SPEEDS):
            raise OptionError(f"speed is one of {SPEEDS} batches per second, not {value!r}.")
        with self._wake:
            match do:
                case "speed":
                    self._speed = float(command["value"])
                case "reset":
                    self._reset = True
                case "play" | "pause" | "step":
                    self._playing, self._step = do == "play", self._step or do == "step"
                case _:
                    self._reset = self.feed.control(command) or self._reset
            self._waiting = False
            self._wake.notify()

    def _run(self) -> None:
        while (task := self._next_task()) != "stop":
            try:
                if task == "batch":
                    self._run_batch()
                else:
                    self.feed.reset()
                    self.history.clear()
                    self._note = ""
            except Exception as error:  # from the user's model or stream: show it and go on
                self._pause(f"{type(error).__name__}: {error}")

    def _next_task(self) -> str:
        """Wait until there is something to do: "stop", "reset" or "batch"."""
        with self._wake:
            while not (self.stopped or self._reset or self._step):
                pause = POLL * self._idle if self.feed.follows else 1 / self._speed
                rest = self._begun + pause - time.monotonic()
                if self._playing and rest <= 0:
                    break
                self._wake.wait(rest if self._playing else None)
            if self._reset and not self.stopped:
                self._reset = False
                return "reset"
            self._step = False
            return "stop" if self.stopped else "batch"

    def _run_batch(self) -> None:
        self._begun = time.monotonic()
        update = self.feed.next()
        self._idle = update is None
        if update is not None:
            self._note = ""
            self.history.publish(update)
            if update.pause:
                self._pause(update.pause)
        elif not self.feed.follows:
            self._pause(ENDED)

    def _pause(self, note: str) -> None:
        with self._wake:
            self._playing, self._note = False, note


def finite(value: float | None) -> float | None:
    """Round a number to five digits for JSON; return None if it is not finite."""
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
