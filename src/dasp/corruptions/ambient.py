"""Six ways to damage a sound: white noise, and five surroundings laid over it.

A surrounding is synthesised from the generator, at an RMS of `REFERENCE_RMS` before the gain of
its severity, or it is read from a folder of recordings, at the level at which it was recorded.
The result is on the 16-bit grid, so that it is the same in memory and in a wav file.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import InputError
from dasp.core.sound import on_grid
from dasp.corruptions import babble, soundscapes
from dasp.corruptions.base import Wave, corruption
from dasp.corruptions.recordings import recorded_noise
from dasp.corruptions.synthesis import Array, to_rms

REFERENCE_RMS = 0.1  # of full scale, -20 dB
LOWEST_RATE = 8000

Folder = str | Path | None


@corruption("audio", "gaussian_noise", family="noise")
def gaussian_noise(
    wave: Wave, severity: int, generator: np.random.Generator, sample_rate: int
) -> Wave:
    """Add white noise of a fixed amplitude."""
    sigma = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    _check(wave, sample_rate)
    return on_grid(wave + sigma * generator.standard_normal(wave.size))


@corruption("audio", "traffic", family="noise", takes_folder=True)
def traffic(
    wave: Wave,
    severity: int,
    generator: np.random.Generator,
    sample_rate: int,
    folder: Folder = None,
) -> Wave:
    """Add a street: passing vehicles, engines and a horn."""
    return _overlay(soundscapes.traffic, wave, severity, generator, sample_rate, folder)


@corruption("audio", "crowd", family="noise", takes_folder=True)
def crowd(
    wave: Wave,
    severity: int,
    generator: np.random.Generator,
    sample_rate: int,
    folder: Folder = None,
) -> Wave:
    """Add the babble of many voices."""
    return _overlay(babble.crowd, wave, severity, generator, sample_rate, folder)


@corruption("audio", "rain", family="weather", takes_folder=True)
def rain(
    wave: Wave,
    severity: int,
    generator: np.random.Generator,
    sample_rate: int,
    folder: Folder = None,
) -> Wave:
    """Add a downpour: hiss and drops."""
    return _overlay(soundscapes.rain, wave, severity, generator, sample_rate, folder)


@corruption("audio", "thunder", family="weather", takes_folder=True)
def thunder(
    wave: Wave,
    severity: int,
    generator: np.random.Generator,
    sample_rate: int,
    folder: Folder = None,
) -> Wave:
    """Add claps of thunder that roll away."""
    return _overlay(soundscapes.thunder, wave, severity, generator, sample_rate, folder)


@corruption("audio", "wind", family="weather", takes_folder=True)
def wind(
    wave: Wave,
    severity: int,
    generator: np.random.Generator,
    sample_rate: int,
    folder: Folder = None,
) -> Wave:
    """Add gusts of wind that roar and howl."""
    return _overlay(soundscapes.wind, wave, severity, generator, sample_rate, folder)


def _overlay(
    synthesise: Callable[[np.random.Generator, int, int], Array],
    wave: Wave,
    severity: int,
    generator: np.random.Generator,
    sample_rate: int,
    folder: Folder,
) -> Wave:
    """Add a surrounding, louder with each severity; both the gain and the sum clip at 16 bits."""
    decibels = (1, 2, 4, 6, 8)[severity - 1]
    _check(wave, sample_rate)
    noise: NDArray[np.floating]
    if folder is None:
        noise = to_rms(synthesise(generator, wave.size, sample_rate), REFERENCE_RMS)
    else:
        noise = recorded_noise(folder, synthesise.__name__, wave.size, sample_rate)
    return on_grid(wave + on_grid(noise * 10 ** (decibels / 20)))


def _check(wave: Wave, sample_rate: int) -> None:
    if sample_rate < LOWEST_RATE:
        raise InputError(
            f"a sound of {sample_rate} Hz is too narrow for this corruption: "
            f"resample it to {LOWEST_RATE} Hz or more."
        )
    if not np.isfinite(wave).all():
        raise InputError("a sound holds values that are not numbers: decode the file again.")
