"""Background recordings from a folder of the user's, such as READ's five."""

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import DataError
from dasp.core.sound import resample


def recorded_noise(
    folder: str | Path, name: str, samples: int, sample_rate: int
) -> NDArray[np.float32]:
    """Return (samples,) of `folder/name.wav`: from its start, looped where it is too short.

    Channels are averaged and the rate is changed to `sample_rate`; the level stays as recorded.
    """
    path = Path(folder) / f"{name}.wav"
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(
            f"no recording {path} ({error.strerror}): a noise folder holds traffic.wav, crowd.wav, "
            "rain.wav, thunder.wav and wind.wav; without a folder the noise is synthesised."
        ) from error
    recording = _read(path, sample_rate, status.st_mtime_ns, status.st_size)
    return np.resize(recording, samples)


@lru_cache(maxsize=8)
def _read(path: Path, sample_rate: int, _modified: int, _size: int) -> NDArray[np.float32]:
    """Decode once for all clips; a changed file has another date or size and is read again."""
    try:
        import soundfile
    except ImportError as error:
        raise DataError(
            f"cannot read {path}: soundfile is not installed. Install it with "
            "`pip install 'dasp-tta[media]'`, or leave the noise folder out."
        ) from error
    try:
        wave, file_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise DataError(f"cannot read {path} ({error}): replace it by a whole wav file.") from error
    if wave.shape[0] == 0 or not np.isfinite(wave).all():
        fault = "holds no sound" if wave.shape[0] == 0 else "holds values that are not numbers"
        raise DataError(f"{path} {fault}: replace it by a recording.")
    mono = resample(wave.mean(axis=1, dtype=np.float32), int(file_rate), sample_rate)
    mono.setflags(write=False)
    return mono
