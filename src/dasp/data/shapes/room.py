"""Record a sound: the event of a class (or none) somewhere in a noisy room."""

import numpy as np
from numpy.typing import NDArray

from dasp.core.sound import on_grid
from dasp.data.shapes.classes import Flavour, Voice
from dasp.data.shapes.voices import RATE, Sound, play

Wave = NDArray[np.float32]

SAMPLES = 20480  # 1.28 s
# An event at this RMS stands 8 dB below the surroundings that `corrupt_sound` adds at severity 5.
EVENT_RMS = 0.1
GAIN = 6.0  # decibels, either way
REVERB_SHARE = 0.7

_FFT = 28800  # event and echo together, with small factors only
_BINS = SAMPLES // 2 + 1
_LOG_HERTZ = np.log(np.maximum(np.arange(_BINS) * (RATE / SAMPLES), 50) / 1000)


def draw_wave(generator: np.random.Generator, voice: Voice | None, flavour: Flavour) -> Wave:
    """Return (20480,) on the 16-bit grid that holds `voice`, or the room alone for None."""
    snr = generator.uniform(*flavour.snr)
    gain = 10 ** (generator.uniform(-GAIN, GAIN) / 20)
    mix = 10 ** (-snr / 20) * _room_noise(generator)
    if voice is not None:
        event = play(generator, voice)
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
    """Return (20480,) of RMS 1: noise that falls by a drawn slope towards high pitches."""
    amplitude = np.exp(-generator.uniform(0.2, 1.0) * _LOG_HERTZ)
    amplitude[0] = 0
    parts = generator.standard_normal(2 * _BINS).view(np.complex128)
    noise = np.fft.irfft(amplitude * parts, SAMPLES)
    return np.asarray(noise / np.sqrt(np.mean(noise**2)))


def _echo(generator: np.random.Generator, event: Sound) -> Sound:
    """Return the event and its echo from the walls, longer than the event."""
    length = int(RATE * generator.uniform(0.2, 0.6))
    tail = generator.standard_normal(length) * np.exp(-6.9 * np.arange(length) / length)
    tail *= generator.uniform(0.3, 0.8) / np.sqrt(np.sum(tail**2))
    tail[0] = 1
    spectrum = np.fft.rfft(event, _FFT) * np.fft.rfft(tail, _FFT)
    echoed = np.fft.irfft(spectrum, _FFT)[: event.size + length - 1]
    echoed /= np.sqrt(np.mean(echoed[: event.size] ** 2))
    return np.asarray(echoed)
