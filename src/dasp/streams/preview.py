"""Contact sheets: one clip under every corruption and severity, to be looked at."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from dasp.core.files import atomic_path
from dasp.corruptions import names
from dasp.data.audio import fbank
from dasp.data.manifest import Clip
from dasp.data.media import read_wave
from dasp.data.video import corruption_image, read_frame
from dasp.streams.domains import SEVERITIES, Domain, DomainDamage

CELL = 160  # pixels a picture
GAP = 6
LEFT = 150  # room for the names
TOP = 34
COLOURS = np.array(  # dark blue to yellow, even in lightness
    [(12, 8, 60), (84, 18, 120), (170, 50, 100), (235, 110, 50), (250, 220, 90)], dtype=float
)
QUIET, LOUD = -14.0, 6.0  # log-mel energies at the ends of the colours


def preview_frames(
    clip: Clip, seed: int = 0, frame: int | None = None, frost_dir: Path | None = None
) -> Image.Image:
    """Return a sheet of one frame: a row a corruption, the clean frame and severities 1 to 5."""
    index = clip.frame_index(frame)
    image = corruption_image(read_frame(clip.frames[index]))

    def picture(domain: Domain | None) -> Image.Image:
        if domain is None:
            return Image.fromarray(image)
        damage = DomainDamage(domain, seed, frost_dir=frost_dir)
        return Image.fromarray(damage.frame(image, clip.frame_id(index)))

    return _sheet("video", picture, f"{clip.id}, frame {index}, seed {seed}")


def preview_sounds(clip: Clip, seed: int = 0, noise_dir: Path | None = None) -> Image.Image:
    """Return a sheet of spectrograms: a row a corruption, time to the right, pitch upwards."""
    wave = read_wave(clip.wav)

    def picture(domain: Domain | None) -> Image.Image:
        if domain is None:
            return spectrogram(wave)
        damage = DomainDamage(domain, seed, noise_dir=noise_dir)
        return spectrogram(damage.sound(wave, clip.id))

    return _sheet("audio", picture, f"{clip.id}, log-mel, seed {seed}")


def spectrogram(wave: NDArray[np.float32]) -> Image.Image:
    """Return the log-mel energies of a (samples,) wave as a picture, 128 mels high.

    >>> spectrogram(np.zeros(16000, np.float32)).size
    (98, 128)
    """
    energies = fbank(wave).numpy().T[::-1]  # (128, frames), low pitch at the bottom
    level = np.clip((energies - QUIET) / (LOUD - QUIET), 0, 1)
    steps = np.linspace(0, 1, len(COLOURS))
    channels = [np.interp(level, steps, COLOURS[:, channel]) for channel in range(3)]
    return Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))


def save_sheets(frames: Image.Image, sounds: Image.Image, folder: Path) -> tuple[Path, Path]:
    """Write both sheets or neither, and return where they are."""
    targets = folder / "preview-frames.png", folder / "preview-sounds.png"
    with atomic_path(targets[0]) as first, atomic_path(targets[1]) as second:
        frames.save(first, "PNG")
        sounds.save(second, "PNG")
    return targets


def _sheet(
    modality: str, picture: Callable[[Domain | None], Image.Image], title: str
) -> Image.Image:
    rows = names(modality)
    step = CELL + GAP
    size = (LEFT + step * (1 + len(SEVERITIES)), TOP * 2 + step * len(rows))
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(14)
    draw.text((GAP, GAP), title, "black", font)
    headings: Sequence[str] = ("clean", *(f"severity {k}" for k in SEVERITIES))
    for column, heading in enumerate(headings):
        draw.text((LEFT + column * step, TOP + GAP), heading, "black", font)
    for row, name in enumerate(rows):
        top = TOP * 2 + row * step
        draw.text((GAP, top + CELL // 2 - 8), name, "black", font)
        domains = (None, *(Domain(modality, name, k) for k in SEVERITIES))
        for column, domain in enumerate(domains):
            cell = picture(domain).resize((CELL, CELL), Image.Resampling.LANCZOS)
            sheet.paste(cell, (LEFT + column * step, top))
    return sheet
