"""Sounding shapes: a small audio-visual set made by code, no downloads.

A frame shows one of 36 things among clutter, a sound of 1.28 s plays it in a noisy room, and a
third sensor, if asked for, measures its form. How hard it is, and how that was fixed, is written
in `docs/sounding_shapes.md`.
"""

from dasp.data.shapes.classes import CLASSES, FLAVOURS, NAMES
from dasp.data.shapes.dataset import (
    FRAMES,
    SENSORS,
    SPLITS,
    Content,
    SoundingShapes,
    audio_input,
    video_input,
)
from dasp.data.shapes.depth import depth_input
from dasp.data.shapes.pool import ShapePairs, ShapeTriples

__all__ = [
    "CLASSES",
    "FLAVOURS",
    "FRAMES",
    "NAMES",
    "SENSORS",
    "SPLITS",
    "Content",
    "ShapePairs",
    "ShapeTriples",
    "SoundingShapes",
    "audio_input",
    "depth_input",
    "video_input",
]
