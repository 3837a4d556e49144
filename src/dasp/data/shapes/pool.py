"""Training material: many frames and many sounds of each class, paired anew each epoch."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.files import atomic_path
from dasp.core.seeding import numpy_generator
from dasp.data.shapes.classes import CLASSES, LOOKS, VOICES, Flavour, flavour_named
from dasp.data.shapes.dataset import audio_input, draw_content, video_input
from dasp.data.shapes.room import draw_wave
from dasp.data.shapes.scene import draw_frame

VERSION = 1  # of the generator; a cache of another version is not read
CHUNK = 64

Progress = Callable[[Iterable[int]], Iterable[int]]


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
        folder = Path(cache) / f"sounding_shapes_v{VERSION}" / f"{flavour}_{per_class}"
        self._frames = _pool(folder / "frames.npy", _frames, flavour, per_class, track)
        self._sounds = _pool(folder / "sounds.npy", _sounds, flavour, per_class, track)
        self.set_epoch(0)

    def __len__(self) -> int:
        return self.size

    def set_epoch(self, epoch: int) -> None:
        """Pair the pools anew."""
        generator = numpy_generator(self.seed, f"pairs/{self.flavour}", str(epoch))
        labels = np.arange(self.size) % CLASSES
        contents = [draw_content(generator, int(label), self._bad) for label in labels]
        self._labels = torch.from_numpy(labels)
        # Class 36 of a pool is "nothing".
        seen = np.array([CLASSES if c.seen is None else c.seen for c in contents])
        heard = np.array([CLASSES if c.heard is None else c.heard for c in contents])
        members = generator.integers(self.per_class, size=(2, self.size))
        self._frame_of = seen * self.per_class + members[0]
        self._sound_of = heard * self.per_class + members[1]

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], int]:
        inputs, labels = self.batch(np.array([index]))
        return {name: value[0] for name, value in inputs.items()}, int(labels[0])

    def batch(self, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the inputs and labels of many samples at once."""
        sounds = torch.from_numpy(self._sounds[self._sound_of[indices]])
        frames = self._frames[self._frame_of[indices]]
        return {"audio": sounds.float(), "video": video_input(frames)}, self._labels[indices]


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


def _generator(name: str, part: str, place: int) -> np.random.Generator:
    return numpy_generator(0, f"sounding_shapes/{name}/pool", part, str(place))
