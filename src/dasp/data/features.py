"""Turn waveforms and pictures into the inputs of a model: log-mel as Kaldi's, normalised frames."""

import math
from functools import lru_cache, reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dasp.core.errors import InputError, OptionError
from dasp.core.extras import Pillow

MEL_BINS = 128
WINDOW_MS = 25.0
PRE_EMPHASIS = 0.97
LOWEST_HZ = 20.0
LOG_FLOOR = torch.finfo(torch.float32).eps  # 1.19e-7
BLOCK = 512  # frames per transform: float64 arrays of a whole batch are slow to allocate
NORM_MEAN, NORM_STD = -5.081, 4.4849  # of the training data of CAV-MAE

SIDE = 224
CORRUPTION_SIDE = 256  # frames are resized to this before the crop that is corrupted
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def fbank(
    wave: Tensor | NDArray[np.float32], sample_rate: int = 16000, hop_ms: float = 10.0
) -> Tensor:
    """Return Kaldi's log-mel energies: (..., samples) -> (..., frames, 128), one or two axes.

    frames = 1 + (samples - window) // hop, with whole windows of 25 ms (Hann) and no dither; the
    mean of each wave is subtracted first. Every step is rounded to float32 where Kaldi rounds; the
    Fourier transform is computed in float64. Builds of Kaldi that do so too agree within 3e-4,
    others to 1e-3 within 60 dB of a frame's largest amplitude.

    >>> fbank(torch.zeros(16000)).shape
    torch.Size([98, 128])
    """
    # Copied because torch cannot share read-only or reversed arrays.
    signal = wave if isinstance(wave, Tensor) else torch.from_numpy(np.array(wave, order="C"))
    if not signal.is_floating_point() or signal.ndim not in (1, 2):
        raise InputError(
            f"a sound must be a (samples,) or (batch, samples) float array, not "
            f"{tuple(signal.shape)} {signal.dtype}: mix it to mono and scale it to [-1, 1] first."
        )
    window_size, hop = (int(sample_rate * ms * 0.001) for ms in (WINDOW_MS, hop_ms))
    if window_size < 2 or hop < 1 or sample_rate / 2 <= LOWEST_HZ:
        raise OptionError(f"{sample_rate} Hz is too low for a hop of {hop_ms:g} ms.")
    if signal.shape[-1] < window_size:
        raise InputError(
            f"a wave of {signal.shape[-1]} samples is shorter than one window of {window_size} "
            f"({WINDOW_MS:g} ms at {sample_rate} Hz): omit it or pad it with silence."
        )
    fft_size = 1 << (window_size - 1).bit_length()
    signal = signal.float()
    signal = signal - signal.mean(dim=-1, keepdim=True, dtype=torch.float64).float()
    frames = signal.unfold(-1, window_size, hop)  # (..., frames, window)
    frames = frames - _sum_in_order(frames) / window_size
    before = torch.cat((frames[..., :1], frames[..., :-1]), dim=-1)
    frames = (frames - PRE_EMPHASIS * before) * _hann(window_size).to(signal.device)
    blocks = torch.split(frames.flatten(0, -2), BLOCK)
    power = torch.cat([_power(block, fft_size) for block in blocks])
    power = power.view(*frames.shape[:-1], -1)  # (..., frames, 1 + fft/2)
    energies: Tensor = power @ _mel_bank(fft_size, sample_rate).to(signal.device).T
    return energies.clamp_min(LOG_FLOOR).log()


def log_mel(
    wave: Tensor | NDArray[np.float32],
    sample_rate: int = 16000,
    frames: int = 1024,
    hop_ms: float = 10.0,
) -> Tensor:
    """Return the model's input: (..., samples) -> (..., frames, 128), normalised.

    A sound is padded with zeros or cut before normalising, as in the training of the models.

    >>> log_mel(torch.zeros(16000), frames=64, hop_ms=20.0).shape
    torch.Size([64, 128])
    """
    if frames < 1:
        raise OptionError(f"frames must be at least 1, not {frames}.")
    energies = fbank(wave, sample_rate, hop_ms)
    fitted = functional.pad(energies, (0, 0, 0, frames - energies.shape[-2]))
    return (fitted - NORM_MEAN) / NORM_STD


