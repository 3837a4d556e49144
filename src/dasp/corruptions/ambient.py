"""Corruptions of sounds: white noise, and five kinds of background sound.

A background is synthesised from the generator with an RMS of `REFERENCE_RMS` before the gain of
its severity, or read from a directory of recordings, such as READ's five, at its recorded level:
from its start, as in the release; a sound shorter than a second takes a part that is drawn, as a
recording may begin in silence.
The result is rounded to 16 bits, so that it is the same in memory and in a wav file.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import DataError, InputError
from dasp.core.extras import extra
from dasp.core.sound import on_grid, resample
from dasp.corruptions import soundscapes
from dasp.corruptions.base import Wave, corruption
from dasp.corruptions.synthesis import Array, to_rms

REFERENCE_RMS = 0.1  # of full scale, -20 dB
LOWEST_RATE = 8000


@corruption("audio", "gaussian_noise", family="noise")
def gaussian_noise(
    wave: Wave, severity: int, generator: np.random.Generator, sample_rate: int
) -> Wave:
    """Add white noise of a fixed amplitude."""
    sigma = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    _check(wave, sample_rate)
    return on_grid(wave + sigma * generator.standard_normal(wave.size))


def _add_background(
    synthesise: Callable[[np.random.Generator, int, int], Array],
    wave: Wave,
    severity: int,
    generator: np.random.Generator,
    sample_rate: int,
    folder: str | Path | None = None,
) -> Wave:
    """Add a background, louder with severity; both the amplified noise and the sum are clipped."""
    decibels = (1, 2, 4, 6, 8)[severity - 1]
    _check(wave, sample_rate)
    noise: NDArray[np.floating]
    if folder is None:
        noise = to_rms(synthesise(generator, wave.size, sample_rate), REFERENCE_RMS)
    else:
        drawn = generator if wave.size < sample_rate else None
        noise = recorded_noise(folder, synthesise.__name__, wave.size, sample_rate, drawn)
    return on_grid(wave + on_grid(noise * 10 ** (decibels / 20)))


for _synthesise, _family in (
    (soundscapes.traffic, "noise"),
    (soundscapes.crowd, "noise"),
    (soundscapes.rain, "weather"),
    (soundscapes.thunder, "weather"),
    (soundscapes.wind, "weather"),
):
    corruption("audio", _synthesise.__name__, _family, takes_folder=True)(
        partial(_add_background, _synthesise)
    )


def recorded_noise(
    folder: str | Path,
    name: str,
    samples: int,
    sample_rate: int,
    generator: np.random.Generator | None = None,
) -> NDArray[np.float32]:
    """Return (samples,) of `folder/name.wav` from its start, repeated if it is too short.

    With a generator, from a time that it draws, if the recording is longer.
    Channels are averaged and the rate is changed to `sample_rate`; the level is kept.
    """
    path = Path(folder) / f"{name}.wav"
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(
            f"no recording {path} ({error.strerror}): a noise directory has traffic.wav, "
            "crowd.wav, rain.wav, thunder.wav and wind.wav; without it the noise is synthesised."
        ) from error
    recording = _read(path, sample_rate, status.st_mtime_ns, status.st_size)
    spare = recording.size - samples
    first = 0 if generator is None or spare <= 0 else int(generator.integers(spare + 1))
    return np.resize(recording[first:], samples)


@lru_cache(maxsize=8)
def _read(path: Path, sample_rate: int, _modified: int, _size: int) -> NDArray[np.float32]:
    """Decode once for all clips; a changed file has another date or size and is read again."""
    soundfile = extra("soundfile")
    try:
        wave, file_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise DataError(f"cannot read {path} ({error}): replace it by an intact file.") from error
    if wave.size == 0 or not np.isfinite(wave).all():
        fault = "contains NaN or infinite values" if wave.size else "is empty"
        raise DataError(f"{path} {fault}: replace it by a recording.")
    mono = resample(wave.mean(axis=1, dtype=np.float32), int(file_rate), sample_rate)
    mono.setflags(write=False)
    return mono


def _check(wave: Wave, sample_rate: int) -> None:
    if sample_rate < LOWEST_RATE:
        raise InputError(
            f"the sampling rate of {sample_rate} Hz is too low for this corruption: "
            f"resample to {LOWEST_RATE} Hz or more."
        )
    if not np.isfinite(wave).all():
        raise InputError("the sound contains NaN or infinite values: decode the file again.")
