"""Frame corruptions of a whole clip: what is drawn once per clip, and what in every frame.

The lens, the weather and the codec stay the same within a second, so blur, fog, frost, warps and
the rest draw the same for every frame. Sensor noise is new in every frame, and so are snowflakes,
which fall in one direction throughout a clip.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import InputError
from dasp.core.seeding import numpy_generator
from dasp.corruptions.base import corrupt_frame, registry

Clip = NDArray[np.uint8]  # (frames, H, W, 3)


class _Falling:
    """A generator whose flakes are new in each frame, and whose direction is that of the clip."""

    def __init__(self, of_frame: np.random.Generator, of_clip: np.random.Generator) -> None:
        self.standard_normal, self.uniform = of_frame.standard_normal, of_clip.uniform


def corrupt_clip(
    clip: Clip,
    name: str,
    severity: int,
    seed: int = 0,
    sample_id: str = "",
    frost_dir: str | Path | None = None,
) -> Clip:
    """Corrupt the frames of a clip: (frames, H, W, 3) uint8 in and out; severity 0 is a copy.

    The result depends only on (seed, name, severity, sample_id) and the frames.
    """
    if not isinstance(clip, np.ndarray) or clip.ndim != 4 or not len(clip):
        raise InputError("a clip must be a non-empty (frames, H, W, 3) uint8 array.")
    entry = registry("video")[name]
    ids = [sample_id] * len(clip)
    if entry.family == "noise" or name == "snow":
        ids = [f"{sample_id}/{number}" for number in range(len(clip))]
    settings = (name, severity, seed)
    if name == "snow" and severity:
        corrupt_frame(clip[0], *settings)  # refuses other severities and arrays
        purpose = f"video/{name}/{severity}"
        draws: list[Any] = [
            _Falling(numpy_generator(seed, purpose, own), numpy_generator(seed, purpose, sample_id))
            for own in ids
        ]
        snowy = (entry.apply(f, severity, draw) for f, draw in zip(clip, draws, strict=True))
        return np.stack(list(snowy))
    pairs = zip(clip, ids, strict=True)
    return np.stack([corrupt_frame(frame, *settings, own, frost_dir) for frame, own in pairs])
