import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.core.errors import OptionError
from dasp.core.seeding import numpy_generator
from dasp.data.shapes import (
    CLASSES,
    NAMES,
    SENSORS,
    SoundingShapes,
    audio_input,
    depth_input,
    video_input,
)
from dasp.data.shapes.classes import FLAVOURS, KINDS, Flavour, flavour_named
from dasp.data.shapes.scene import FARTHEST
from dasp.data.shapes.sounds import EVENT_RMS, GAIN, RATE, draw_wave, play


@settings(max_examples=15)
@given(
    index=st.integers(0, 10**5),
    seed=st.integers(0, 50),
    split=st.sampled_from(["train", "validation", "test"]),
    flavour=st.sampled_from(["balanced", "sound", "balanced_easy"]),
)
def test_a_sample_depends_on_seed_split_flavour_and_number_alone(index, seed, split, flavour):
    first = SoundingShapes(split, 10**5 + 1, flavour, seed)
    other = SoundingShapes(split, index + 1, flavour, seed)
    first.frame(0), first.wave(0), first.depth(0)  # what was asked before must not matter
    np.testing.assert_array_equal(first.frame(index), other.frame(index))
    np.testing.assert_array_equal(first.wave(index), other.wave(index))
    depth = first.depth(index)
    np.testing.assert_array_equal(depth, other.depth(index))
    assert first.content(index) == other.content(index)
    assert (depth.shape, depth.dtype) == ((32, 32), np.uint16)
    assert depth.max() <= FARTHEST
    assert 0 < (depth == 0).mean() < 0.4  # at edges some pixels are always lost


@pytest.mark.parametrize("change", [{"seed": 1}, {"split": "validation"}, {"flavour": "sound"}])
def test_another_seed_split_or_flavour_is_another_sample(change):
    same = {"split": "test", "size": 40, "flavour": "balanced", "seed": 0}
    one, two = SoundingShapes(**same), SoundingShapes(**(same | change))
    assert [one.label(i) for i in range(40)] != [two.label(i) for i in range(40)]
    assert not np.array_equal(one.frame(0), two.frame(0))
    assert not np.array_equal(one.wave(0), two.wave(0))
    assert one.sample_id(0) != two.sample_id(0)


def test_each_36_samples_hold_each_class_once():
    shapes = SoundingShapes("train", 108)
    labels = [shapes.label(i) for i in range(108)]
    for start in range(0, 108, 36):
        assert sorted(labels[start : start + 36]) == list(range(CLASSES))
    assert labels[:36] != labels[36:72]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_shapes_types_and_ranges(flavour):
    shapes = SoundingShapes("test", 12, flavour)
    for index in range(12):
        frame, wave = shapes.frame(index), shapes.wave(index)
        assert (frame.shape, frame.dtype) == ((64, 64, 3), np.uint8)
        assert (wave.shape, wave.dtype) == ((20480,), np.float32)
        assert np.abs(wave).max() <= 1
        assert wave.std() > 0.01
        assert frame.std() > 5
    inputs, label, name = shapes[3]
    assert (inputs["audio"].shape, inputs["audio"].dtype) == ((64, 128), torch.float32)
    assert (inputs["video"].shape, inputs["video"].dtype) == ((3, 64, 64), torch.float32)
    assert (label, name) == (shapes.label(3), shapes.sample_id(3))


def test_a_fifth_of_the_samples_has_one_bad_modality():
    shapes = SoundingShapes("test", 4000)
    contents = [shapes.content(i) for i in range(4000)]
    assert all(c.label in (c.seen, c.heard) for c in contents)
    for classes in ([c.seen for c in contents], [c.heard for c in contents]):
        absent = sum(found is None for found in classes)
        bad = sum(found != c.label for found, c in zip(classes, contents, strict=True))
        for count in (absent, bad - absent):  # the others are dubbed
            assert count == pytest.approx(200, abs=55)  # four standard deviations


def test_the_easier_set_has_nothing_bad_and_a_quiet_room():
    shapes = SoundingShapes("train", 200, "balanced_easy")
    assert all(shapes.content(i) == (shapes.label(i),) * 3 for i in range(200))
    assert all(shapes.ranged(i) == shapes.label(i) for i in range(200))
    assert flavour_named("sound_easy").snr == (10, 28)


