"""Why a file cannot be used, said once: the causes of other libraries name the file again."""

from collections.abc import Iterable
from typing import Any


def cause(error: Any) -> str:
    """Return what went wrong without the number and the file name that libraries put around it.

    >>> cause(FileNotFoundError(2, "No such file or directory", "a.json"))
    'No such file or directory'
    >>> cause(ValueError("line 1: no comma"))
    'line 1: no comma'
    """
    text = getattr(error, "strerror", None) or getattr(error, "error_string", None) or str(error)
    return str(text).rstrip(".")


def failure_lines(failed: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each (name, reason), the name in front unless the reason holds it.

    >>> failure_lines([("a.mp4", "a.mp4 is empty."), ("b", "no b.mp4"), ("c", "gone")])
    ['a.mp4 is empty.', 'no b.mp4', 'c: gone']
    """
    return [reason if name in reason else f"{name}: {reason}" for name, reason in failed]
