"""Seeded corruptions: fifteen of frames, six of sounds, six of depth maps, twelve of
inertial signals.

Each corruption is a small pure function of (array, severity, generator); the constants of the five
severities are on its first line. Register your own with the `corruption` decorator.
"""

# Importing a file registers its corruptions, in the order of the papers.
from dasp.corruptions import noise, blur, weather, digital, ambient, ranging  # noqa: F401, I001
from dasp.corruptions.inertial import corrupt_inertial
from dasp.corruptions.clips import corrupt_clip
from dasp.corruptions.base import (
    Corruption,
    corrupt_depth,
    corrupt_frame,
    corrupt_sound,
    corruption,
    names,
)

__all__ = [
    "Corruption",
    "corrupt_clip",
    "corrupt_depth",
    "corrupt_frame",
    "corrupt_inertial",
    "corrupt_sound",
    "corruption",
    "names",
]
