"""Turns: one call at a time uses an adaptation, and none sees half of another one's step."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from dasp.core.errors import StateError


class Turns:
    """The lock of an adaptation, and which threads have frozen it."""

    def __init__(self) -> None:
        self.torn = False  # whether this process was forked in the middle of a call
        self._thread = threading.local()
        self._lock, self._owner, self._process = threading.Lock(), 0, os.getpid()

    @contextmanager
    def take(self, nested: bool = False) -> Iterator[None]:
        """Wait for other threads' calls; refuse a call in the middle of this thread's own one,
        made by a signal handler or by the model itself, unless it may be `nested`."""
        if os.getpid() != self._process:  # a child: its parent's lock is nobody's here
            self.torn = self._lock.locked()
            self._lock, self._owner, self._process = threading.Lock(), 0, os.getpid()
        if self._owner == threading.get_ident() and self._lock.locked():
            if not nested:
                raise StateError(
                    "called in the middle of a step, by a signal handler or by the model itself, "
                    "where the state is not whole: call it when tta(inputs) has returned."
                )
            yield
            return
        with self._lock:
            self._owner = threading.get_ident()
            yield

    @property
    def frozen(self) -> bool:
        """Whether this thread is inside `freeze`."""
        return getattr(self._thread, "frozen", False)

    @contextmanager
    def freeze(self) -> Iterator[None]:
        """Make `frozen` True for this thread in this block; blocks nest."""
        previous, self._thread.frozen = self.frozen, True
        try:
            yield
        finally:
            self._thread.frozen = previous


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put all parts of a module in evaluation mode, and back into the mode in which each was."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
