"""Fifteen ways to damage a frame and six to damage a sound, seeded.

Each corruption is a small pure function of (array, severity, generator) whose five
constants stand on its first line. A user's own registers with the `corruption` decorator.
"""

# Importing a file registers what it holds; this order is the order of the papers.
from dasp.corruptions import noise, blur, weather, digital, ambient  # noqa: F401, I001
from dasp.corruptions.base import Corruption, corrupt_frame, corrupt_sound, corruption, names

__all__ = ["Corruption", "corrupt_frame", "corrupt_sound", "corruption", "names"]
