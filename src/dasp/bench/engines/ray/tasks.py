"""What a worker of a Ray cluster does: make an array, do an item, look round on its node."""

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import ray
import torch

from dasp.bench.engines.ray.shipment import Shipment
from dasp.bench.features import Features, Part
from dasp.bench.work import Item, Outcome
from dasp.core.clock import Clock, Seconds

Box = tuple[Any]
"""Holds the reference of a shipment: within a tuple it is fetched when asked for, once."""
PAUSE = 0.25  # seconds between two reports of a task


class Board:
    """An actor to which all tasks report, and where the process that started the run reads."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int, Seconds]] = []
        self._counted: dict[str, int] = {}

    def begin(self, key: str, name: str) -> None:
        """Take back what a lost worker has told of the same task."""
        counted = self._counted.pop(key, 0)
        if counted:
            self._rows.append((name, -counted, {}))

    def add(self, key: str, name: str, steps: int, seconds: Seconds) -> None:
        """Note steps of a task."""
        self._counted[key] = self._counted.get(key, 0) + steps
        self._rows.append((name, steps, seconds))

    def take(self) -> list[tuple[str, int, Seconds]]:
        """Return what is new."""
        rows, self._rows = self._rows, []
        return rows


class Teller:
    """Reports the steps of a task to the board, a few at a time; to none if there is none."""

    def __init__(self, board: Any, key: str, name: str) -> None:
        self._board, self._key, self._name = board, key, name
        self._steps, self._clock, self._told = 0, Clock(), time.monotonic()
        if board is not None:
            board.begin.remote(key, name)

    def __call__(self, steps: int, seconds: Seconds) -> None:
        """Count steps and what their time went by on."""
        self._steps += steps
        self._clock.add(seconds)
        if time.monotonic() - self._told > PAUSE:
            self.tell()

    def tell(self) -> None:
        """Report what is counted."""
        if self._board is not None and self._steps:
            self._board.add.remote(self._key, self._name, self._steps, self._clock.news())
        self._steps, self._told = 0, time.monotonic()


def make_array(box: Box, item: Item, part: Part, board: Any, *after: None) -> None:
    """Make one array of the store, after the arrays that it is made from."""
    del after
    torch.set_num_threads(1)
    kind = "encode" if part.encoded else "corrupt"
    name = f"{kind} {part.modality} {part.domain or 'clean'}"
    tell = Teller(board, f"{name} {item.digest}", name)
    features = _features(box, item.model, item.digest)
    features.get(part)
    tell(1, {} if features.store is None else features.store.clock.news())
    tell.tell()


def do_item(box: Box, item: Item, parts: Sequence[Part], board: Any, *after: None) -> list[Outcome]:
    """Do one item, after the arrays that it needs; return what is to be written."""
    del after
    torch.set_num_threads(1)
    work = unpacked(box).work
    tell = Teller(board, item.key, work.name(item))
    features = _features(box, item.model, item.digest)
    first = int(item.key, 16) % len(parts)
    for part in (*parts[first:], *parts[:first]):  # items side by side make different ones
        features.get(part)
    outcomes = list(work.outcomes(item, features, tell))
    tell.tell()
    return outcomes


def look(box: Box, name: str, leave: bool) -> bool:
    """Tell whether the store of this node has a file of this name; leave one there, or not."""
    shipment = unpacked(box)
    path = shipment.place.open_store().folder / name
    found = path.exists()
    if leave:
        path.touch()
    else:
        path.unlink(missing_ok=True)
    return found


@lru_cache(maxsize=1)
def unpacked(box: Box) -> Shipment:
    """Return what the box holds, unpacked; a process does it once a run."""
    shipment: Any = ray.get(box[0])
    assert isinstance(shipment, Shipment)
    shipment.unpack()
    return shipment


@lru_cache(maxsize=4)
def _features(box: Box, model: str, digest: str) -> Features:
    return unpacked(box).features(model, digest)
