"""Play the sound of a class: a timbre shaped by a temporal pattern.

All in float64, as `room` puts the finished sound on the 16-bit grid: see `dasp.core.sound`.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dasp.data.shapes.classes import Voice

RATE = 16000
Sound = NDArray[np.float64]

_RAMP = 0.012  # seconds in which an event begins and ends, so that it does not click


def play(generator: np.random.Generator, voice: Voice) -> Sound:
    """Return (samples,), .45–.9 s of one event at an RMS of 1."""
    samples = int(RATE * generator.uniform(0.45, 0.9))
    pitch = generator.uniform(130, 330)
    time = np.arange(samples) / RATE
    glide, loudness = _PATTERNS[voice.pattern](generator, time)
    phase = np.cumsum(pitch * glide) * (2 * np.pi / RATE)
    tone = _TIMBRES[voice.timbre](generator, phase, pitch)
    tone *= loudness
    ramp = np.linspace(0, 1, int(RATE * _RAMP))
    tone[: ramp.size] *= ramp
    tone[-ramp.size :] *= ramp[::-1]
    tone /= np.sqrt(np.mean(tone**2)) + 1e-9
    return tone


Curves = tuple[Sound, Sound]  # of pitch, relative to the event's own, and of loudness


def _steady(generator: np.random.Generator, time: Sound) -> Curves:  # noqa: ARG001
    return np.ones_like(time), np.ones_like(time)


def _pluck(generator: np.random.Generator, time: Sound) -> Curves:
    return np.ones_like(time), np.exp(-time / generator.uniform(0.08, 0.14))


def _pulses(generator: np.random.Generator, time: Sound) -> Curves:
    hertz = generator.uniform(6.5, 9)
    beat = np.cos(2 * np.pi * hertz * time)
    return np.ones_like(time), np.clip(0.5 + 2 * beat, 0, 1)


def _rise(generator: np.random.Generator, time: Sound) -> Curves:
    top = generator.uniform(1.7, 2.1)
    return top ** (time / time[-1]), np.ones_like(time)


def _fall(generator: np.random.Generator, time: Sound) -> Curves:
    glide, loudness = _rise(generator, time)
    return glide[::-1], loudness


def _trill(generator: np.random.Generator, time: Sound) -> Curves:
    note = generator.uniform(0.07, 0.1)
    high = (time // note) % 2
    return np.where(high > 0, 1.5, 1.0), np.ones_like(time)


def _partials(phase: Sound, weights: NDArray[np.floating]) -> Sound:
    """Sum sin(n·phase)·weights[n-1], each harmonic from the two before it."""
    now, twice = np.sin(phase), 2 * np.cos(phase)
    before = np.zeros_like(now)
    total = np.zeros_like(now)
    for weight in weights:
        if weight:
            total += weight * now
        now, before = twice * now - before, now
    return total


_N = np.arange(1, 13)


def _flute(generator: np.random.Generator, phase: Sound, pitch: float) -> Sound:  # noqa: ARG001
    return _partials(phase, np.array([1, 0.35, 0.08]))


def _buzz(generator: np.random.Generator, phase: Sound, pitch: float) -> Sound:  # noqa: ARG001
    return _partials(phase, _N**-0.6)


def _reed(generator: np.random.Generator, phase: Sound, pitch: float) -> Sound:  # noqa: ARG001
    return _partials(phase, np.where(_N % 2, _N**-0.7, 0))


def _bell(generator: np.random.Generator, phase: Sound, pitch: float) -> Sound:  # noqa: ARG001
    ratios, weights = (1.0, 2.76, 5.4, 8.93, 11.34), (0.8, 1.0, 0.8, 0.6, 0.4)
    parts = [weight * np.sin(r * phase) for r, weight in zip(ratios, weights, strict=True)]
    return np.asarray(sum(parts))


def _hiss(generator: np.random.Generator, phase: Sound, pitch: float) -> Sound:  # noqa: ARG001
    """Noise in a band that follows eight times the pitch."""
    width = 16
    noise = generator.standard_normal((2, phase.size + width)).cumsum(axis=1)
    slow = noise[:, width:] - noise[:, :-width]
    angle = 8 * phase
    return np.asarray(slow[0] * np.cos(angle) + slow[1] * np.sin(angle))


def _voice(generator: np.random.Generator, phase: Sound, pitch: float) -> Sound:
    """Harmonics lifted near two resonances, as of a mouth."""
    hertz = pitch * _N
    low, high = generator.uniform(600, 800), generator.uniform(1900, 2300)
    weights = np.exp(-(((hertz - low) / 170) ** 2)) + 0.7 * np.exp(-(((hertz - high) / 250) ** 2))
    return _partials(phase, weights + 0.03)


_PATTERNS: dict[str, Callable[[np.random.Generator, Sound], Curves]] = {
    "steady": _steady,
    "pluck": _pluck,
    "pulses": _pulses,
    "rise": _rise,
    "fall": _fall,
    "trill": _trill,
}
_TIMBRES: dict[str, Callable[[np.random.Generator, Sound, float], Sound]] = {
    "flute": _flute,
    "buzz": _buzz,
    "reed": _reed,
    "bell": _bell,
    "hiss": _hiss,
    "voice": _voice,
}
