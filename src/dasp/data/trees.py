"""Corrupted copies on disk, where READ puts them: `<folder>-C/<corruption>/severity_<k>/…`."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from dasp.core.errors import DataError, OptionError
from dasp.data.causes import cause
from dasp.data.manifest import Clip, Manifest


def corrupted_dir(folder: Path, corruption: str, severity: int, out: Path | None = None) -> Path:
    """Return the folder of the corrupted copies of `folder`, beside it or in `out`.

    >>> corrupted_dir(Path("data/audio"), "rain", 3).as_posix()
    'data/audio-C/rain/severity_3'
    """
    return (out or folder.parent) / f"{folder.name}-C" / corruption / f"severity_{severity}"


def corrupted_frame(
    clip: Clip, index: int, corruption: str, severity: int, out: Path | None = None
) -> Path:
    """Return the path of the corrupted copy of a frame: always a JPEG file."""
    folder = corrupted_dir(clip.video_dir, corruption, severity, out)
    return (folder / clip.frames[index].relative_to(clip.video_dir)).with_suffix(".jpg")


def corrupted_wav(clip: Clip, corruption: str, severity: int, out: Path | None = None) -> Path:
    """Return the path of the corrupted copy of a clip's sound."""
    folder = corrupted_dir(clip.audio_dir, corruption, severity, out)
    return folder / clip.wav.relative_to(clip.audio_dir)


def premade(
    manifest: Manifest,
    modality: str,
    corruption: str,
    severity: int,
    out: str | Path | None = None,
) -> Manifest:
    """Return the manifest with one modality taken from a corrupted tree made before.

    `out` is the folder that holds the `-C` folders when it is not beside the clean ones.
    """
    if modality not in ("audio", "video"):
        raise OptionError(f"modality is 'audio' or 'video', not '{modality}'.")
    place = Path(out) if out is not None else None

    def moved(clip: Clip) -> Clip:
        if modality == "audio":
            return replace(clip, wav=corrupted_wav(clip, corruption, severity, place))
        frames = (
            corrupted_frame(clip, i, corruption, severity, place) for i in range(len(clip.frames))
        )
        return replace(clip, frames=tuple(frames))

    return replace(manifest, clips=tuple(moved(clip) for clip in manifest.clips))


def check_writable(folder: Path, name: str = "") -> None:
    """Make `folder` if it is not there, or say why nothing can be written to it: before the work.

    With `name`, the file of that name may be there, but not a folder. Permissions do not tell
    everything, so a file is really made, and goes at once.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"cannot write to {folder}: it is no folder; choose another place.")
    if name and (folder / name).is_dir():
        raise DataError(f"cannot write {folder / name}: it is a folder; give a file name.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(
            f"cannot write to {folder}: {cause(error)}; choose another place."
        ) from error


def remove_leftovers(folder: Path) -> None:
    """Delete the unfinished files that a killed run left below `folder`.

    Those younger than a second may belong to a run that is still going, and stay.
    """
    for part in folder.rglob(".*.part.*"):
        if time.time() - part.stat().st_mtime > 1:
            part.unlink(missing_ok=True)
