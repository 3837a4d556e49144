"""Corruptions of inertial signals: laws, sizes of the effects, and their bytes."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import InputError, OptionError
from dasp.core.seeding import numpy_generator
from dasp.core.sensors import BODY_UNITS, INERTIAL, SENSORS
from dasp.corruptions import corrupt_inertial, names
from dasp.streams.protocols import PUBLISHED, visits
from dasp.streams.worn import CORRUPTIONS

CHECKSUMS = json.loads((Path(__file__).parent / "inertial_checksums.json").read_text())
WITHOUT_CHANCE = {"clipping", "quantisation", "low_battery"}
every = pytest.mark.parametrize("name", CORRUPTIONS)


def walk(steps=125, triads=5, seed=0):
    """Return a lively signal in m/s²: gravity, a gait and some noise."""
    generator = numpy_generator(seed, "walk")
    time = np.arange(steps)[:, None, None] / 25
    gait = 12 * np.sin(2 * np.pi * (1.8 * time + generator.random((1, triads, 3))))
    rest = generator.standard_normal((1, triads, 3)) * 6 + generator.standard_normal(gait.shape)
    return (np.rint((gait + rest) * 200) / 200).astype(np.float32)


def unit(steps=125):
    """Return the three sensors of a body unit, and those of two others."""
    scale = np.array([1, 0.1, 0.1], np.float32)[:, None]
    return walk(steps, 3) * scale, np.stack([walk(steps, 3, seed) * scale for seed in (1, 2)])


def test_they_are_registered_for_every_sensor_and_enter_no_other_protocol():
    for modality in INERTIAL:
        assert tuple(names(modality)) == CORRUPTIONS
    assert set(PUBLISHED) == {"video", "audio", "depth"}
    assert len(list(visits("interleaved", 5))) == 21
    assert len(list(visits("interleaved/sensors", 5))) == 36
    assert len({visit.name for visit in visits("interleaved/units", 5)}) == 60


@pytest.mark.same_bytes
@every
def test_the_bytes_of_every_severity_are_the_committed_ones(name):
    alone, others = unit()
    digests = []
    for severity in range(1, 6):
        made = [corrupt_inertial(walk(), "accelerometer", name, severity, 0, "walk")]
        made.append(corrupt_inertial(alone, "torso", name, severity, 0, "walk", others))
        content = b"".join(array.tobytes() for array in made)
        digests.append(hashlib.sha256(content).hexdigest()[:16])
    assert digests == CHECKSUMS[name]


@every
@pytest.mark.parametrize("modality", ["gyroscope", "left_leg"])
def test_results_depend_on_seed_sample_and_sensor_alone(name, modality):
    signal, others = unit()
    ids = ["a", "b", "c"]

    def made(seed, key, modality=modality):
        return corrupt_inertial(signal, modality, name, 3, seed, key, others).tobytes()

    forward = {key: made(7, key) for key in ids}
    assert {key: made(7, key) for key in ids[::-1]} == forward
    if name in WITHOUT_CHANCE:
        assert len(set(forward.values())) == 1
    elif name != "unit_swapped":  # few other units to be swapped with
        assert len(set(forward.values())) == 3
        assert made(8, "a") != forward["a"]


@every
def test_severity_zero_is_a_copy_and_the_input_is_left_alone(name):
    signal = walk()
    signal.setflags(write=False)
    same = corrupt_inertial(signal, "accelerometer", name, 0)
    assert np.array_equal(same, signal)
    assert not np.shares_memory(same, signal)
    for severity in range(1, 6):
        assert (corrupt_inertial(signal, "accelerometer", name, severity) != signal).any()


@every
def test_each_severity_is_worse_than_the_last(name):
    signal = walk() + np.arange(125, dtype=np.float32)[:, None, None] / 2  # never the same again
    errors = [
        np.mean(
            [
                np.abs(corrupt_inertial(signal, "accelerometer", name, severity, seed) - signal)
                for seed in range(8)
            ]
        )
        for severity in range(6)
    ]
    assert errors[0] == 0
    assert np.all(np.diff(errors) > 0)


@given(
    name=st.sampled_from(CORRUPTIONS),
    modality=st.sampled_from(INERTIAL),
    steps=st.integers(1, 60),
    triads=st.integers(1, 6),
    severity=st.integers(1, 5),
    seed=st.integers(0, 2**31 - 1),
)
def test_signals_of_any_size_come_out_as_they_went_in(
    name, modality, steps, triads, severity, seed
):
    signal = walk(steps, 3 if modality in BODY_UNITS else triads, seed)
    got = corrupt_inertial(signal, modality, name, severity, seed, "x")
    assert (got.shape, got.dtype) == (signal.shape, np.float32)
    assert np.isfinite(got).all()
    assert np.array_equal(got * 4096, np.rint(got * 4096))  # on the grid


def test_sizes_are_in_the_unit_of_each_sensor():
    still = np.zeros((2000, 3, 3), np.float32)
    spread = corrupt_inertial(still, "torso", "noise", 3).std(axis=(0, 2))
    assert spread == pytest.approx([0.2 * size for size in SENSORS.values()], rel=0.05)
    offset = np.abs(corrupt_inertial(still, "torso", "bias", 5)[0]).mean(axis=1)
    assert offset == pytest.approx([0.8 * size for size in SENSORS.values()], rel=1e-3)


def test_a_turned_unit_keeps_lengths_and_turns_as_a_whole():
    signal, _ = unit()
    turned = corrupt_inertial(signal, "torso", "rotation", 4)
    lengths = [np.linalg.norm(array, axis=2) for array in (signal, turned)]
    np.testing.assert_allclose(*lengths, atol=2e-3)
    angle = np.rad2deg(
        np.arccos(np.clip((np.sum(signal * turned, axis=2) / lengths[0] ** 2), -1, 1))
    )
    assert angle.max() < 71
    same = np.repeat(signal[:, :1], 5, axis=1)  # five units that measure the same
    apart = corrupt_inertial(same, "accelerometer", "rotation", 4)
    assert len({apart[:, k].tobytes() for k in range(5)}) == 5


def test_dropout_repeats_what_arrived_and_loses_its_share():
    signal = np.arange(1, 1001, dtype=np.float32)[:, None, None] * np.ones((1, 3, 3), np.float32)
    got = corrupt_inertial(signal, "torso", "dropout", 4)
    assert (got != signal).any(axis=(1, 2)).mean() == pytest.approx(0.5, abs=0.02)
    assert np.all(got <= signal)
    assert np.all(np.ptp(got.reshape(1000, -1), axis=1) == 0)  # a unit loses its sensors together
    five = corrupt_inertial(np.repeat(signal[:, :1], 5, axis=1), "gyroscope", "dropout", 4)
    assert np.ptp(five[..., 0], axis=1).max() > 0


def test_a_low_battery_halves_the_rate_and_dead_axes_are_silent():
    signal = walk()
    slow = corrupt_inertial(signal, "accelerometer", "low_battery", 2)
    np.testing.assert_allclose(slow, signal[np.arange(125) // 4 * 4], atol=2**-12)
    for severity, count in enumerate((1, 3, 6, 9, 12), 1):
        dead = corrupt_inertial(signal, "accelerometer", "dead_axis", severity)
        assert (dead == 0).all(axis=0).sum() == count


def test_a_swapped_unit_shows_what_another_measures():
    signal, others = unit()
    got = corrupt_inertial(signal, "torso", "unit_swapped", 5, others=others)
    assert min(np.abs(got - other).max() for other in others) <= 2**-12
    half = corrupt_inertial(signal, "torso", "unit_swapped", 3, others=others)
    np.testing.assert_allclose(half[:50], signal[:50], atol=2**-12)
    five = walk()
    swapped = corrupt_inertial(five, "accelerometer", "unit_swapped", 5)
    same = [np.abs(swapped[:, k] - five[:, k]).max() <= 2**-12 for k in range(5)]
    assert sum(same) == 3
    one, other = np.flatnonzero(~np.array(same))
    np.testing.assert_allclose(swapped[:, one], five[:, other], atol=2**-12)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((5, 3, 3)), np.zeros((5, 9), np.float32), np.zeros((0, 3, 3), np.float32), None],
)
def test_other_arrays_are_refused(wrong):
    with pytest.raises(InputError, match=r"\(steps, triads, 3\) float32 array, not"):
        corrupt_inertial(wrong, "torso", "noise", 1)


def test_wrong_units_values_names_and_severities_are_refused():
    with pytest.raises(InputError, match="a body unit has 3"):
        corrupt_inertial(walk(), "torso", "noise", 1)
    with pytest.raises(InputError, match="NaN"):
        corrupt_inertial(np.full((5, 3, 3), np.nan, np.float32), "torso", "noise", 1)
    with pytest.raises(OptionError, match="did you mean 'noise'"):
        corrupt_inertial(walk(), "gyroscope", "noises", 1)
    with pytest.raises(OptionError, match="severity must be 0"):
        corrupt_inertial(walk(), "gyroscope", "noise", 6)
