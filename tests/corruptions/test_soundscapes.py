"""Do the synthetic surroundings sound like what they are called, and unlike each other?"""

from functools import cache
from itertools import combinations

import numpy as np
import pytest

from dasp.core.seeding import numpy_generator
from dasp.corruptions import babble, soundscapes

MAKERS = {
    "traffic": soundscapes.traffic,
    "crowd": babble.crowd,
    "rain": soundscapes.rain,
    "thunder": soundscapes.thunder,
    "wind": soundscapes.wind,
}
RATE = 16000
TAKES = 4


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


def kurtosis(sound, rate):
    """3 for Gaussian noise; more where a few moments hold much of the energy."""
    centred = sound - sound.mean()
    return float(np.mean(centred**4) / np.mean(centred**2) ** 2)


def envelope(sound, step):
    whole = sound[: sound.size // step * step]
    return np.sqrt(np.mean(whole.reshape(-1, step) ** 2, axis=1))


def modulation(sound, rate, low, high):
    """The part of the envelope's movement (0.1 to 30 Hz) that lies between `low` and `high` Hz."""
    level = envelope(sound, rate // 100)
    power = np.abs(np.fft.rfft((level - level.mean()) * np.hanning(level.size))) ** 2
    hertz = np.fft.rfftfreq(level.size, 0.01)
    total = power[(hertz >= 0.1) & (hertz < 30)].sum()
    return float(power[(hertz >= low) & (hertz < high)].sum() / total)


def patter(sound, rate):
    """The kurtosis left when changes of loudness slower than 50 ms are divided out."""
    step = rate // 20
    level = np.repeat(envelope(sound, step), step)
    return kurtosis(sound[: level.size] / level, rate)


def tonality(sound, rate):
    """How far, in dB, lines between 50 and 1500 Hz stand out of their surroundings."""
    size = rate // 2
    frames = sound[: sound.size // size * size].reshape(-1, size) * np.hanning(size)
    lines = (np.abs(np.fft.rfft(frames)) ** 2)[:, 25:750].reshape(len(frames), -1, 25)
    return float(np.mean(10 * np.log10(lines.max(axis=2) / np.median(lines, axis=2))))


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


def test_a_crowd_moves_at_the_rate_of_syllables():
    shares = {name: typical(modulation, name, 2, 8) for name in MAKERS}
    assert shares.pop("crowd") > 0.4
    assert max(shares.values()) < 0.25


def test_a_crowd_has_voices():
    """Vocal cords make lines; throats make hills near 500 Hz; nothing sounds below the cords."""
    assert typical(tonality, "crowd") > 7.7
    levels = np.mean([colour(sound, RATE) for sound in takes("crowd")], axis=0)
    assert levels[0] < levels[7] - 15  # 30 to 42 Hz against 340 to 480 Hz


def test_traffic_hums_and_passes_by():
    assert typical(tonality, "traffic") > 7.7  # engines; noise alone is near 6.9
    assert max(typical(tonality, name) for name in ("wind", "rain", "thunder")) < 7.4
    assert typical(modulation, "traffic", 0.1, 1) > 0.6


def test_rain_patters():
    values = {name: typical(patter, name) for name in MAKERS}
    assert values.pop("rain") > 3.8
    assert max(values.values()) < 3.4


def test_thunder_strikes_and_rolls_away():
    assert typical(kurtosis, "thunder") > 8
    for sound in takes("thunder"):
        level = envelope(sound, RATE // 100)
        peak = int(level.argmax())
        rise = level[peak] / max(level[max(0, peak - 100)], 1e-9)
        assert level.max() > 8 * np.median(level)
        assert rise > 1.5
    assert typical(modulation, "thunder", 0.1, 1) > 0.6


def test_wind_comes_in_slow_gusts():
    assert typical(modulation, "wind", 0.1, 1) > 0.5
    swing = [np.ptp(np.log10(envelope(sound, RATE // 2))) * 20 for sound in takes("wind")]
    assert np.median(swing) > 6  # dB


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


@pytest.mark.parametrize("name", MAKERS)
def test_no_take_drifts_from_zero(name):
    for sound in takes(name):
        assert abs(sound.mean()) < 0.02 * sound.std()
