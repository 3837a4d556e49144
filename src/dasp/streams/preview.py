"""Draw contact sheets: a clip, word, segment or built-in sample under every corruption."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from dasp.core.files import atomic_path
from dasp.core.sensors import SENSORS
from dasp.corruptions import names
from dasp.data.clips import Clip
from dasp.data.features import corruption_image, fbank
from dasp.data.grid import WordClip, read_frames, read_sound
from dasp.data.inertial import Segment, read_segment, triads_of
from dasp.data.media import read_frame, read_wave
from dasp.data.shapes import SoundingShapes
from dasp.streams.domains import SEVERITIES, Domain, DomainDamage

NAMES = {"video": "frames", "audio": "sounds", "depth": "depths"}  # others go by their own
CELL, GAP, LEFT, TOP = 160, 6, 150, 34  # pixels: a picture, around it, the names, the headings
COLOURS = np.array(  # dark blue to yellow, uniform in lightness
    [(12, 8, 60), (84, 18, 120), (170, 50, 100), (235, 110, 50), (250, 220, 90)], dtype=float
)
QUIET, LOUD = -14.0, 6.0  # log-mel energies at the ends of the colours
NEAR, FAR = 500.0, 2800.0  # millimetres at the bright and the dark end of the colours
NOTHING = (200, 200, 200)  # pixels without return
REACH = 3.0  # g, rad/s or earth's fields at the edges of a picture of an inertial signal
AXES = ("#3b4cc0", "#c2410c", "#15803d")  # x, y, z

Samples = dict[str, tuple[NDArray[Any], str]]  # by modality: a sample and its id


def clip_samples(clip: Clip) -> Samples:
    """Return the middle frame and the sound of a clip, by the ids that seed their corruption."""
    image = corruption_image(read_frame(clip.frame))
    return {"video": (image, clip.frame_id), "audio": (read_wave(clip.wav), clip.id)}


def shape_samples(index: int) -> Samples:
    """Return the frame, the sound and the depth map of a test sample of the built-in set."""
    shapes = SoundingShapes("test", index + 1)
    drawn: dict[str, NDArray[Any]] = {
        "video": shapes.frame(index),
        "audio": shapes.wave(index),
        "depth": shapes.depth(index),
    }
    return {sensor: (sample, shapes.sample_id(index)) for sensor, sample in drawn.items()}


def word_samples(clip: WordClip) -> Samples:
    """Return the frames and the sound of a word."""
    return {"video": (read_frames(clip), clip.id), "audio": (read_sound(clip), clip.id)}


def segment_samples(segment: Segment) -> Samples:
    """Return the signals of each kind of sensor of a segment."""
    values = read_segment(segment.path)
    return {name: (triads_of(values, name), segment.id) for name in SENSORS}


def draw_sheets(samples: Samples, damage: DomainDamage) -> dict[str, Image.Image]:
    """Return one sheet per modality; `damage` has the seed and the user's files."""
    return {modality: _sheet(modality, *sample, damage) for modality, sample in samples.items()}


def save_sheets(sheets: Mapping[str, Image.Image], folder: Path) -> list[Path]:
    """Write all sheets (frames, sounds, …) or none; return their paths."""
    targets = [folder / f"preview-{NAMES.get(name, name)}.png" for name in sheets]
    with ExitStack() as stack:
        parts = [stack.enter_context(atomic_path(target)) for target in targets]
        for sheet, part in zip(sheets.values(), parts, strict=True):
            sheet.save(part, "PNG")
    return targets


def _sheet(
    modality: str, sample: NDArray[Any], sample_id: str, damage: DomainDamage
) -> Image.Image:
    """Return one row per corruption: the clean sample, and severities 1 to 5."""
    rows = names(modality)
    step = CELL + GAP
    size = (LEFT + step * (1 + len(SEVERITIES)), TOP * 2 + step * len(rows))
    sheet = Image.new("RGB", size, "white")
    write = partial(ImageDraw.Draw(sheet).text, fill="black", font=ImageFont.load_default(14))
    write((GAP, GAP), f"{sample_id}, seed {damage.seed}")
    for column, heading in enumerate(["clean", *(f"severity {k}" for k in SEVERITIES)]):
        write((LEFT + column * step, TOP + GAP), heading)
    for row, name in enumerate(rows):
        top = TOP * 2 + row * step
        write((GAP, top + CELL // 2 - 8), name)
        domains = [Domain(modality, name, severity) for severity in SEVERITIES]
        damaged = [replace(damage, domain=domain)(sample, sample_id) for domain in domains]
        for column, shown in enumerate([sample, *damaged]):
            cell = _picture(modality, shown).resize((CELL, CELL), Image.Resampling.LANCZOS)
            sheet.paste(cell, (LEFT + column * step, top))
    return sheet


def _picture(modality: str, sample: NDArray[Any]) -> Image.Image:
    """Draw a sample: a wave as log-mel, low pitch at the bottom; near distances are bright.

    Of several frames the middle one is shown, of several units the first.
    """
    if modality == "video":
        return Image.fromarray(sample if sample.ndim == 3 else sample[len(sample) // 2])
    if modality in SENSORS:
        return _lines(sample[:, 0] / SENSORS[modality])
    if modality == "audio":
        energies = fbank(sample).numpy().T[::-1]  # (128, frames)
        level = (energies - QUIET) / (LOUD - QUIET)
    else:
        level = (FAR - sample) / (FAR - NEAR)
    steps = np.linspace(0, 1, len(COLOURS))
    channels = [np.interp(level, steps, channel) for channel in COLOURS.T]
    pixels = np.stack(channels, axis=-1).astype(np.uint8)  # (H, W, 3)
    if modality == "depth":
        pixels[sample == 0] = NOTHING
    return Image.fromarray(pixels)


def _lines(axes: NDArray[Any]) -> Image.Image:
    """Draw x, y and z (steps, 3) as lines, from -REACH to REACH."""
    picture = Image.new("RGB", (CELL, CELL), "#f4f4f4")
    draw = ImageDraw.Draw(picture)
    draw.line([(0, CELL / 2), (CELL, CELL / 2)], fill="#c0c0c0")
    across = np.linspace(0, CELL - 1, len(axes))
    down = (1 - np.clip(axes / REACH, -1, 1)) * (CELL - 1) / 2
    for line, colour in zip(down.T, AXES, strict=True):
        draw.line(list(zip(across.tolist(), line.tolist(), strict=True)), fill=colour)
    return picture
