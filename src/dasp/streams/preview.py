"""Draw contact sheets: one clip or one built-in sample under every corruption and severity."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from dasp.core.files import atomic_path
from dasp.corruptions import names
from dasp.data.clips import Clip
from dasp.data.features import corruption_image, fbank
from dasp.data.media import read_frame, read_wave
from dasp.data.shapes import SENSORS, SoundingShapes
from dasp.streams.domains import SEVERITIES, Domain, DomainDamage

NAMES = ("frames", "sounds", "depths")
CELL = 160  # pixels per picture
GAP = 6
LEFT = 150  # width of the names
TOP = 34
COLOURS = np.array(  # dark blue to yellow, uniform in lightness
    [(12, 8, 60), (84, 18, 120), (170, 50, 100), (235, 110, 50), (250, 220, 90)], dtype=float
)
QUIET, LOUD = -14.0, 6.0  # log-mel energies at the ends of the colours
NEAR, FAR = 500.0, 2800.0  # millimetres at the bright and the dark end of the colours
NOTHING = (200, 200, 200)  # pixels without return


def preview_frames(
    clip: Clip, seed: int = 0, frame: int | None = None, frost_dir: Path | None = None
) -> Image.Image:
    """Return a sheet of one frame: one row per corruption, clean and severities 1 to 5."""
    index = clip.frame_index(frame)
    image = corruption_image(read_frame(clip.frames[index]))

    def picture(domain: Domain | None) -> Image.Image:
        if domain is None:
            return Image.fromarray(image)
        damage = DomainDamage(domain, seed, frost_dir=frost_dir)
        return Image.fromarray(damage.frame(image, clip.frame_id(index)))

    return _sheet("video", picture, f"{clip.id}, frame {index}, seed {seed}")


def preview_sounds(clip: Clip, seed: int = 0, noise_dir: Path | None = None) -> Image.Image:
    """Return a sheet of spectrograms: one row per corruption, time to the right, pitch upwards."""
    wave = read_wave(clip.wav)

    def picture(domain: Domain | None) -> Image.Image:
        if domain is None:
            return spectrogram(wave)
        damage = DomainDamage(domain, seed, noise_dir=noise_dir)
        return spectrogram(damage.sound(wave, clip.id))

    return _sheet("audio", picture, f"{clip.id}, log-mel, seed {seed}")


def preview_shapes(index: int = 0, flavour: str = "balanced", seed: int = 0) -> list[Image.Image]:
    """Return the sheets of one sample of the built-in set: frames, sounds and depths."""

    def sample(domain: Domain | None) -> SoundingShapes:
        damage = None if domain is None else DomainDamage(domain, seed)
        return SoundingShapes("test", index + 1, flavour, damage=damage, modalities=SENSORS)

    pictures: dict[str, Callable[[Domain | None], Image.Image]] = {
        "video": lambda domain: Image.fromarray(sample(domain).frame(index)),
        "audio": lambda domain: spectrogram(sample(domain).wave(index)),
        "depth": lambda domain: distances(sample(domain).depth(index)),
    }
    title = f"{sample(None).sample_id(index)}, seed {seed}"
    return [_sheet(modality, picture, title) for modality, picture in pictures.items()]


def distances(depth: NDArray[np.uint16]) -> Image.Image:
    """Return an (H, W) depth map in millimetres as a picture: near is bright, no return is grey.

    >>> distances(np.full((32, 32), 900, np.uint16)).size
    (32, 32)
    """
    pixels = _coloured(np.clip((FAR - depth) / (FAR - NEAR), 0, 1))
    pixels[depth == 0] = NOTHING
    return Image.fromarray(pixels)


def spectrogram(wave: NDArray[np.float32]) -> Image.Image:
    """Return the log-mel energies of a (samples,) wave as a picture, 128 mels high.

    >>> spectrogram(np.zeros(16000, np.float32)).size
    (98, 128)
    """
    energies = fbank(wave).numpy().T[::-1]  # (128, frames), low pitch at the bottom
    return Image.fromarray(_coloured(np.clip((energies - QUIET) / (LOUD - QUIET), 0, 1)))


def _coloured(level: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return levels from 0 to 1 as colours: (H, W) → (H, W, 3)."""
    steps = np.linspace(0, 1, len(COLOURS))
    channels = [np.interp(level, steps, COLOURS[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1).astype(np.uint8)


def save_sheets(sheets: Sequence[Image.Image], folder: Path) -> list[Path]:
    """Write all sheets (frames, sounds and possibly depths) or none; return their paths."""
    targets = [folder / f"preview-{name}.png" for name in NAMES[: len(sheets)]]
    with ExitStack() as stack:
        parts = [stack.enter_context(atomic_path(target)) for target in targets]
        for sheet, part in zip(sheets, parts, strict=True):
            sheet.save(part, "PNG")
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