def _sum_in_order(frames: Tensor) -> Tensor:
    """Return the float32 sum of the last axis, added from first to last, as Kaldi does.

    Another last bit of the mean shows in energies 100 dB or more below the largest.
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
@torch.inference_mode(False)  # cached for later calls, which may need gradients
def _hann(size: int) -> Tensor:
    """Return the symmetric Hann window, computed in float64 and rounded to float32."""
    step = 2 * math.pi / (size - 1)
    return torch.tensor([0.5 - 0.5 * math.cos(step * i) for i in range(size)], dtype=torch.float32)


@lru_cache(maxsize=16)
@torch.inference_mode(False)
def _mel_bank(fft_size: int, sample_rate: int) -> Tensor:
    """Return (128, 1 + fft_size / 2) triangles, evenly spaced on the mel scale, in float32.

    float32 is part of the definition: it shifts the edges slightly, and with them the weight of
    a frequency next to an edge.
    """
    lowest, highest = _mel(torch.tensor([LOWEST_HZ, sample_rate / 2], dtype=torch.float32))
    spacing = (highest - lowest) / (MEL_BINS + 1)
    corners = lowest + torch.arange(MEL_BINS + 2, dtype=torch.float32) * spacing
    left, centre, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    mel = _mel(sample_rate / fft_size * torch.arange(fft_size // 2, dtype=torch.float32))
    rising = (mel - left) / (centre - left)
    falling = (right - mel) / (right - centre)
    triangles = torch.minimum(rising, falling).clamp_min(0.0)
    return functional.pad(triangles, (0, 1))  # the Nyquist bin belongs to no triangle


def _mel(hertz: Tensor) -> Tensor:
    """Return the mel scale in float32; fast float32 logarithms differ between processors."""
    logs = [math.log(ratio) for ratio in (1.0 + hertz / 700.0).tolist()]
    return 1127.0 * torch.tensor(logs, dtype=torch.float32)


def frame_tensor(frame: "Pillow.Image") -> torch.Tensor:
    """Return the model's input (3, 224, 224): shorter side to 224 bicubic, centre crop, scaled.

    >>> frame_tensor(Pillow.new("RGB", (640, 360))).shape
    torch.Size([3, 224, 224])
    """
    cropped = _centre_crop(shorter_side(frame, SIDE, Pillow.Resampling.BICUBIC))
    return normalised(np.array(cropped))


def normalised(images: NDArray[np.uint8] | Tensor) -> Tensor:
    """Return (..., H, W, 3) bytes as (..., 3, H, W), scaled by the statistics of ImageNet."""
    pixels = torch.as_tensor(images).float() / 255
    return ((pixels - torch.tensor(MEAN)) / torch.tensor(STD)).movedim(-1, -3)


def corruption_image(frame: "Pillow.Image") -> NDArray[np.uint8]:
    """Return the (224, 224, 3) image to corrupt: shorter side to 256, centre crop 224."""
    return np.array(_centre_crop(shorter_side(frame, CORRUPTION_SIDE, Pillow.Resampling.BILINEAR)))


def shorter_side(frame: "Pillow.Image", side: int, resample: "Pillow.Resampling") -> "Pillow.Image":
    """Resize the shorter side to `side`; the longer side is rounded down."""
    width, height = frame.size
    short, long = sorted((width, height))
    if short == side:
        return frame
    other = max(side, side * long // short)
    size = (side, other) if width <= height else (other, side)
    return frame.resize(size, resample)


def _centre_crop(frame: "Pillow.Image") -> "Pillow.Image":
    left, top = round((frame.width - SIDE) / 2), round((frame.height - SIDE) / 2)
    return frame.crop((left, top, left + SIDE, top + SIDE))
