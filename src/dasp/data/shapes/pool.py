"""Training material: many frames, sounds and range pictures, grouped anew each epoch."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.files import atomic_path
from dasp.core.seeding import numpy_generator
from dasp.data.shapes.classes import CLASSES, FORMS, LOOKS, VOICES, Flavour, flavour_named
from dasp.data.shapes.dataset import audio_input, draw_content, draw_ranged, video_input
from dasp.data.shapes.depth import depth_input, draw_depth
from dasp.data.shapes.room import draw_wave
from dasp.data.shapes.scene import draw_frame

VERSION = 2  # of the generator; a cache of another version is not read
CHUNK = 64

Progress = Callable[[Iterable[int]], Iterable[int]]
Encode = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class ShapePairs:
    """Samples of the training split whose frame and sound are drawn from two pools.

    The pools (`per_class` frames and sounds of each class, and as many without any) are made
    once and kept in `cache` as memory-mapped arrays. `set_epoch` draws other pairs, and other
    bad ones, from the same pools; the pairs depend on (seed, epoch) alone.
    """

    def __init__(
        self,
        flavour: str,
        size: int,
        cache: str | Path,
        per_class: int = 600,
        seed: int = 0,
        track: Progress = iter,
    ) -> None:
        self.flavour, self.size, self.seed, self.per_class = flavour, size, seed, per_class
        self._bad = flavour_named(flavour).bad
        self._folder = Path(cache) / f"sounding_shapes_v{VERSION}" / f"{flavour}_{per_class}"
        self._pools = {
            "video": _pool(self._folder / "frames.npy", _frames, flavour, per_class, track),
            "audio": _pool(self._folder / "sounds.npy", _sounds, flavour, per_class, track),
        }
        self.set_epoch(0)

    def __len__(self) -> int:
        return self.size

    def set_epoch(self, epoch: int) -> None:
        """Pair the pools anew."""
        generator = numpy_generator(self.seed, f"pairs/{self.flavour}", str(epoch))
        labels = np.arange(self.size) % CLASSES
        self._contents = [draw_content(generator, int(label), self._bad) for label in labels]
        self._labels = torch.from_numpy(labels)
        members = generator.integers(self.per_class, size=(2, self.size))
        self._rows = {
            "audio": self._members([c.heard for c in self._contents], members[1]),
            "video": self._members([c.seen for c in self._contents], members[0]),
        }

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], int]:
        inputs, labels = self.batch(np.array([index]))
        return {name: value[0] for name, value in inputs.items()}, int(labels[0])

    def batch(self, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the inputs and labels of many samples at once."""
        inputs = {name: self._inputs(name, rows[indices]) for name, rows in self._rows.items()}
        return inputs, self._labels[indices]

    def _members(
        self, classes: Sequence[int | None], members: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the rows of a pool; its class 36 is "nothing"."""
        numbers = np.array([CLASSES if number is None else number for number in classes])
        return numbers * self.per_class + members

    def _inputs(self, name: str, rows: NDArray[np.int64]) -> Tensor:
        return _INPUTS[name](self._pools[name][rows])


class ShapeTriples(ShapePairs):
    """Pairs with a third sensor: range pictures from a pool of their own.

    Frames and sounds are those of `ShapePairs` of the same seed and epoch. `encode_once` puts the
    tokens of encoders that are not trained in their place.
    """

    def __init__(
        self,
        flavour: str,
        size: int,
        cache: str | Path,
        per_class: int = 600,
        seed: int = 0,
        track: Progress = iter,
    ) -> None:
        super().__init__(flavour, size, cache, per_class, seed, track)
        path = self._folder / "depths.npy"
        self._pools["depth"] = _pool(path, _depths, flavour, per_class, track)
        self._tokens: dict[str, Tensor] = {}

    def set_epoch(self, epoch: int) -> None:
        """Group the pools anew."""
        super().set_epoch(epoch)
        generator = numpy_generator(self.seed, f"triples/{self.flavour}", str(epoch))
        ranged = [draw_ranged(generator, content, self._bad) for content in self._contents]
        members = generator.integers(self.per_class, size=self.size)
        self._rows["depth"] = self._members(ranged, members)

    def encode_once(self, encode: Encode, names: Sequence[str], track: Progress = iter) -> None:
        """Encode every member of these pools; batches hold their tokens from now on."""
        for name in names:
            starts = range(0, len(self._pools[name]), CHUNK)
            parts = []
            for start in track(starts):
                rows = np.arange(start, min(start + CHUNK, len(self._pools[name])))
                parts.append(encode({name: super()._inputs(name, rows)})[name])
            self._tokens[name] = torch.cat(parts)

    def _inputs(self, name: str, rows: NDArray[np.int64]) -> Tensor:
        if name in self._tokens:
            return self._tokens[name][torch.from_numpy(rows)]
        return super()._inputs(name, rows)


def _pool(
    path: Path,
    make: Callable[[str, Flavour, NDArray[np.int64], int], NDArray[np.generic]],
    name: str,
    per_class: int,
    track: Progress,
) -> NDArray[np.generic]:
    """Return ((36 + 1) · per_class, ...) from the cache, making it first where it is missing."""
    if not path.is_file():
        total = (CLASSES + 1) * per_class
        first = make(name, flavour_named(name), np.arange(1), per_class)
        with atomic_path(path) as part:
            pool = np.lib.format.open_memmap(
                part, mode="w+", dtype=first.dtype, shape=(total, *first.shape[1:])
            )
            for start in track(range(0, total, CHUNK)):
                places = np.arange(start, min(start + CHUNK, total))
                pool[places] = make(name, flavour_named(name), places, per_class)
            pool.flush()
    return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]


def _frames(
    name: str, flavour: Flavour, places: NDArray[np.int64], per_class: int
) -> NDArray[np.generic]:
    """Return (n, 64, 64, 3) bytes."""
    looks = [*LOOKS, None]
    return np.stack(
        [
            draw_frame(_generator(name, "frame", place), looks[place // per_class], flavour)
            for place in places
        ]
    )


def _sounds(
    name: str, flavour: Flavour, places: NDArray[np.int64], per_class: int
) -> NDArray[np.generic]:
    """Return (n, 64, 128) log-mel pictures in half precision, 1e-3 of their spread."""
    voices = [*VOICES, None]
    waves = [
        draw_wave(_generator(name, "wave", place), voices[place // per_class], flavour)
        for place in places
    ]
    return np.asarray(audio_input(np.stack(waves)).half().numpy())


def _depths(
    name: str,
    flavour: Flavour,  # noqa: ARG001
    places: NDArray[np.int64],
    per_class: int,
) -> NDArray[np.generic]:
    """Return (n, 32, 32) distances in millimetres; they are the same in every flavour's room."""
    forms = [*FORMS, None]
    return np.stack(
        [draw_depth(_generator(name, "depth", p), forms[p // per_class]) for p in places]
    )


_INPUTS: dict[str, Callable[[NDArray[np.generic]], Tensor]] = {
    "audio": lambda log_mels: torch.from_numpy(log_mels).float(),
    "video": video_input,  # type: ignore[dict-item]
    "depth": depth_input,  # type: ignore[dict-item]
}


def _generator(name: str, part: str, place: int) -> np.random.Generator:
    return numpy_generator(0, f"sounding_shapes/{name}/pool", part, str(place))
