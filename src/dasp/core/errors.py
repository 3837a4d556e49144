"""The errors of this library. Each message says what was wrong, where, and what to do."""

import difflib
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEBUG = "DASP_DEBUG"  # environment variable; if it is set, a command also prints the traceback
# Where code that is not the user's lies: Python, installed packages, this one, frozen modules.
PLACES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), Path(__file__).parents[1])
OTHERS = (*map(str, PLACES), "<frozen")


class DaspError(Exception):
    """Base class of every error raised on purpose by this library."""


class InputError(DaspError, ValueError):
    """A batch, a sample or a file of the user cannot be used; nothing was changed."""


class ContractError(DaspError, TypeError):
    """A model or a method lacks something the contract requires."""


class OptionError(DaspError, ValueError):
    """An unknown name, or an invalid value of an option."""


class StateError(DaspError, RuntimeError):
    """A saved state does not belong here, or a handle can no longer be used."""


class RankError(DaspError, RuntimeError):
    """Ranks that share a stream do not agree, or one of them failed; nothing was changed."""


class WeightsError(DaspError, RuntimeError):
    """A checkpoint does not fit the model."""


class DataError(DaspError, RuntimeError):
    """A data set, a list or a media file is missing, damaged or contradictory."""


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn an exception of a user's own code into one error: what failed, why, and in which line.

    >>> with naming("sample 3 of my data"):
    ...     {}["label"]
    Traceback (most recent call last):
    dasp.core.errors.DataError: sample 3 of my data failed with KeyError: 'label' ...
    """
    try:
        yield
    except DaspError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(OTHERS)]
        where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
        raise DataError(
            f"{what} failed with {type(error).__name__}: {error}{where}; "
            f"{DEBUG}=1 in front of the command shows the traceback."
        ) from error


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name: the closest known one, and all of them.

    >>> unknown_name("method", "dsap", ["dasp", "tent"])
    "unknown method 'dsap': did you mean 'dasp'? There are: dasp, tent."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"unknown {kind} '{name}': {hint}There are: {', '.join(names) or 'none'}."


def cause(error: Any) -> str:
    """Return the reason of another library's error without its number and file name.

    >>> cause(FileNotFoundError(2, "No such file", "a.json")), cause(ValueError("no comma"))
    ('No such file', 'no comma')
    """
    text = getattr(error, "strerror", None) or getattr(error, "error_string", None) or str(error)
    return str(text).rstrip(".")


def failure_lines(failed: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line per (name, reason); the name comes first unless the reason contains it.

    >>> failure_lines([("a.mp4", "a.mp4 is empty."), ("b", "no b.mp4"), ("c", "gone")])
    ['a.mp4 is empty.', 'no b.mp4', 'c: gone']
    """
    return [reason if name in reason else f"{name}: {reason}" for name, reason in failed]
