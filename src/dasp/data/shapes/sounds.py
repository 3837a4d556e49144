"""Record a sound: the event of a class (or none) somewhere in a noisy room.

An event is a timbre shaped by a temporal pattern. Everything is float64 until the finished sound
is rounded to 16 bits: see `dasp.core.sound`.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dasp.core.sound import on_grid
from dasp.data.shapes.classes import Flavour, Kind

RATE = 16000
SAMPLES = 20480  # 1.28 s
# An event at this RMS is 8 dB below the background that `corrupt_sound` adds at severity 5.
EVENT_RMS = 0.1
GAIN = 6.0  # decibels, up or down
REVERB_SHARE = 0.7

_RAMP = 0.012  # seconds of fade-in and fade-out of an event, to avoid clicks
_FFT = 28800  # event and echo together; a product of small factors
_BINS = SAMPLES // 2 + 1
_LOG_HERTZ = np.log(np.maximum(np.arange(_BINS) * (RATE / SAMPLES), 50) / 1000)
_N = np.arange(1, 13)

Wave = NDArray[np.float32]
Sound = NDArray[np.float64]
Curves = tuple[Sound, Sound]  # pitch relative to the event's own, and loudness


def draw_wave(generator: np.random.Generator, kind: Kind | None, flavour: Flavour) -> Wave:
    """Return (20480,) rounded to 16 bits: the event of a class in a room, or only the room."""
    snr = generator.uniform(*flavour.snr)
    gain = 10 ** (generator.uniform(-GAIN, GAIN) / 20)
    mix = 10 ** (-snr / 20) * _room_noise(generator)
    if kind is not None:
        event = play(generator, kind)
        start = generator.integers(0, SAMPLES - event.size)
        if generator.random() < REVERB_SHARE:
            event = _echo(generator, event)[: SAMPLES - start]
        mix[start : start + event.size] += event
    mix *= EVENT_RMS * gain
    peak = np.abs(mix).max()
    if peak > 1:
        mix /= peak
    return on_grid(mix)


def _room_noise(generator: np.random.Generator) -> Sound:
    """Return (20480,) of RMS 1: noise that decreases towards high frequencies by a drawn slope."""
    amplitude = np.exp(-generator.uniform(0.2, 1.0) * _LOG_HERTZ)
    amplitude[0] = 0
    parts = generator.standard_normal(2 * _BINS).view(np.complex128)
    noise = np.fft.irfft(amplitude * parts, SAMPLES)
    return np.asarray(noise / np.sqrt(np.mean(noise**2)))


def _echo(generator: np.random.Generator, event: Sound) -> Sound:
    """Return the event with its echo, longer than the event."""
    length = int(RATE * generator.uniform(0.2, 0.6))
    tail = generator.standard_normal(length) * np.exp(-6.9 * np.arange(length) / length)
    tail *= generator.uniform(0.3, 0.8) / np.sqrt(np.sum(tail**2))
    tail[0] = 1
    spectrum = np.fft.rfft(event, _FFT) * np.fft.rfft(tail, _FFT)
    echoed = np.fft.irfft(spectrum, _FFT)[: event.size + length - 1]
    echoed /= np.sqrt(np.mean(echoed[: event.size] ** 2))
    return np.asarray(echoed)


def play(generator: np.random.Generator, kind: Kind) -> Sound:
    """Return (samples,): 0.45 to 0.9 s of one event with an RMS of 1."""
    samples = int(RATE * generator.uniform(0.45, 0.9))
    pitch = generator.uniform(130, 330)
    time = np.arange(samples) / RATE
    glide, loudness = _PATTERNS[kind.pattern](generator, time)
    phase = np.cumsum(pitch * glide) * (2 * np.pi / RATE)
    tone = _TIMBRES[kind.timbre](generator, phase, pitch)
    tone *= loudness
    ramp = np.linspace(0, 1, int(RATE * _RAMP))
    tone[: ramp.size] *= ramp
    tone[-ramp.size :] *= ramp[::-1]
    tone /= np.sqrt(np.mean(tone**2)) + 1e-9
    return tone


def _pulses(generator: np.random.Generator, time: Sound) -> Curves:
    hertz = generator.uniform(6.5, 9)
    beat = np.cos(2 * np.pi * hertz * time)
    return np.ones_like(time), np.clip(0.5 + 2 * beat, 0, 1)


def _rise(generator: np.random.Generator, time: Sound) -> Curves:
    top = generator.uniform(1.7, 2.1)
    return top ** (time / time[-1]), np.ones_like(time)


def _trill(generator: np.random.Generator, time: Sound) -> Curves:
    note = generator.uniform(0.07, 0.1)
    high = (time // note) % 2
    return np.where(high > 0, 1.5, 1.0), np.ones_like(time)


def _partials(phase: Sound, weights: NDArray[np.floating]) -> Sound:
    """Sum sin(n·phase)·weights[n-1], computing each harmonic from the previous two."""
    now, twice = np.sin(phase), 2 * np.cos(phase)
    before = np.zeros_like(now)
    total = np.zeros_like(now)
    for weight in weights:
        if weight:
            total += weight * now
        now, before = twice * now - before, now
    return total


def _bell(phase: Sound) -> Sound:
    ratios, weights = (1.0, 2.76, 5.4, 8.93, 11.34), (0.8, 1.0, 0.8, 0.6, 0.4)
    parts = [weight * np.sin(r * phase) for r, weight in zip(ratios, weights, strict=True)]
    return np.asarray(sum(parts))


def _hiss(generator: np.random.Generator, phase: Sound) -> Sound:
    """Return noise in a band around eight times the pitch."""
    width = 16
    noise = generator.standard_normal((2, phase.size + width)).cumsum(axis=1)
    slow = noise[:, width:] - noise[:, :-width]
    angle = 8 * phase
    return np.asarray(slow[0] * np.cos(angle) + slow[1] * np.sin(angle))


def _voice(generator: np.random.Generator, phase: Sound, pitch: float) -> Sound:
    """Return harmonics amplified near two resonances, like those of a mouth."""
    hertz = pitch * _N
    low, high = generator.uniform(600, 800), generator.uniform(1900, 2300)
    weights = np.exp(-(((hertz - low) / 170) ** 2)) + 0.7 * np.exp(-(((hertz - high) / 250) ** 2))
    return _partials(phase, weights + 0.03)


_PATTERNS: dict[str, Callable[[np.random.Generator, Sound], Curves]] = {
    "steady": lambda _, time: (np.ones_like(time), np.ones_like(time)),
    "pluck": lambda rng, time: (np.ones_like(time), np.exp(-time / rng.uniform(0.08, 0.14))),
    "pulses": _pulses,
    "rise": _rise,
    "fall": lambda rng, time: (_rise(rng, time)[0][::-1], np.ones_like(time)),
    "trill": _trill,
}
_TIMBRES: dict[str, Callable[[np.random.Generator, Sound, float], Sound]] = {
    "flute": lambda _, phase, __: _partials(phase, np.array([1, 0.35, 0.08])),
    "buzz": lambda _, phase, __: _partials(phase, _N**-0.6),
    "reed": lambda _, phase, __: _partials(phase, np.where(_N % 2, _N**-0.7, 0)),
    "bell": lambda _, phase, __: _bell(phase),
    "hiss": lambda rng, phase, _: _hiss(rng, phase),
    "voice": _voice,
}
