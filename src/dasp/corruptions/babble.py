"""A crowd: many voices at once, each a throat rung by its vocal cords, syllable by syllable."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasp.corruptions.synthesis import (
    Array,
    band,
    bursts,
    drift,
    ringing,
    shaped_noise,
    strike,
    to_rms,
)

TALKERS = 14
# The first three resonances of a long throat in Hz: ee, e, a, o, oo, er
VOWELS = np.array(
    [
        [270.0, 2290.0, 3010.0],
        [530.0, 1840.0, 2480.0],
        [730.0, 1090.0, 2440.0],
        [570.0, 840.0, 2410.0],
        [300.0, 870.0, 2240.0],
        [490.0, 1350.0, 1690.0],
    ]
)
THROATS = np.concatenate((VOWELS, 1.17 * VOWELS))  # the long ones, then the short ones
WIDTHS, GAINS = np.array([80.0, 110.0, 160.0]), np.array([1.0, 0.45, 0.22])
MELODY_RATE = 100  # Hz


@dataclass(frozen=True)
class Voice:
    """What one talker does: the pulses of the cords, and where the syllables begin."""

    moments: Array  # (pulses,) in seconds
    strengths: Array  # (pulses,)
    throats: NDArray[np.intp]  # (pulses,) rows of THROATS
    onsets: Array  # (syllables,) in seconds


def crowd(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """Return (samples,) of babble: voices, their consonants, and a murmur behind them."""
    voices = [_talk(generator, samples / sample_rate) for _ in range(TALKERS)]
    taps = int(0.02 * sample_rate)
    answers = np.stack([ringing(sample_rate, throat, WIDTHS, GAINS, taps) for throat in THROATS])
    vowels = strike(
        samples,
        sample_rate * np.concatenate([voice.moments for voice in voices]),
        np.concatenate([voice.strengths for voice in voices]),
        np.concatenate([voice.throats for voice in voices]),
        answers,
    )
    onsets = np.concatenate([voice.onsets for voice in voices])
    sharpness = generator.uniform(0, 1, onsets.size) ** 2
    hiss = bursts(onsets, sharpness, 0.03, samples, sample_rate)
    breath = shaped_noise(generator, samples, sample_rate, band(2500, 6000, 3))
    murmur = shaped_noise(generator, samples, sample_rate, band(150, 600, 1.5))
    return to_rms(vowels, 1.0) + 0.25 * hiss * breath + 0.2 * murmur


def _talk(generator: np.random.Generator, seconds: float) -> Voice:
    short = generator.random() < 0.5
    count = int(seconds / 0.12) + 8
    lengths = generator.uniform(0.14, 0.28, count)  # three to seven syllables a second
    pause = generator.random(count) < 0.12
    lengths[pause] *= 2
    starts = np.cumsum(lengths) - lengths - generator.uniform(0, 0.5)
    loudness = generator.uniform(0.3, 1.0, count) * generator.uniform(0.4, 1.0)
    loudness[pause] = 0
    vowels = generator.integers(len(VOWELS), size=count) + short * len(VOWELS)
    moments = _cords(generator, 200 if short else 110, seconds)
    syllable = np.searchsorted(starts, moments, side="right") - 1
    progress = np.clip((moments - starts[syllable]) / lengths[syllable], 0, 1)
    strengths = loudness[syllable] * np.sin(np.pi * progress) ** 2
    return Voice(moments, strengths, vowels[syllable], starts[~pause])


def _cords(generator: np.random.Generator, pitch: float, seconds: float) -> Array:
    """Return when the vocal cords close, in seconds, for a voice of about `pitch` Hz."""
    points = int(seconds * MELODY_RATE) + 2
    melody = pitch * generator.uniform(0.78, 1.22)
    hertz = melody * np.exp(0.15 * drift(generator, points, MELODY_RATE, 1.0))
    cycles = np.cumsum(hertz) / MELODY_RATE
    closings = np.arange(cycles[0] + generator.random(), cycles[-1])
    return np.interp(closings, cycles, np.arange(points) / MELODY_RATE)
