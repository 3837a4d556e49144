"""Building blocks of synthetic sounds, in float64 and drawn from a generator.

float64 keeps differences between processors far below one 16-bit step.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONTROL_RATE = 1000  # Hz; slow curves are made at this rate and interpolated


def band_noise(
    generator: np.random.Generator,
    samples: int,
    sample_rate: int,
    low: float,
    high: float,
    slope: float,
) -> Array:
    """Return (samples,) Gaussian noise of RMS 1.

    Its amplitude is flat from `low` to `high` Hz and falls as hertz^±slope outside.
    """
    # Of at least `samples` and 64, and fast for an FFT: 8 to 16 times 2^k.
    step = 1 << max(3, (max(samples, 64) - 1).bit_length() - 4)
    length = -(-max(samples, 64) // step) * step
    gain = _band(length, sample_rate, low, high, slope)
    spectrum = generator.standard_normal(2 * gain.size).view(np.complex128)
    spectrum *= gain
    return np.fft.irfft(spectrum, length)[:samples]


@lru_cache(maxsize=32)
def _band(length: int, sample_rate: int, low: float, high: float, slope: float) -> Array:
    """Return the gain of each frequency, cached for clips of the same length."""
    hertz = np.fft.rfftfreq(length, 1 / sample_rate)[1:]
    gain = np.zeros(hertz.size + 1)
    gain[1:] = 1 / (1 + (low / hertz) ** slope + (hertz / high) ** slope)
    gain *= length / (2 * np.sqrt(np.sum(gain**2)))
    gain.setflags(write=False)
    return gain


def drift(generator: np.random.Generator, samples: int, sample_rate: int, hertz: float) -> Array:
    """Return a (samples,) smooth random curve of variance 1 and about `hertz` cycles per second."""
    knots_per_second = 6 * hertz
    count = int(samples / sample_rate * knots_per_second) + 4
    values = generator.standard_normal(count + 3)
    # Averaging neighbours makes the corners at the knots inaudible; the variance stays 1.
    values = np.convolve(values, np.array([1, 3, 3, 1]) / np.sqrt(20), mode="valid")
    return _draw_out(values, knots_per_second, samples, sample_rate)


def _draw_out(curve: Array, curve_rate: float, samples: int, sample_rate: int) -> Array:
    """Return (samples,): a curve given at `curve_rate`, linearly interpolated."""
    position = np.arange(samples) * (curve_rate / sample_rate)
    return np.asarray(np.interp(position, np.arange(curve.size), curve))


def strike(
    samples: int, positions: Array, strengths: Array, kinds: NDArray[np.intp], responses: Array
) -> Array:
    """Return (samples,): the sum of impulses, each convolved with the response of its kind.

    `positions` may lie between samples; `responses` are (kinds, taps).
    """
    tail = responses.shape[1] - 1
    size = 1 << max(11, (4 * tail).bit_length())  # of the FFT of one block and its tail
    block = size - tail
    blocks = -(-samples // block)
    spectrum = np.zeros((blocks, 1 + size // 2), np.complex128)
    inside = (positions >= 0) & (positions < samples - 1)
    before = positions.astype(np.intp)
    late = strengths * (positions - before)
    early = strengths * (1 - (positions - before))
    for kind, response in enumerate(np.fft.rfft(responses, size)):
        mine = inside & (kinds == kind)
        train = np.bincount(before[mine], early[mine], blocks * block)
        train += np.bincount(before[mine] + 1, late[mine], blocks * block)
        spectrum += np.fft.rfft(train.reshape(blocks, block), size) * response
    rung = np.fft.irfft(spectrum)
    sound = rung[:, :block]
    sound[1:, :tail] += rung[:-1, block:]  # each block's tail lies in the next
    return sound.reshape(-1)[:samples]


def ringing(sample_rate: int, hertz: Array, bandwidths: Array, gains: Array, taps: int) -> Array:
    """Return (taps,): decaying resonances, the impulse response of a throat or a drop."""
    time = np.arange(taps)[:, None] / sample_rate
    heard = hertz < 0.45 * sample_rate
    modes = np.exp(-np.pi * bandwidths * time) * np.sin(2 * np.pi * hertz * time)
    response = modes[:, heard] @ gains[heard]
    return np.asarray(response - response.mean())  # otherwise many impulses would add an offset


def bursts(moments: Array, strengths: Array, decay: float, samples: int, sample_rate: int) -> Array:
    """Return (samples,): an envelope that jumps at each moment and decays in `decay` seconds."""
    points = int(samples / sample_rate * CONTROL_RATE) + 2
    tail = np.arange(int(6 * decay * CONTROL_RATE)) / CONTROL_RATE
    places, kinds = moments.ravel() * CONTROL_RATE, np.zeros(moments.size, np.intp)
    decaying = ((1 - np.exp(-tail / 0.004)) * np.exp(-tail / decay))[None]
    curve = strike(points, places, strengths.ravel(), kinds, decaying)
    return _draw_out(curve, CONTROL_RATE, samples, sample_rate)


def to_rms(sound: Array, level: float) -> Array:
    """Scale a sound to a root mean square of `level`."""
    return sound * (level / max(float(np.sqrt(np.mean(sound**2))), 1e-12))
