"""Registries of what a user may add: methods, models, corruptions."""

from collections.abc import Callable
from typing import TypeVar

from dasp.core.errors import OptionError, unknown_name

Entry = TypeVar("Entry")


class Registry(dict[str, Entry]):
    """An ordered dict from names to entries, filled by a decorator.

    >>> shapes: Registry[type] = Registry("shape")
    >>> @shapes.register("round")
    ... class Round: ...
    >>> shapes["round"] is Round, list(shapes)
    (True, ['round'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that registers its argument as `name`."""

        def add(entry: Entry) -> Entry:
            if name in self:
                raise OptionError(
                    f"{self.kind} '{name}' is registered already: choose another name."
                )
            self[name] = entry
            return entry

        return add

    def __missing__(self, name: str) -> Entry:
        raise OptionError(unknown_name(self.kind, name, self))
