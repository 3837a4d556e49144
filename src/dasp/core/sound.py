"""Waveforms: rounding to 16 bits, and resampling by a windowed sinc.

A sound that is compared by bytes is computed in float64 and rounded to 16 bits at the end. NumPy
chooses its implementation of sines, exponentials, sums and Fourier transforms by the processor's
instruction set, so the last bit of a float64 differs between processors; a 16-bit step is 2**37
times as large, so the rounded sound has the same bytes everywhere.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import InputError

ZERO_CROSSINGS = 64  # of the sinc on each side, counted at the lower of the two rates
ROLLOFF = 0.9475  # cut-off as a share of the lower Nyquist frequency; the stop band begins at 1
KAISER_BETA = 9.0  # about 90 dB of attenuation


def pcm16(wave: NDArray[np.floating]) -> NDArray[np.int16]:
    """Round a (samples,) wave in [-1, 1] to 16 bits; larger values are clipped."""
    scaled = np.rint(wave.astype(np.float64) * 32768)
    return np.clip(scaled, -32768, 32767).astype(np.int16)


def from_pcm16(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """Return 16-bit samples as float32 in [-1, 1), as they are read from a wav file."""
    return samples.astype(np.float32) / np.float32(32768)


def on_grid(wave: NDArray[np.floating]) -> NDArray[np.float32]:
    """Round a (samples,) wave in [-1, 1] to the nearest 16-bit values, as float32."""
    return from_pcm16(pcm16(wave))


def resample(wave: NDArray[np.float32], from_rate: int, to_rate: int) -> NDArray[np.float32]:
    """Resample a (samples,) wave to (ceil(samples * to_rate / from_rate),) float32.

    The pass band reaches 0.91 of the lower Nyquist frequency; frequencies above Nyquist are
    attenuated by about 90 dB. The sound is not delayed; outside the wave there is silence.

    >>> resample(np.ones(441, np.float32), 44100, 16000).shape
    (160,)
    """
    if wave.ndim != 1 or not np.issubdtype(wave.dtype, np.floating):
        raise InputError(
            f"resample() takes a (samples,) float array, not {wave.shape} {wave.dtype}: "
            "mix it to mono and scale it to [-1, 1] first."
        )
    for rate in (from_rate, to_rate):
        if rate < 1 or rate != int(rate):
            raise InputError(f"a sampling rate must be a positive integer (Hz), not {rate!r}.")
    if from_rate == to_rate:
        return wave.astype(np.float32)
    divisor = math.gcd(from_rate, to_rate)
    up, down = to_rate // divisor, from_rate // divisor
    kernels = _kernels(up, down)
    reach = kernels.shape[1] // 2
    cycles = -(-wave.size // down)  # one cycle: `down` samples in, `up` samples out
    padded = np.zeros(cycles * down + 2 * reach)
    padded[reach : reach + wave.size] = wave
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach)
    output = np.empty((cycles, up))
    for phase, kernel in enumerate(kernels):
        first = phase * down // up + 1
        output[:, phase] = windows[first::down][:cycles] @ kernel
    return output.reshape(-1)[: -(-wave.size * to_rate // from_rate)].astype(np.float32)


def _kernels(up: int, down: int) -> NDArray[np.float64]:
    """Return (up, taps): the weights of the surrounding samples for each output of a cycle."""
    stretch = max(1.0, down / up)
    reach = math.ceil(ZERO_CROSSINGS * stretch)
    fraction = (np.arange(up) * down % up / up)[:, None]
    distance = (np.arange(1 - reach, 1 + reach) - fraction) / stretch
    inside = np.clip(1 - (distance / ZERO_CROSSINGS) ** 2, 0, None)
    kernels = np.sinc(ROLLOFF * distance) * np.i0(KAISER_BETA * np.sqrt(inside))
    kernels[np.abs(distance) > ZERO_CROSSINGS] = 0
    return np.asarray(kernels / kernels.sum(axis=1, keepdims=True))
