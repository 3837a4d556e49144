import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.core.errors import OptionError
from dasp.data.shapes import CLASSES, NAMES, SoundingShapes, audio_input, video_input
from dasp.data.shapes.classes import FLAVOURS, LOOKS, OUTLINES, VOICES, flavour_named


@settings(max_examples=15, deadline=None)
@given(
    index=st.integers(0, 10**5),
    seed=st.integers(0, 50),
    split=st.sampled_from(["train", "validation", "test"]),
    flavour=st.sampled_from(["balanced", "sound", "balanced_easy"]),
)
def test_a_sample_depends_on_seed_split_flavour_and_number_alone(index, seed, split, flavour):
    first = SoundingShapes(split, 10**5 + 1, flavour, seed)
    other = SoundingShapes(split, index + 1, flavour, seed)
    first.frame(0), first.wave(0)  # what was asked before must not matter
    np.testing.assert_array_equal(first.frame(index), other.frame(index))
    np.testing.assert_array_equal(first.wave(index), other.wave(index))
    assert first.content(index) == other.content(index)


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
    kinds = {
        "frame absent": sum(c.seen is None for c in contents),
        "sound absent": sum(c.heard is None for c in contents),
        "frame dubbed": sum(c.seen not in (None, c.label) for c in contents),
        "sound dubbed": sum(c.heard not in (None, c.label) for c in contents),
    }
    for count in kinds.values():
        assert count == pytest.approx(200, abs=55)  # four standard deviations


def test_the_easier_set_has_nothing_bad_and_a_quiet_room():
    shapes = SoundingShapes("train", 200, "balanced_easy")
    assert all(shapes.content(i) == (shapes.label(i),) * 3 for i in range(200))
    assert flavour_named("sound_easy").snr == (10, 28)


def test_classes_differ_in_look_and_in_sound():
    assert len(LOOKS) == len(VOICES) == CLASSES
    assert len({(look.outline, look.texture) for look in LOOKS}) == CLASSES
    assert len({(look.outline, look.hue) for look in LOOKS}) == len(OUTLINES) == 8
    assert len({look.hue for look in LOOKS}) == 8
    assert len(set(VOICES)) == len(set(NAMES)) == CLASSES


def test_inputs_of_a_batch_are_those_of_its_samples():
    shapes = SoundingShapes("test", 3)
    waves = np.stack([shapes.wave(i) for i in range(3)])
    frames = np.stack([shapes.frame(i) for i in range(3)])
    for index in range(3):
        torch.testing.assert_close(audio_input(waves)[index], shapes[index].inputs["audio"])
        torch.testing.assert_close(video_input(frames)[index], shapes[index].inputs["video"])


class Darken:
    modality = "video"

    def frame(self, image, sample_id):
        return image // 2

    def sound(self, wave, sample_id):
        raise AssertionError("not this modality")


def test_damage_touches_its_modality_alone():
    clean, dark = SoundingShapes("test", 2), SoundingShapes("test", 2, damage=Darken())
    np.testing.assert_array_equal(dark.frame(1), clean.frame(1) // 2)
    np.testing.assert_array_equal(dark.wave(1), clean.wave(1))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"split": "tests"}, "split is one of"),
        ({"size": 0}, "at least one sample"),
        ({"flavour": "sounds"}, "did you mean 'sound'"),
        ({"modalities": ("touch",)}, "modalities are some of"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(OptionError, match=message):
        SoundingShapes(**wrong)


def test_numbers_outside_the_set_are_refused():
    with pytest.raises(IndexError):
        SoundingShapes("test", 5)[5]


def test_modalities_can_be_left_out():
    assert set(SoundingShapes("test", 1, modalities=("audio",))[0].inputs) == {"audio"}
