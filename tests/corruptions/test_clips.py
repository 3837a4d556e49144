"""Corruptions of a sequence of frames: what stays the same in a clip, and what does not."""

import numpy as np
import pytest

from dasp.core.errors import InputError, OptionError
from dasp.corruptions import corrupt_clip, corrupt_frame
from dasp.streams.protocols import PUBLISHED

FLICKER = {"gaussian_noise", "shot_noise", "impulse_noise", "snow"}


def still(frames=4, side=48):
    """Return a clip in which nothing moves."""
    rows, columns = np.mgrid[:side, :side]
    image = np.stack([rows * 5, columns * 5, (rows * columns) % 256], axis=-1).astype(np.uint8)
    return np.repeat(image[None], frames, axis=0)


@pytest.mark.parametrize("name", PUBLISHED["video"])
def test_only_noise_and_flakes_change_from_frame_to_frame(name):
    clip = still()
    before = clip.copy()
    made = corrupt_clip(clip, name, 4, 1, "a")
    assert (made.shape, made.dtype) == (clip.shape, np.uint8)
    assert np.array_equal(clip, before)
    assert len({frame.tobytes() for frame in made}) == (len(clip) if name in FLICKER else 1)
    assert np.array_equal(made, corrupt_clip(clip, name, 4, 1, "a"))
    if name not in FLICKER:
        assert np.array_equal(made[2], corrupt_frame(clip[0], name, 4, 1, "a"))
    assert np.array_equal(corrupt_clip(clip, name, 0), clip)


def test_snow_falls_in_one_direction():
    black = np.zeros((12, 96, 96, 3), np.uint8)

    def directions(clip):
        """Return the angle along which each frame is smoothest."""
        found = []
        for frame in clip[..., 0].astype(float):
            down, right = np.gradient(frame)
            tensor = [[(down * down).sum(), (down * right).sum()], [0, (right * right).sum()]]
            _, vectors = np.linalg.eigh(np.array(tensor), UPLO="U")
            found.append(np.rad2deg(np.arctan2(*vectors[:, 0])) % 180)
        return np.array(found)

    for sample in "abc":
        angles = directions(corrupt_clip(black, "snow", 5, sample_id=sample))
        apart = np.abs(angles - np.median(angles))
        assert np.minimum(apart, 180 - apart).max() < 15


def test_other_clips_and_severities_are_refused():
    with pytest.raises(InputError, match="non-empty"):
        corrupt_clip(still()[0], "fog", 1)
    for name in ("snow", "fog", "shot_noise"):
        with pytest.raises(OptionError, match="severity must be 0"):
            corrupt_clip(still(), name, 6)
        with pytest.raises(InputError, match="uint8"):
            corrupt_clip(still().astype(np.float32), name, 3)
