"""The synthetic background sounds are like their names and unlike each other; their parts."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.seeding import numpy_generator
from dasp.corruptions import soundscapes
from dasp.corruptions.synthesis import band_noise, bursts, drift, ringing, strike

MAKERS = {n: getattr(soundscapes, n) for n in ("traffic", "crowd", "rain", "thunder", "wind")}
RATE = 16000
TAKES = 3


@cache
def takes(name, rate=RATE, seconds=10):
    """A few sounds of one kind, by different seeds."""
    return [
        MAKERS[name](numpy_generator(seed, "listen", name), seconds * rate, rate)
        for seed in range(TAKES)
    ]


def typical(measure, name, *options, rate=RATE):
    return float(np.median([measure(sound, rate, *options) for sound in takes(name, rate)]))


def centroid(sound, rate):
    """The mean frequency of a sound's power, in Hz."""
    power = np.abs(np.fft.rfft(sound * np.hanning(sound.size))) ** 2
    return float(power @ np.fft.rfftfreq(sound.size, 1 / rate) / power.sum())


def colour(sound, rate):
    """(16,) levels in dB of bands evenly spaced in log frequency, relative to the whole."""
    power = np.abs(np.fft.rfft(sound * np.hanning(sound.size))) ** 2
    edges = np.geomspace(30, 0.49 * rate, 17)
    index = np.digitize(np.fft.rfftfreq(sound.size, 1 / rate), edges)
    return 10 * np.log10(np.bincount(index, power, 18)[1:17] / power.sum() + 1e-9)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("thunder", 60, 250),
        ("wind", 100, 450),
        ("traffic", 200, 600),
        ("crowd", 500, 1200),
        ("rain", 2500, 5000),
    ],
)
def test_each_has_its_pitch(name, low, high):
    assert low < typical(centroid, name) < high


def test_no_two_kinds_have_the_same_colour():
    def distance(one, other):
        return float(np.sqrt(np.mean((colour(one, RATE) - colour(other, RATE)) ** 2)))

    within = [distance(*takes(name)[:2]) for name in MAKERS]
    across = [distance(takes(one)[0], takes(other)[1]) for one, other in combinations(MAKERS, 2)]
    assert max(within) < 3.5 < min(across)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("rate", [8000, 44100])
def test_other_rates_keep_the_character(name, rate):
    usual = typical(centroid, name)
    assert 0.35 * usual < typical(centroid, name, rate=rate) < 2.5 * usual


def test_band_noise_follows_its_curve_at_rms_one():
    noise = band_noise(numpy_generator(0, "band"), 160000, 16000, 500, 1000, 4)
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(1, rel=0.02)
    power = np.abs(np.fft.rfft(noise)) ** 2
    hertz = np.fft.rfftfreq(noise.size, 1 / 16000)
    levels = [power[(hertz > mid * 0.97) & (hertz < mid * 1.03)].mean() for mid in (125, 700, 4000)]
    curve = [1 / (1 + (500 / mid) ** 4 + (mid / 1000) ** 4) ** 2 for mid in (125, 700, 4000)]
    np.testing.assert_allclose(levels / levels[1], curve / np.array(curve[1]), rtol=0.25)


def test_drift_has_variance_one_and_keeps_its_pace():
    curve = np.concatenate(
        [drift(numpy_generator(seed, "drift"), 20000, 1000, 2.0) for seed in range(20)]
    )
    assert curve.std() == pytest.approx(1, abs=0.2)
    power = np.abs(np.fft.rfft(curve - curve.mean())) ** 2
    hertz = np.fft.rfftfreq(curve.size, 1e-3)
    assert power[hertz > 8].sum() < 0.02 * power.sum()


@given(st.integers(2, 3000), st.integers(1, 700), st.integers(0, 40), st.integers(0, 2**31 - 1))
def test_strike_is_a_sum_of_convolutions(samples, taps, count, seed):
    generator = numpy_generator(seed, "strike")
    places = generator.integers(0, samples - 1, count)
    strengths = generator.standard_normal(count)
    kinds = generator.integers(2, size=count)
    responses = generator.standard_normal((2, taps))
    want = np.zeros(samples + taps)
    for place, strength, kind in zip(places, strengths, kinds, strict=True):
        want[place : place + taps] += strength * responses[kind]
    got = strike(samples, places.astype(float), strengths, kinds, responses)
    np.testing.assert_allclose(got, want[:samples], atol=1e-9)


def test_strike_places_impulses_between_samples_and_leaves_out_those_outside():
    places, strengths = np.array([3.25, -1.0, 9.5]), np.ones(3)
    got = strike(10, places, strengths, np.zeros(3, np.intp), np.ones((1, 1)))
    np.testing.assert_allclose(got, [0, 0, 0, 0.75, 0.25, 0, 0, 0, 0, 0], atol=1e-12)


def test_ringing_leaves_out_what_the_rate_cannot_hold():
    low, high = np.array([1000.0]), np.array([1000.0, 5000.0])
    width, gain = np.array([100.0, 100.0]), np.ones(2)
    alone = ringing(8000, low, width[:1], gain[:1], 64)
    np.testing.assert_array_equal(ringing(8000, high, width, gain, 64), alone)
    assert abs(alone.sum()) < 1e-12


def test_bursts_jump_and_decay():
    curve = bursts(np.array([0.5]), np.array([2.0]), 0.1, 16000, 16000)
    assert np.abs(curve[:7900]).max() < 1e-9
    assert 1.0 < curve[8000:].max() <= 2.0
    assert curve[8000 + 3200] == pytest.approx(2 * np.exp(-2), rel=0.1)
