"""Sound and video files: 16 kHz mono wav in and out, and clips cut into frames and sound."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dasp.core.errors import DataError
from dasp.core.files import atomic_path
from dasp.data.causes import cause

SAMPLE_RATE = 16000
SHORTEST = 400  # samples: one 25 ms window of the filterbank
SECONDS = 10.0  # clips of the data sets last this long; what follows in a file is not used
MISSING_TAIL = 0.5  # seconds that containers may promise and not hold


def extra(module: str) -> Any:
    """Import a library of the [media] extra, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(
            f"reading and writing media needs '{module}': pip install 'dasp-tta[media]', or from a "
            "clone .venv/bin/pip install -c constraints.txt -e '.[media]'."
        ) from error


def read_wave(path: str | Path) -> NDArray[np.float32]:
    """Read a 16 kHz mono wav file as (samples,) float32; anything else is refused.

    Files at another rate or with more channels are not converted on the way: how a resampler
    is built changes the numbers, so the conversion is made once, by `dasp prepare`.
    """
    soundfile = extra("soundfile")
    try:
        _check_whole(Path(path))
        wave, rate = soundfile.read(str(path), dtype="float32", always_2d=True)
    except FileNotFoundError as error:
        raise DataError(
            f"no sound {path}: run 'dasp data check' to list what is missing."
        ) from error
    except (OSError, soundfile.SoundFileError) as error:
        raise DataError(f"cannot read the sound {path}: {cause(error)}; make it again.") from error
    if rate != SAMPLE_RATE or wave.shape[1] != 1:
        raise DataError(
            f"the sound {path} has {rate} Hz and {wave.shape[1]} channel(s), where 16000 Hz mono "
            "is expected: convert it, for instance with 'ffmpeg -i in.wav -ac 1 -ar 16000 out.wav'."
        )
    if len(wave) < SHORTEST:
        raise DataError(
            f"the sound {path} holds {len(wave)} samples, less than one window of {SHORTEST}: "
            "it is empty or cut off; make it again or take it off the list."
        )
    if not np.isfinite(wave).all():
        raise DataError(f"the sound {path} holds values that are not numbers: make it again.")
    mono: NDArray[np.float32] = wave[:, 0]
    return mono


def _check_whole(path: Path) -> None:
    """Refuse a wav file that is shorter than its header promises; the reader would not notice."""
    with path.open("rb") as file:
        header = file.read(8)
    promised = int.from_bytes(header[4:8], "little")
    unknown = promised == 0xFFFFFFFF  # written to a pipe
    if header[:4] == b"RIFF" and not unknown and path.stat().st_size < promised + 8:
        raise DataError(f"the sound {path} is cut off: its header promises more; make it again.")


def write_wave(path: str | Path, samples: NDArray[np.int16]) -> None:
    """Write (samples,) int16 as a 16 kHz mono wav file, whole or not at all."""
    soundfile = extra("soundfile")
    with atomic_path(path) as part:
        soundfile.write(str(part), samples, SAMPLE_RATE, subtype="PCM_16", format="WAV")


def decode_frames(path: str | Path, count: int) -> list[Image.Image]:
    """Return `count` frames of a video, evenly spaced: the first at each 1/count of its length.

    Where none begins after such a place, it is the last one, which is still shown there.
    """
    av = extra("av")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise DataError(f"{path} holds no pictures: take it off the list.")
            _check_boxes(Path(path))
            stream = container.streams.video[0]
            length = min(_length(container, stream), SECONDS)
            frames: list[Image.Image] = []
            end, frame = 0.0, None
            for frame in container.decode(video=0):
                begin = float(frame.time or 0) - _start(stream)
                end = begin + _shown(frame, stream)
                while len(frames) < count and begin >= len(frames) * length / count - 1e-3:
                    frames.append(frame.to_image())
                if begin > SECONDS:
                    break
            while frame is not None and len(frames) < count and end > len(frames) * length / count:
                frames.append(frame.to_image())
    except (av.FFmpegError, OSError) as error:
        raise DataError(f"cannot read the video {path}: {cause(error)}; fetch it again.") from error
    if len(frames) < count or end < length - MISSING_TAIL:
        raise DataError(
            f"the video {path} is cut off: {length:.1f} s of pictures are promised and "
            f"{end:.1f} s are there; fetch it again."
        )
    return frames


def decode_sound(path: str | Path) -> NDArray[np.int16]:
    """Return the sound of a video as (samples,) int16, 16 kHz mono."""
    av = extra("av")
    chunks: list[NDArray[np.int16]] = []
    try:
        with av.open(str(path)) as container:
            if not container.streams.audio:
                raise DataError(f"{path} holds no sound: take it off the list.")
            _check_boxes(Path(path))
            length = min(_length(container, container.streams.audio[0]), SECONDS)
            resampler = av.AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
            wanted = int(SECONDS * SAMPLE_RATE)
            for frame in container.decode(audio=0):
                chunks += [part.to_ndarray()[0] for part in resampler.resample(frame)]
                if sum(map(len, chunks)) >= wanted:
                    break
            chunks += [part.to_ndarray()[0] for part in resampler.resample(None)]
    except (av.FFmpegError, OSError) as error:
        raise DataError(
            f"cannot read the sound of {path}: {cause(error)}; fetch it again."
        ) from error
    samples = np.concatenate(chunks)[:wanted] if chunks else np.zeros(0, np.int16)
    if len(samples) < max(SHORTEST, (length - MISSING_TAIL) * SAMPLE_RATE):
        raise DataError(
            f"the sound of {path} is cut off: {length:.1f} s are promised and "
            f"{len(samples) / SAMPLE_RATE:.1f} s are there; fetch it again."
        )
    return samples


def _check_boxes(path: Path) -> None:
    """Refuse an mp4 file that ends inside one of its outermost boxes."""
    position, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            header = file.read(16)
            if position == 0 and header[4:8] != b"ftyp":
                return  # another container under this name
            box = int.from_bytes(header[:4], "big")
            if box == 1:  # the length is a longer number, after the name
                box = int.from_bytes(header[8:16], "big")
            if box < 8:  # 0: up to the end of the file; less: no box at all
                return
            position += box
    if position > size:
        raise DataError(f"the video {path} is cut off: {size} of {position} bytes; fetch it again.")


def _length(container: Any, stream: Any) -> float:
    if stream.duration is not None:
        return float(stream.duration * stream.time_base)
    return float(container.duration or 0) / 1e6


def _shown(frame: Any, stream: Any) -> float:
    """Return the seconds that a frame is shown: its own duration, else that of most frames."""
    if getattr(frame, "duration", None):
        return float(frame.duration * frame.time_base)
    return float(1 / stream.average_rate) if stream.average_rate else 0.0


def _start(stream: Any) -> float:
    return float((stream.start_time or 0) * stream.time_base)
