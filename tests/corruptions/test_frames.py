"""Laws that every frame corruption keeps, a user's own included."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.core.errors import InputError, OptionError
from dasp.corruptions import Corruption, corrupt_frame, corruption, names
from dasp.corruptions.base import registry

PAPER_ORDER = [
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
]
RANDOM = set(PAPER_ORDER) - {
    "defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression",
}  # fmt: skip
CHECKSUMS = json.loads((Path(__file__).parent / "frame_checksums.json").read_text())

every = pytest.mark.parametrize("name", PAPER_ORDER)


def picture(height: int = 48, width: int = 64) -> np.ndarray:
    """Return (H, W, 3) bytes with slopes, edges and detail, the same on every machine."""
    y, x = np.mgrid[:height, :width]
    planes = (3 * x + y, (x // 8 + y // 6) % 2 * 160 + 40, (x * x + 7 * y * y) // 16)
    return (np.stack(planes, axis=-1) % 256).astype(np.uint8)


def checksum(image: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()[:16]


def test_names_are_in_the_order_of_the_papers():
    assert names("video")[:15] == PAPER_ORDER


def test_families_go_by_name():
    families = {name: registry("video")[name].family for name in PAPER_ORDER}
    assert (
        sorted(families.values())
        == ["blur"] * 4 + ["digital"] * 4 + ["noise"] * 3 + ["weather"] * 4
    )


@pytest.mark.same_bytes
@every
def test_the_bytes_of_every_severity_are_the_committed_ones(name):
    made = [checksum(corrupt_frame(picture(), name, s, 0, "clip")) for s in range(1, 6)]
    assert made == CHECKSUMS[name]


@every
def test_order_and_neighbours_do_not_matter(name):
    ids = ["a", "b", "c"]
    forward = [corrupt_frame(picture(), name, 3, 1, i) for i in ids]
    backward = [corrupt_frame(picture(), name, 3, 1, i) for i in reversed(ids)][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(forward, backward, strict=True))


@every
def test_ids_and_seeds_draw_anew_where_there_is_chance(name):
    first = corrupt_frame(picture(), name, 4, 0, "a")
    for other in (
        corrupt_frame(picture(), name, 4, 0, "b"),
        corrupt_frame(picture(), name, 4, 1, "a"),
    ):
        assert np.array_equal(first, other) == (name not in RANDOM)


@every
def test_every_severity_changes_the_picture(name):
    for size in ((224, 224), (32, 48), (17, 16)):
        image = picture(*size)
        assert all((corrupt_frame(image, name, s) != image).any() for s in range(1, 6)), size


@every
def test_severity_zero_is_a_copy(name):
    image = picture()
    clean = corrupt_frame(image, name, 0)
    assert np.array_equal(clean, image)
    assert clean is not image
    assert not np.shares_memory(clean, image)


@every
@settings(max_examples=8, deadline=None)
@given(
    height=st.integers(16, 90), width=st.integers(16, 90), severity=st.integers(1, 5),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_any_size_goes_in_and_comes_out_and_the_input_is_untouched(
    name, height, width, severity, seed
):
    image = picture(height, width)
    kept = image.copy()
    image.flags.writeable = False
    result = corrupt_frame(image, name, severity, seed)
    assert result.shape == image.shape
    assert result.dtype == np.uint8
    assert result.flags.writeable
    assert not np.shares_memory(result, image)
    assert np.array_equal(image, kept)


@every
@pytest.mark.parametrize("size", [(16, 400), (400, 16), (256, 340)])
def test_long_and_large_pictures(name, size):
    assert corrupt_frame(picture(*size), name, 5).shape == (*size, 3)


@every
@pytest.mark.parametrize("level", [0, 255])
def test_black_and_white_pictures(name, level):
    flat = np.full((24, 31, 3), level, np.uint8)
    assert corrupt_frame(flat, name, 5).shape == flat.shape


@pytest.mark.parametrize("name", ["glass_blur", "motion_blur", "zoom_blur", "pixelate", "contrast"])
def test_flat_pictures_stay_flat(name):
    for level in (0, 1, 77, 255):
        flat = np.full((40, 50, 3), level, np.uint8)
        assert np.array_equal(corrupt_frame(flat, name, 5), flat)


@every
def test_views_are_read_as_they_are_seen(name):
    image = picture(64, 48)
    view = image[::-1, ::-1][5:45, 3:40]
    assert np.array_equal(corrupt_frame(view, name, 2), corrupt_frame(view.copy(), name, 2))


@pytest.mark.parametrize("severity", [6, -1, 2.5, True, "3", None])
def test_other_severities_are_refused(severity):
    with pytest.raises(OptionError, match="severity is 0"):
        corrupt_frame(picture(), "fog", severity)


@pytest.mark.parametrize(
    "wrong",
    [
        picture().astype(np.float32),
        picture()[..., 0],
        np.zeros((20, 20, 4), np.uint8),
        np.zeros((0, 20, 3), np.uint8),
        picture().tolist(),
        None,
    ],
)
def test_other_arrays_are_refused(wrong):
    with pytest.raises(InputError, match=r"\(H, W, 3\) uint8"):
        corrupt_frame(wrong, "fog", 1)


def test_an_unknown_name_suggests_the_right_one():
    with pytest.raises(OptionError, match="did you mean 'fog'"):
        corrupt_frame(picture(), "fgo", 1)


def test_a_users_own_corruption_takes_one_decorator():
    @corruption("video", "test_dead_rows", family="sensor")
    def dead_rows(image, severity, generator):
        broken = image.copy()
        broken[generator.permutation(len(image))[:severity]] = 0
        return broken

    try:
        assert names("video")[-1] == "test_dead_rows"
        assert isinstance(registry("video")["test_dead_rows"], Corruption)
        result = corrupt_frame(picture(), "test_dead_rows", 3, sample_id="a")
        assert (result == 0).all(axis=(1, 2)).sum() == 3
        assert np.array_equal(result, corrupt_frame(picture(), "test_dead_rows", 3, sample_id="a"))
        with pytest.raises(OptionError, match="registered already"):
            corruption("video", "test_dead_rows", family="sensor")(dead_rows)
    finally:
        registry("video")._entries.pop("test_dead_rows")
