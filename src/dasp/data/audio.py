"""From a waveform to the log-mel picture that a model sees, as Kaldi computes it."""

import math
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dasp.core.errors import InputError, OptionError
from dasp.core.sound import resample

__all__ = ["FbankOptions", "fbank", "log_mel", "resample"]

PRE_EMPHASIS = 0.97
LOWEST_HZ = 20.0
LOG_FLOOR = torch.finfo(torch.float32).eps  # 1.19e-7
BLOCK = 512  # frames transformed at once: float64 arrays of a whole batch are slow to allocate
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

    Every step is rounded to float32 where Kaldi rounds it; the Fourier transform is computed in
    float64. Builds of Kaldi that transform in float64 too agree to 1e-4 on any signal. Those that
    transform in float32 add noise of 5e-7 of a frame's largest amplitude: they agree to 1e-3
    within 60 dB of it.

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
    signal = signal - signal.mean(dim=-1, keepdim=True, dtype=torch.float64).float()
    frames = signal.unfold(-1, window_size, hop)  # (..., frames, window)
    frames = frames - _sum_in_order(frames) / window_size
    before = torch.cat((frames[..., :1], frames[..., :-1]), dim=-1)
    frames = (frames - PRE_EMPHASIS * before) * _hann(window_size).to(signal.device)
    blocks = torch.split(frames.flatten(0, -2), BLOCK)
    power = torch.cat([_power(block, fft_size) for block in blocks])
    power = power.view(*frames.shape[:-1], -1)  # (..., frames, 1 + fft/2)
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
    # The copy lets arrays be read-only or reversed, which torch would not share.
    signal = wave if isinstance(wave, Tensor) else torch.from_numpy(np.array(wave, order="C"))
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


def _sum_in_order(frames: Tensor) -> Tensor:
    """Return the float32 sum of the last axis, added from the first sample to the last.

    Kaldi adds in this order. Another last bit of the mean rounds every sample of the frame
    differently, which is seen in energies that lie 100 dB or more below the largest.
    """
    first, *others = frames.movedim(-1, 0).contiguous().unbind()
    return reduce(torch.add, others, first).unsqueeze(-1)


def _power(frames: Tensor, fft_size: int) -> Tensor:
    """Return the power spectra of (n, window) frames: (n, 1 + fft_size / 2), float32."""
    padded = functional.pad(frames, (0, fft_size - frames.shape[-1]))
    spectrum = torch.fft.rfft(padded.double()).to(torch.complex64)
    power: Tensor = spectrum.real.square() + spectrum.imag.square()
    return power


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # kept for later calls, which may want gradients
def _hann(size: int) -> Tensor:
    """Return the symmetric Hann window, computed in float64 and rounded to float32."""
    step = 2 * math.pi / (size - 1)
    return torch.tensor([0.5 - 0.5 * math.cos(step * i) for i in range(size)], dtype=torch.float32)


@lru_cache(maxsize=16)
@torch.inference_mode(False)
def _mel_bank(bins: int, fft_size: int, sample_rate: int) -> Tensor:
    """Return (bins, 1 + fft_size / 2) triangles, evenly spaced on the mel scale, in float32.

    float32 is part of the definition: it moves the edges a little, and with them the weight of a
    frequency that lies next to an edge.
    """
    lowest, highest = _mel(torch.tensor([LOWEST_HZ, sample_rate / 2], dtype=torch.float32))
    spacing = (highest - lowest) / (bins + 1)
    corners = lowest + torch.arange(bins + 2, dtype=torch.float32) * spacing
    left, centre, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    mel = _mel(sample_rate / fft_size * torch.arange(fft_size // 2, dtype=torch.float32))
    rising = (mel - left) / (centre - left)
    falling = (right - mel) / (right - centre)
    triangles = torch.minimum(rising, falling).clamp_min(0.0)
    return functional.pad(triangles, (0, 1))  # the Nyquist bin belongs to no triangle


def _mel(hertz: Tensor) -> Tensor:
    """Return the mel scale in float32, each step of it rounded.

    The logarithm is the float32 nearest to it: fast float32 logarithms differ by processor.
    """
    logs = [math.log(ratio) for ratio in (1.0 + hertz / 700.0).tolist()]
    return 1127.0 * torch.tensor(logs, dtype=torch.float32)
