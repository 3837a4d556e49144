"""From a waveform to the log-mel picture that a model sees, as Kaldi computes it."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dasp.core.errors import InputError, OptionError
from dasp.core.resampling import resample

__all__ = ["FbankOptions", "fbank", "log_mel", "resample"]

PRE_EMPHASIS = 0.97
LOWEST_HZ = 20.0
LOG_FLOOR = torch.finfo(torch.float32).eps  # 1.19e-7
NORM_MEAN, NORM_STD = -5.081, 4.4849  # of the training data of CAV-MAE


@dataclass(frozen=True)
class FbankOptions:
    """The sizes of a filterbank; the defaults are those of CAV-MAE."""

    mel_bins: int = 128
    hop_ms: float = 10.0
    window_ms: float = 25.0

    def __post_init__(self) -> None:
        if self.mel_bins < 1 or self.hop_ms <= 0 or self.window_ms <= 0:
            raise OptionError(f"a filterbank needs sizes above zero, not {self}.")


DEFAULTS = FbankOptions()


def fbank(
    wave: Tensor | NDArray[np.float32], sample_rate: int = 16000, options: FbankOptions = DEFAULTS
) -> Tensor:
    """Return Kaldi's log-mel energies, not padded, not normalised.

    (samples,) -> (frames, mel_bins); (batch, samples) -> (batch, frames, mel_bins), the same
    numbers. Only whole windows count: frames = 1 + (samples - window) // hop.
    The mean of each wave is taken away first; Hann window, power spectrum, no dither.

    >>> fbank(torch.zeros(16000)).shape
    torch.Size([98, 128])
    """
    signal = _as_tensor(wave)
    window_size, hop = _sizes(sample_rate, options)
    if signal.shape[-1] < window_size:
        raise InputError(
            f"a wave of {signal.shape[-1]} samples is shorter than one window of {window_size} "
            f"({options.window_ms:g} ms at {sample_rate} Hz): leave it out or pad it with silence."
        )
    fft_size = 1 << (window_size - 1).bit_length()
    signal = signal - signal.mean(dim=-1, keepdim=True)
    frames = signal.unfold(-1, window_size, hop)  # (..., frames, window)
    frames = frames - frames.mean(dim=-1, keepdim=True)
    before = torch.cat((frames[..., :1], frames[..., :-1]), dim=-1)
    frames = (frames - PRE_EMPHASIS * before) * _hann(window_size).to(signal.device)
    padded = functional.pad(frames, (0, fft_size - window_size))
    power = torch.fft.rfft(padded).abs().pow(2.0)  # (..., frames, 1 + fft/2)
    mel = _mel_bank(options.mel_bins, fft_size, sample_rate).to(signal.device)
    energies: Tensor = power @ mel.T
    return energies.clamp_min(LOG_FLOOR).log()


def log_mel(
    wave: Tensor | NDArray[np.float32],
    sample_rate: int = 16000,
    frames: int = 1024,
    options: FbankOptions = DEFAULTS,
) -> Tensor:
    """Return the model's input: (..., samples) -> (..., frames, mel_bins), normalised.

    Too short a sound is filled up with zeros, too long a one is cut, and both happen before
    normalising: the filling is (0 - mean) / std, as the published models were trained.

    >>> log_mel(torch.zeros(16000), frames=64, options=FbankOptions(hop_ms=20.0)).shape
    torch.Size([64, 128])
    """
    if frames < 1:
        raise OptionError(f"frames must be at least 1, not {frames}.")
    energies = fbank(wave, sample_rate, options)
    fitted = functional.pad(energies, (0, 0, 0, frames - energies.shape[-2]))
    return (fitted - NORM_MEAN) / NORM_STD


def _as_tensor(wave: Tensor | NDArray[np.float32]) -> Tensor:
    signal = torch.as_tensor(wave)
    if not signal.is_floating_point() or signal.ndim not in (1, 2):
        raise InputError(
            f"a sound is a (samples,) or (batch, samples) float array, not {tuple(signal.shape)} "
            f"{signal.dtype}: mix it to mono and scale it to [-1, 1] first."
        )
    return signal.float()


def _sizes(sample_rate: int, options: FbankOptions) -> tuple[int, int]:
    """Return the samples of a window and of a hop, rounded down as Kaldi does."""
    window_size = int(sample_rate * options.window_ms * 0.001)
    hop = int(sample_rate * options.hop_ms * 0.001)
    if window_size < 2 or hop < 1 or sample_rate / 2 <= LOWEST_HZ:
        raise OptionError(f"{sample_rate} Hz is too low for {options}.")
    return window_size, hop


@lru_cache(maxsize=16)
def _hann(size: int) -> Tensor:
    """Return the symmetric Hann window."""
    return torch.hann_window(size, periodic=False)


@lru_cache(maxsize=16)
def _mel_bank(bins: int, fft_size: int, sample_rate: int) -> Tensor:
    """Return (bins, 1 + fft_size / 2) triangles, evenly spaced on the mel scale, in float32.

    float32 is part of the definition: it moves the edges of the narrow triangles a little.
    """
    lowest = 1127.0 * math.log(1.0 + LOWEST_HZ / 700.0)
    highest = 1127.0 * math.log(1.0 + sample_rate / 2 / 700.0)
    spacing = (highest - lowest) / (bins + 1)
    index = torch.arange(bins).unsqueeze(1)
    left, centre, right = (lowest + (index + float(step)) * spacing for step in range(3))
    hertz = sample_rate / fft_size * torch.arange(fft_size // 2)
    # The nearest float32 of the logarithm, which fast float32 logarithms miss on some machines.
    mel = 1127.0 * (1.0 + hertz / 700.0).double().log().float()
    rising = (mel - left) / (centre - left)
    falling = (right - mel) / (right - centre)
    triangles = torch.minimum(rising, falling).clamp_min(0.0)
    return functional.pad(triangles, (0, 1))  # the Nyquist bin belongs to no triangle
