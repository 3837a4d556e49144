"""Fifteen ways to damage a frame, six to damage a sound and six a map of distances, seeded.

Each corruption is a small pure function of (array, severity, generator) whose five
constants stand on its first line. A user's own registers with the `corruption` decorator.
"""

# Importing a file registers what it holds; this order is the order of the papers.
from dasp.corruptions import noise, blur, weather, digital, ambient, ranging  # noqa: F401, I001
from dasp.corruptions.base import (
    Corruption,
    corrupt_depth,
    corrupt_frame,
    corrupt_sound,
    corruption,
    names,
)

__all__ = ["Corruption", "corrupt_depth", "corrupt_frame", "corrupt_sound", "corruption", "names"]
