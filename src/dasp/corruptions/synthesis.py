"""The few parts that every synthetic sound is made of. All in float64, all from a generator.

float64 keeps the small differences between processors far below one 16-bit step.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONTROL_RATE = 1000  # Hz; slow curves are made at this rate and drawn out to the sound's own


def shaped_noise(
    generator: np.random.Generator,
    samples: int,
    sample_rate: float,
    amplitude: Callable[[Array], Array],
) -> Array:
    """Return (samples,) Gaussian noise of RMS 1 whose spectrum follows `amplitude(hertz)`."""
    length = _fast_length(samples)
    gain = amplitude(np.fft.rfftfreq(length, 1 / sample_rate).astype(np.float64))
    gain[0] = 0
    parts = generator.standard_normal(2 * gain.size)
    spectrum = gain * parts.view(np.complex128)
    level = length / (2 * np.sqrt(np.sum(gain**2)))
    return np.fft.irfft(level * spectrum, length)[:samples]


def band(low: float, high: float, slope: float = 2.0) -> Callable[[Array], Array]:
    """Return an amplitude curve: flat from `low` to `high` Hz, then falling as hertz^±slope."""

    def amplitude(hertz: Array) -> Array:
        return np.asarray(
            1 / (1 + (low / np.maximum(hertz, 1e-3)) ** slope + (hertz / high) ** slope)
        )

    return amplitude


def drift(generator: np.random.Generator, samples: int, sample_rate: int, hertz: float) -> Array:
    """Return a (samples,) smooth random curve of variance 1 that turns `hertz` times a second."""
    knots_a_second = 6 * hertz
    count = int(samples / sample_rate * knots_a_second) + 4
    values = generator.standard_normal(count + 3)
    # A short average of neighbours makes the corners at the knots unheard; it keeps variance 1.
    values = np.convolve(values, np.array([1, 3, 3, 1]) / np.sqrt(20), mode="valid")
    return draw_out(values, knots_a_second, samples, sample_rate)


def draw_out(curve: Array, curve_rate: float, samples: int, sample_rate: int) -> Array:
    """Return (samples,): a curve given at `curve_rate`, with straight lines between its points."""
    position = np.arange(samples) * (curve_rate / sample_rate)
    return np.asarray(np.interp(position, np.arange(curve.size), curve))


def strike(
    samples: int, positions: Array, strengths: Array, kinds: NDArray[np.intp], responses: Array
) -> Array:
    """Return (samples,): impulses, each rung through the response of its kind, added up.

    `positions` in samples (fractions count), `strengths` and `kinds` (impulses,); `responses`
    (kinds, taps).
    """
    block = 1 << max(9, (responses.shape[1] - 1).bit_length())
    blocks = -(-samples // block)
    spectrum = np.zeros((blocks, block + 1), np.complex128)
    inside = (positions >= 0) & (positions < samples - 1)
    for kind, response in enumerate(np.fft.rfft(responses, 2 * block)):
        mine = inside & (kinds == kind)
        train = _impulses(positions[mine], strengths[mine], blocks * block)
        heard = np.fft.rfft(train.reshape(blocks, block), 2 * block)
        heard *= response
        spectrum += heard
    rung = np.fft.irfft(spectrum).reshape(blocks, 2, block)
    sound = rung[:, 0]
    sound[1:] += rung[:-1, 1]  # the tail of each block rings on in the next
    return sound.reshape(-1)[:samples]


def _impulses(positions: Array, strengths: Array, samples: int) -> Array:
    before = positions.astype(np.intp)
    part = positions - before
    early = np.bincount(before, strengths * (1 - part), samples)
    late = np.bincount(before + 1, strengths * part, samples)
    return np.asarray(early + late, np.float64)


def ringing(sample_rate: int, hertz: Array, bandwidths: Array, gains: Array, taps: int) -> Array:
    """Return (taps,): resonances that die away, the answer of a throat or a drop to an impulse."""
    time = np.arange(taps)[:, None] / sample_rate
    heard = hertz < 0.45 * sample_rate
    modes = np.exp(-np.pi * bandwidths * time) * np.sin(2 * np.pi * hertz * time)
    response = modes[:, heard] @ gains[heard]
    return np.asarray(response - response.mean())  # or many strikes would push the air one way


def bursts(moments: Array, strengths: Array, decay: float, samples: int, sample_rate: int) -> Array:
    """Return (samples,): an envelope that jumps at each moment and dies away in `decay` seconds."""
    points = int(samples / sample_rate * CONTROL_RATE) + 2
    tail = np.arange(int(6 * decay * CONTROL_RATE)) / CONTROL_RATE
    places, kinds = moments.ravel() * CONTROL_RATE, np.zeros(moments.size, np.intp)
    decaying = ((1 - np.exp(-tail / 0.004)) * np.exp(-tail / decay))[None]
    curve = strike(points, places, strengths.ravel(), kinds, decaying)
    return draw_out(curve, CONTROL_RATE, samples, sample_rate)


def to_rms(sound: Array, level: float) -> Array:
    """Scale a sound to a root mean square of `level`."""
    return sound * (level / max(float(np.sqrt(np.mean(sound**2))), 1e-12))


def _fast_length(samples: int) -> int:
    """Return a length, at least `samples` and 64, that the FFT likes: 8 to 16 times 2^k."""
    step = 1 << max(3, (max(samples, 64) - 1).bit_length() - 4)
    return -(-max(samples, 64) // step) * step
