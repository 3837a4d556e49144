"""The thread that runs a feed: plays, pauses, steps and resets it, and posts on the board."""

import threading
import time
from typing import Any

from dasp.core.errors import OptionError, unknown_name
from dasp.page.board import Board
from dasp.page.feed import Feed, Wish

SPEEDS = (0.5, 1, 2, 4, 8)  # batches a second, at most
POLL = 0.2  # seconds between two looks at something that runs elsewhere
ENDED = "The stream has ended. Reset starts it over."


class Runner:
    """Runs one feed for everybody who looks: all browsers see the same, and all may control it."""

    def __init__(self, feed: Feed, board: Board, playing: bool = True) -> None:
        self.feed, self.board = feed, board
        self._playing, self._speed = playing, 4.0
        self._note = ""
        self._steps = 0
        self._reset = self._stop = False
        self._pace = 0.0  # seconds that a batch takes, lately
        self._awake = threading.Condition()
        self._posting = threading.Lock()  # so that no older state is posted after a newer one
        self._thread = threading.Thread(target=self._run, name="dasp-page", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._post_state()
        self._thread.start()

    def stop(self, patience: float = 2.0) -> None:
        """End after the batch in hand, which may take a moment."""
        with self._awake:
            self._stop = True
            self._awake.notify()
        self.board.tell()
        if self._thread.is_alive():
            self._thread.join(patience)

    @property
    def stopped(self) -> bool:
        """Whether it has been told to end."""
        return self._stop

    def obey(self, wish: Wish) -> None:
        """Do what a page asks for; raises OptionError, and changes nothing, if it cannot be."""
        do = wish.get("do")
        can = self.feed.about()["can"]
        if not can:
            raise OptionError("this page only looks on: what it shows is controlled elsewhere.")
        own = {"play", "pause", "step", "speed", "reset"}
        if not isinstance(do, str) or do not in own | {"order", "severity", "corrupt"}:
            raise OptionError(unknown_name("wish", str(do), [*can, "order", "severity", "corrupt"]))
        if do not in own:
            self.feed.obey(wish)
        else:
            self._obey(do, wish)
        self._post_state()

    def _obey(self, do: str, wish: Wish) -> None:
        value = wish.get("value")
        if do == "speed" and (isinstance(value, bool) or value not in SPEEDS):
            raise OptionError(f"speed is one of {SPEEDS} batches a second.")
        with self._awake:
            if do == "speed":
                self._speed = float(wish["value"])
            elif do == "reset":
                self._reset = True
            elif do == "step":
                self._playing, self._steps = False, 1
            else:
                self._playing = do == "play"
            self._awake.notify()

    def _run(self) -> None:
        while (do := self._next_task()) != "stop":
            try:
                self._reset_all() if do == "reset" else self._one_batch()
            except Exception as error:  # the user's model or stream: say it, stay there
                self._halt(f"{type(error).__name__}: {error}")
            self._post_state()

    def _next_task(self) -> str:
        with self._awake:
            while True:
                if self._stop:
                    return "stop"
                if self._reset:
                    self._reset = False
                    return "reset"
                if self._playing or self._steps:
                    self._steps = 0
                    return "batch"
                self._awake.wait()

    def _one_batch(self) -> None:
        began = time.monotonic()
        update = self.feed.next()
        if update is not None:
            self._note = ""
            self.board.publish(update)
            spent = time.monotonic() - began
            self._pace = spent if not self._pace else 0.8 * self._pace + 0.2 * spent
        elif not self.feed.follows:
            self._halt(ENDED)
            return
        self._rest(began, found=update is not None)

    def _rest(self, began: float, found: bool) -> None:
        """Wait as the speed wants; any wish ends the waiting."""
        if self.feed.follows:
            pause = 0.0 if found else POLL
        else:
            pause = began + 1 / self._speed - time.monotonic()
        with self._awake:
            if pause > 0 and self._playing and not (self._stop or self._reset):
                self._awake.wait(pause)

    def _reset_all(self) -> None:
        self.feed.reset()
        self._note = ""
        self.board.clear()

    def _halt(self, note: str) -> None:
        with self._awake:
            self._playing, self._note = False, note

    def _post_state(self) -> None:
        with self._posting:
            state: dict[str, Any] = {
                "playing": self._playing,
                "speed": self._speed,
                "speeds": SPEEDS,
                "note": self._note,
                "seconds": round(self._pace, 2),
                **self.feed.state(),
            }
            self.board.set_state(state)
