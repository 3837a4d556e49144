import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.data.shapes import SENSORS, SoundingShapes, depth_input
from dasp.data.shapes.classes import FORMS, LOOKS, RELIEFS
from dasp.data.shapes.depth import FARTHEST


@settings(max_examples=15, deadline=None)
@given(index=st.integers(0, 10**5), seed=st.integers(0, 50))
def test_a_map_depends_on_seed_and_number_alone(index, seed):
    first = SoundingShapes("test", 10**5 + 1, seed=seed)
    other = SoundingShapes("test", index + 1, seed=seed, modalities=SENSORS)
    first.depth(0), first.frame(0)  # what was asked before must not matter
    depth = first.depth(index)
    np.testing.assert_array_equal(depth, other.depth(index))
    assert (depth.shape, depth.dtype) == ((32, 32), np.uint16)
    assert depth.max() <= FARTHEST
    assert 0 < (depth == 0).mean() < 0.4  # at edges some light is always lost


def test_frames_sounds_and_contents_are_those_of_two_sensors():
    two, three = SoundingShapes("test", 6), SoundingShapes("test", 6, modalities=SENSORS)
    for index in range(6):
        three.depth(index)
        assert two.content(index) == three.content(index)
        np.testing.assert_array_equal(two.frame(index), three.frame(index))
        np.testing.assert_array_equal(two.wave(index), three.wave(index))


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


def test_nothing_is_bad_in_the_easier_set():
    shapes = SoundingShapes("train", 200, "balanced_easy")
    assert all(shapes.ranged(i) == shapes.label(i) for i in range(200))


def test_each_class_has_a_form_of_its_own_with_the_outline_that_is_seen():
    assert len(set(FORMS)) == len(FORMS) == 36
    assert all(form.outline == look.outline for form, look in zip(FORMS, LOOKS, strict=True))
    for texture in ("plain", "stripes", "checks"):
        reliefs = {f.relief for f, k in zip(FORMS, LOOKS, strict=True) if k.texture == texture}
        assert reliefs == set(RELIEFS)


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


def test_inputs_of_a_batch_are_those_of_its_samples():
    shapes = SoundingShapes("test", 3, modalities=("depth",))
    maps = np.stack([shapes.depth(i) for i in range(3)])
    assert depth_input(maps).shape == (3, 3, 32, 32)
    for index in range(3):
        assert set(shapes[index].inputs) == {"depth"}
        assert torch.equal(depth_input(maps)[index], shapes[index].inputs["depth"])
