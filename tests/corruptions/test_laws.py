"""Laws that every corruption keeps, and the bytes of each."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.core.errors import InputError, OptionError
from dasp.core.seeding import numpy_generator
from dasp.corruptions import (
    Corruption,
    corrupt_depth,
    corrupt_frame,
    corrupt_sound,
    corruption,
    names,
)
from dasp.corruptions.base import registry
from dasp.streams.protocols import PUBLISHED

CHECKSUMS = json.loads((Path(__file__).parent / "checksums.json").read_text())
APPLY = {"video": corrupt_frame, "audio": corrupt_sound, "depth": corrupt_depth}
EVERY = [(modality, name) for modality, own in PUBLISHED.items() for name in own]
FRAMES = PUBLISHED["video"]
WITHOUT_CHANCE = {
    ("video", "defocus_blur"), ("video", "zoom_blur"), ("video", "brightness"),
    ("video", "contrast"), ("video", "pixelate"), ("video", "jpeg_compression"),
    ("depth", "multipath"), ("depth", "quantisation"),
}  # fmt: skip
every = pytest.mark.parametrize(("modality", "name"), EVERY)
every_frame = pytest.mark.parametrize("name", FRAMES)


def picture(height=48, width=64):
    """Return (H, W, 3) bytes with slopes, edges and detail, the same on every machine."""
    y, x = np.mgrid[:height, :width]
    planes = (3 * x + y, (x // 8 + y // 6) % 2 * 160 + 40, (x * x + 7 * y * y) // 16)
    return (np.stack(planes, axis=-1) % 256).astype(np.uint8)


def clip(seconds=2.0, level=0.02):
    wave = level * numpy_generator(0, "clip").standard_normal(int(seconds * 16000))
    return wave.astype(np.float32)


def scene(side=32):
    """A wall, a slanted block before it, and a pixel without return."""
    rows, columns = np.mgrid[:side, :side]
    depth = (2000 + 7 * columns).astype(np.uint16)
    inside = slice(side // 4, 3 * side // 4)
    depth[inside, inside] = (900 + 6 * rows)[inside, inside]
    depth[1, 1] = 0
    return depth


SAMPLES = {"video": picture, "audio": lambda: clip(0.3), "depth": scene}


def test_the_published_ones_are_registered_in_their_order():
    for modality, own in PUBLISHED.items():
        assert tuple(names(modality)) == own
        entries = [registry(modality)[name] for name in own]
        assert {entry.family for entry in entries} <= {"noise", "blur", "weather", "digital"}
        with_folder = [entry.name for entry in entries if entry.takes_folder]
        assert with_folder == {"video": ["frost"], "audio": list(own[1:]), "depth": []}[modality]


@pytest.mark.same_bytes
@every
def test_the_bytes_of_every_severity_are_the_committed_ones(modality, name):
    """Whoever has the same digits has the same data."""
    sample, key = {"video": (picture(), "clip"), "audio": (clip(), "clip")}.get(
        modality, (scene(), "map")
    )
    made = [APPLY[modality](sample, name, severity, 0, key) for severity in range(1, 6)]
    if modality == "audio":
        made = [(wave * 32768).astype("<i2") for wave in made]
    digests = [hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16] for a in made]
    assert digests == CHECKSUMS[modality][name]


@every
def test_results_depend_on_seed_and_sample_and_not_on_the_order(modality, name):
    apply, sample, ids = APPLY[modality], SAMPLES[modality](), ["a", "b", "c"]
    forward = {key: apply(sample, name, 3, 7, key).tobytes() for key in ids}
    np.random.default_rng(1).standard_normal(5)
    assert {key: apply(sample, name, 3, 7, key).tobytes() for key in ids[::-1]} == forward
    chance = (modality, name) not in WITHOUT_CHANCE
    assert len(set(forward.values())) == (3 if chance else 1)
    assert (apply(sample, name, 3, 8, "a").tobytes() != forward["a"]) == chance


@every
def test_severity_zero_is_a_copy_and_the_input_is_left_alone(modality, name):
    sample = SAMPLES[modality]()
    sample.setflags(write=False)
    before = sample.copy()
    same = APPLY[modality](sample, name, 0)
    assert np.array_equal(same, before)
    assert not np.shares_memory(same, sample)
    for severity in range(1, 6):
        assert not np.array_equal(APPLY[modality](sample, name, severity), before)
    assert np.array_equal(sample, before)


@pytest.mark.parametrize(("modality", "name"), [pair for pair in EVERY if pair[0] != "video"])
def test_each_severity_is_worse_than_the_last(modality, name):
    levels = [np.clip(clip(level=level), -1, 1) for level in (0.001, 0.1, 0.9)]
    for sample in [scene(64)] if modality == "depth" else levels:
        errors = [
            np.mean(
                [
                    np.abs(APPLY[modality](sample, name, severity, seed) - sample.astype(float))
                    for seed in range(3)
                ]
            )
            for severity in range(6)
        ]
        assert errors[0] == 0
        assert np.all(np.diff(errors) > 0)


@every_frame
def test_frames_change_at_any_size(name):
    for size in ((224, 224), (32, 48), (17, 16), (16, 400), (400, 16)):
        image = picture(*size)
        assert all((corrupt_frame(image, name, s) != image).any() for s in (1, 3, 5)), size
    for level in (0, 255):
        flat = np.full((24, 31, 3), level, np.uint8)
        assert corrupt_frame(flat, name, 5).shape == flat.shape


@every_frame
@settings(max_examples=8)
@given(
    height=st.integers(16, 90), width=st.integers(16, 90), severity=st.integers(1, 5),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_frames_of_any_size_come_out_as_they_went_in(name, height, width, severity, seed):
    image = picture(height, width)
    result = corrupt_frame(image, name, severity, seed)
    assert (result.shape, result.dtype) == (image.shape, np.uint8)
    assert result.flags.writeable
    assert not np.shares_memory(result, image)
    assert np.array_equal(image, picture(height, width))
    view = image[::-1, ::-1][:, 3:]  # is read as it is seen
    copied = corrupt_frame(view.copy(), name, severity, seed)
    assert np.array_equal(corrupt_frame(view, name, severity, seed), copied)


@given(
    name=st.sampled_from(PUBLISHED["audio"]),
    samples=st.integers(1, 3000),
    rate=st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000, 192000]),
    severity=st.integers(1, 5),
    level=st.floats(0, 2),
    seed=st.integers(0, 2**31 - 1),
)
def test_sounds_of_any_length_and_rate_stay_in_range(name, samples, rate, severity, level, seed):
    wave = (level * numpy_generator(seed, "any").uniform(-1, 1, samples)).astype(np.float32)
    got = corrupt_sound(wave, name, severity, seed, "x", rate)
    assert (got.shape, got.dtype) == (wave.shape, np.float32)
    assert np.all((got >= -1) & (got < 1))
    assert np.array_equal(got * 32768, np.rint(got * 32768))  # on the 16-bit grid


@given(
    name=st.sampled_from(PUBLISHED["depth"]),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    severity=st.integers(1, 5),
    highest=st.sampled_from([1, 300, 4000, 65535]),
    seed=st.integers(0, 2**31 - 1),
)
def test_depth_maps_stay_maps_and_what_was_lost_stays_lost(name, shape, severity, highest, seed):
    depth = numpy_generator(seed, "any").integers(0, highest, shape, np.uint16, endpoint=True)
    got = corrupt_depth(depth, name, severity, seed, "x")
    assert (got.shape, got.dtype) == (depth.shape, np.uint16)
    assert np.all(got[depth == 0] == 0)


@pytest.mark.parametrize("name", ["glass_blur", "motion_blur", "zoom_blur", "pixelate", "contrast"])
def test_flat_pictures_stay_flat(name):
    for level in (0, 1, 77, 255):
        flat = np.full((40, 50, 3), level, np.uint8)
        assert np.array_equal(corrupt_frame(flat, name, 5), flat)


@pytest.mark.parametrize("modality", APPLY)
@pytest.mark.parametrize("severity", [6, -1, 2.5, True, "3", None])
def test_other_severities_and_names_are_refused(modality, severity):
    with pytest.raises(OptionError, match="severity must be 0"):
        APPLY[modality](SAMPLES[modality](), PUBLISHED[modality][2], severity)
    with pytest.raises(OptionError, match="did you mean"):
        APPLY[modality](SAMPLES[modality](), PUBLISHED[modality][2][:-1] + "x", 1)


@pytest.mark.parametrize(
    ("modality", "wrong"),
    [
        ("video", picture().astype(np.float32)),
        ("video", picture()[..., 0]),
        ("video", np.zeros((20, 20, 4), np.uint8)),
        ("video", np.zeros((0, 20, 3), np.uint8)),
        ("video", picture().tolist()),
        ("video", None),
        ("audio", np.zeros(0, np.float32)),
        ("audio", np.zeros(9)),
        ("depth", np.zeros((4, 4))),
        ("depth", np.zeros((4, 4, 1), np.uint16)),
        ("depth", np.zeros((0, 4), np.uint16)),
    ],
)
def test_other_arrays_are_refused(modality, wrong):
    with pytest.raises(InputError, match=r"must be an? .*\((H, W|samples)"):
        APPLY[modality](wrong, PUBLISHED[modality][2], 1)


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
        registry("video").pop("test_dead_rows")
