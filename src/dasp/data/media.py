"""Read and write media files: wav, pictures, and videos decoded into frames and sound."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import DataError, cause
from dasp.core.extras import Pillow, extra
from dasp.core.files import atomic_path

SAMPLE_RATE = 16000
SHORTEST = 400  # samples: one 25 ms window of the filterbank
SECONDS = 10.0  # clips of the data sets last this long; the rest of a file is not used
MISSING_TAIL = 0.5  # seconds by which a container may overstate its length
JPEG_QUALITY = 85  # of the corrupted frames in the releases
UNKNOWN = 0xFFFFFFFF
LONGEST = 256  # times the shorter side of a frame: more is no picture, and takes GBs when resized
MISSING = "make it with 'dasp prepare', or remove its clip from the list."


def read_wave(path: str | Path) -> NDArray[np.float32]:
    """Read a 16 kHz mono wav file as (samples,) float32; refuse anything else.

    Others are not converted: the numbers depend on the resampler, so `dasp prepare` does it once.
    """
    soundfile = extra("soundfile")
    try:
        _check_whole(Path(path))
        wave, rate = soundfile.read(str(path), dtype="float32", always_2d=True)
    except FileNotFoundError as error:
        raise DataError(f"no sound {path}: {MISSING}") from error
    except (OSError, soundfile.SoundFileError) as error:
        raise DataError(f"cannot read the sound {path}: {cause(error)}; make it again.") from error
    if rate != SAMPLE_RATE or wave.shape[1] != 1:
        raise DataError(
            f"the sound {path} has {rate} Hz and {wave.shape[1]} channel(s), where 16000 Hz mono "
            "is expected: convert it, for instance with 'ffmpeg -i in.wav -ac 1 -ar 16000 out.wav'."
        )
    if len(wave) < SHORTEST:
        raise DataError(
            f"the sound {path} has {len(wave)} samples, less than one window of {SHORTEST}: "
            "it is empty or truncated; make it again or remove it from the list."
        )
    if not np.isfinite(wave).all():
        raise DataError(f"the sound {path} contains NaN or infinite values: make it again.")
    return np.asarray(wave[:, 0], np.float32)


def _check_whole(path: Path) -> None:
    """Raise an error for a wav file that ends inside its samples, which the reader does not notice.

    The chunk "data" decides (in RF64 "ds64" has its size); the size of the whole is often wrong.
    """
    end, long = path.stat().st_size, None
    with path.open("rb") as file:
        if file.read(12)[:4] not in (b"RIFF", b"RF64"):
            return
        while len(header := file.read(8)) == 8:
            name, size = header[:4], int.from_bytes(header[4:], "little")
            if name == b"ds64":
                long = int.from_bytes(file.read(16)[8:], "little")
                size -= 16
            if name == b"data":
                size = size if long is None or size != UNKNOWN else long
                if size == UNKNOWN:
                    raise DataError(
                        f"the sound {path} does not state its length, as it was written to a pipe, "
                        "so that it may be truncated: copy it with 'ffmpeg -i in.wav out.wav'."
                    )
                if file.tell() + size <= end:
                    return
                break
            file.seek(max(0, size) + size % 2, os.SEEK_CUR)
    raise DataError(f"the sound {path} is truncated: it ends inside its samples; make it again.")


def write_wave(path: str | Path, samples: NDArray[np.int16]) -> None:
    """Write (samples,) int16 as a 16 kHz mono wav file, atomically."""
    soundfile = extra("soundfile")
    with atomic_path(path) as part:
        soundfile.write(str(part), samples, SAMPLE_RATE, subtype="PCM_16", format="WAV")


def read_frame(path: str | Path) -> "Pillow.Image":
    """Read a colour or grey picture as RGB; refuse others, whose colours are a guess."""
    from PIL import UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Pillow.DecompressionBombWarning)
            with Pillow.open(path) as picture:
                if max(picture.size) > LONGEST * min(picture.size):
                    raise ValueError("{} by {} pixels is too narrow".format(*picture.size))
                picture.load()
                if picture.mode in ("RGB", "L"):
                    return picture.convert("RGB")
    except FileNotFoundError as error:
        raise DataError(f"no frame {path}: {MISSING}") from error
    except UnidentifiedImageError as error:
        raise DataError(f"cannot read the frame {path}: not a picture; make it again.") from error
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError, Warning) as error:
        raise DataError(f"cannot read the frame {path}: {cause(error)}; make it again.") from error
    raise DataError(
        f"the frame {path} has colour mode {picture.mode}, where 8-bit RGB or grey is expected: "
        "convert it first, for instance with Pillow's Image.open(...).convert('RGB')."
    )


def jpeg(image: NDArray[np.uint8]) -> bytes:
    """Encode an (H, W, 3) image as the releases save their corrupted frames."""
    buffer = BytesIO()
    Pillow.fromarray(image).save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return buffer.getvalue()


def decode_frames(path: str | Path, count: int) -> "list[Pillow.Image]":
    """Return `count` evenly spaced frames of a video: the first at or after each 1/count of it.

    The last frame stands for those after it.
    """
    with _opened(path, "video", "pictures") as (container, stream, length):
        frames: list[Pillow.Image] = []
        end, frame = 0.0, None
        for frame in container.decode(video=0):
            begin = float(frame.time or 0) - float((stream.start_time or 0) * stream.time_base)
            shown = getattr(frame, "duration", None)  # else for the average time
            average = 1 / stream.average_rate if stream.average_rate else 0
            end = begin + float(shown * frame.time_base if shown else average)
            while len(frames) < count and begin >= len(frames) * length / count - 1e-3:
                frames.append(frame.to_image())
            if begin > SECONDS:
                break
        while frame is not None and len(frames) < count and end > len(frames) * length / count:
            frames.append(frame.to_image())
    if len(frames) < count or end < length - MISSING_TAIL:
        there = f"{end:.1f} s of {length:.1f} s of pictures are there"
        raise DataError(f"the video {path} is truncated: {there}; fetch it again.")
    return frames


def decode_whole(path: str | Path) -> NDArray[np.uint8]:
    """Return every frame of a short video: (frames, H, W, 3)."""
    with _opened(path, "video", "pictures") as (container, stream, length):
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        rate = float(stream.average_rate or 0)
    if not frames or len(frames) < (length - MISSING_TAIL) * rate:
        raise DataError(
            f"the video {path} is truncated: {len(frames)} frames of {length:.1f} s are there; "
            "fetch it again."
        )
    return np.stack(frames)


def decode_sound(path: str | Path) -> NDArray[np.int16]:
    """Return the sound of a video as (samples,) int16, 16 kHz mono."""
    chunks: list[NDArray[np.int16]] = []
    wanted = int(SECONDS * SAMPLE_RATE)
    with _opened(path, "audio", "sound") as (container, _, length):
        resampler = extra("av").AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
        for frame in container.decode(audio=0):
            chunks += [part.to_ndarray()[0] for part in resampler.resample(frame)]
            if sum(map(len, chunks)) >= wanted:
                break
        chunks += [part.to_ndarray()[0] for part in resampler.resample(None)]
    samples = np.concatenate(chunks)[:wanted] if chunks else np.zeros(0, np.int16)
    if len(samples) < max(SHORTEST, (length - MISSING_TAIL) * SAMPLE_RATE):
        there = f"{len(samples) / SAMPLE_RATE:.1f} s of {length:.1f} s are there"
        raise DataError(f"the sound of {path} is truncated: {there}; fetch it again.")
    return samples


@contextmanager
def _opened(path: str | Path, kind: str, what: str) -> Iterator[tuple[Any, Any, float]]:
    """Open a video; yield the container, its first stream of a kind, and the seconds to use."""
    av = extra("av")
    try:
        with av.open(str(path)) as container:
            streams = getattr(container.streams, kind)
            if not streams:
                raise DataError(f"{path} has no {what}: remove it from the list.")
            _check_boxes(Path(path))
            yield container, streams[0], min(_length(container, streams[0]), SECONDS)
    except (av.FFmpegError, OSError) as error:
        fault = f"cannot read the {what} of {path}: {cause(error)}"
        raise DataError(f"{fault}; fetch it again.") from error


def _check_boxes(path: Path) -> None:
    """Raise an error for an mp4 file that ends inside one of its top-level boxes."""
    position, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            header = file.read(16)
            if position == 0 and header[4:8] != b"ftyp":
                return  # another container format
            box = int.from_bytes(header[:4], "big")
            if box == 1:  # a 64-bit length follows the name
                box = int.from_bytes(header[8:16], "big")
            if box < 8:  # 0: up to the end of the file; less: not a box
                return
            position += box
    if position > size:
        there = f"{size} of {position} bytes"
        raise DataError(f"the video {path} is truncated: {there}; fetch it again.")


def _length(container: Any, stream: Any) -> float:
    if stream.duration is not None:
        return float(stream.duration * stream.time_base)
    return float(container.duration or 0) / 1e6
