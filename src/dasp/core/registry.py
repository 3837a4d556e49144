"""Registries of what a user may add: methods, models, corruptions."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from dasp.core.errors import OptionError, unknown_name

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """An ordered mapping from names to entries, filled by a decorator.

    >>> shapes: Registry[type] = Registry("shape")
    >>> @shapes.register("round")
    ... class Round: ...
    >>> shapes["round"] is Round, list(shapes)
    (True, ['round'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = {}

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that registers its argument as `name`."""

        def add(entry: Entry) -> Entry:
            if name in self:
                raise OptionError(
                    f"{self.kind} '{name}' is registered already: choose another name."
                )
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> Entry:
        if name not in self:
            raise OptionError(unknown_name(self.kind, name, self._entries))
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
