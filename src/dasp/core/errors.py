"""The errors of this library. Each message names the thing, the cause and the remedy."""

import difflib
from collections.abc import Iterable


class DaspError(Exception):
    """Base of every error raised on purpose by this library."""


class InputError(DaspError, ValueError):
    """A batch, a sample or a file of the user's cannot be used; nothing was changed."""


class ContractError(DaspError, TypeError):
    """A model or a method lacks something that was asked of it."""


class OptionError(DaspError, ValueError):
    """An unknown name or an impossible value for an option."""


class StateError(DaspError, RuntimeError):
    """A saved state does not belong here, or a handle can no longer be used."""


class RankError(DaspError, RuntimeError):
    """Ranks that share a stream do not agree, or one of them failed; nothing was changed."""


class WeightsError(DaspError, RuntimeError):
    """A checkpoint does not fit the model."""


class DataError(DaspError, RuntimeError):
    """A data set, a list or a media file is missing, damaged or contradictory."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that `name` is unknown, the nearest right one, and all there are.

    >>> unknown_name("method", "dsap", ["dasp", "tent"])
    "unknown method 'dsap': did you mean 'dasp'? There are: dasp, tent."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"unknown {kind} '{name}': {hint}There are: {', '.join(names) or 'none'}."
