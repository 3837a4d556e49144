"""Fifteen ways to damage a frame and six to damage a sound, seeded.

Each corruption is a small pure function of (array, severity, generator) whose five
constants stand on its first line. A user's own registers with the `corruption` decorator.
"""

from dasp.corruptions import ambient as _ambient  # noqa: F401 - registers the six on sounds
from dasp.corruptions.base import Corruption, corrupt_frame, corrupt_sound, corruption, names

__all__ = ["Corruption", "corrupt_frame", "corrupt_sound", "corruption", "names"]