def test_classes_differ_in_look_and_in_sound():
    assert len(KINDS) == len(set(NAMES)) == CLASSES
    assert len({(kind.outline, kind.texture) for kind in KINDS}) == CLASSES
    assert len({(kind.outline, kind.relief) for kind in KINDS}) == CLASSES
    assert len({(kind.timbre, kind.pattern) for kind in KINDS}) == CLASSES
    assert len({(kind.outline, kind.hue) for kind in KINDS}) == len({k.hue for k in KINDS}) == 8


class Darken:
    modality = "video"

    def __call__(self, image, sample_id):
        return image // 2


def test_damage_touches_its_modality_alone():
    clean, dark = SoundingShapes("test", 2), SoundingShapes("test", 2, damage=Darken())
    np.testing.assert_array_equal(dark.frame(1), clean.frame(1) // 2)
    np.testing.assert_array_equal(dark.wave(1), clean.wave(1))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"split": "tests"}, "split must be one of"),
        ({"size": 0}, "size must be at least 1"),
        ({"flavour": "sounds"}, "did you mean 'sound'"),
        ({"modalities": ("touch",)}, "modalities must be some of"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(OptionError, match=message):
        SoundingShapes(**wrong)
    with pytest.raises(IndexError):
        SoundingShapes("test", 5)[5]


def test_inputs_of_a_batch_are_those_of_its_samples():
    shapes = SoundingShapes("test", 3, modalities=SENSORS)
    batch = {
        "audio": audio_input(np.stack([shapes.wave(i) for i in range(3)])),
        "video": video_input(np.stack([shapes.frame(i) for i in range(3)])),
        "depth": depth_input(np.stack([shapes.depth(i) for i in range(3)])),
    }
    for index in range(3):
        for name, value in shapes[index].inputs.items():
            torch.testing.assert_close(batch[name][index], value)
    assert set(SoundingShapes("test", 1, modalities=("audio",))[0].inputs) == {"audio"}


def test_two_of_three_sensors_always_agree():
    shapes = SoundingShapes("test", 4000)
    bad = {"absent": 0, "of another class": 0}
    for index in range(4000):
        label, seen, heard = shapes.content(index)
        found = (seen, heard, shapes.ranged(index))
        assert sum(value == label for value in found) >= 2
        if found[2] != label:
            bad["absent" if found[2] is None else "of another class"] += 1
    for count in bad.values():
        assert count == pytest.approx(200, abs=55)  # four standard deviations


def test_what_a_model_sees_of_a_slanted_wall():
    rows, columns = np.mgrid[:32, :32]
    wall = (1000 + 15 * columns - 30 * rows).astype(np.uint16)
    wall[10, 10] = 0
    near, across, down = depth_input(wall)
    assert across[5, 5] == pytest.approx(1)
    assert down[5, 5] == pytest.approx(-2)
    assert near[5, 5] > near[5, 25]
    for slope in (across, down):
        assert (slope[[0, -1]][:, [0, -1]] == 0).all()
    assert across[10, 9] == across[10, 11] == down[9, 10] == down[11, 10] == 0
    assert near[10, 10] == near.min()
    assert torch.isfinite(depth_input(np.arange(32 * 32, dtype=np.uint16).reshape(32, 32))).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.timbre} {kind.pattern}")
def test_an_event_has_its_length_and_level(kind):
    event = play(numpy_generator(0, "event"), kind)
    assert 0.45 * RATE <= event.size <= 0.9 * RATE
    assert np.sqrt(np.mean(event**2)) == pytest.approx(1, abs=1e-3)
    assert abs(event[0]) < 1e-3


@pytest.mark.parametrize(("snr", "quiet"), [(-8.0, False), (60.0, True)])
def test_the_room_is_as_loud_as_its_ratio_says(snr, quiet):
    fixed = Flavour((14, 23), (1, 1), (0, 0), (snr, snr), 0)
    room = draw_wave(numpy_generator(0, "room"), None, fixed)
    level = 20 * np.log10(np.sqrt(np.mean(room**2)) / EVENT_RMS)
    assert level == pytest.approx(-snr, abs=GAIN + 0.1)
    assert bool(room.std() < 0.01) is quiet
