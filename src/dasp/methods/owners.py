"""Who may change a model: two adaptations of one model must not disturb each other unseen."""

import threading
from typing import Any
from weakref import WeakSet

from dasp.core.errors import StateError
from dasp.methods.base import Method


class Owners:
    """Live adaptations, which use one model if they share weights.

    Methods that leave the model's own weights alone (Source, DASP, TSA) share it freely. As soon
    as one of them trains those weights, adapting the model again returns it to its source state
    and closes the earlier adaptations: their next call is an error, never a wrong number.
    """

    def __init__(self) -> None:
        self._live: WeakSet[Any] = WeakSet()
        self._closed: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()

    def claim(self, adaptation: Any, method: Method) -> None:
        """Make `adaptation` a user of its method's model."""
        with self._lock:
            self._claim(adaptation, method)

    def _claim(self, adaptation: Any, method: Method) -> None:
        own = _weights(method)
        others = [
            other
            for other in self._live
            if other not in self._closed and not own.isdisjoint(_weights(other.method))
        ]
        changes = [other for other in others if trains_model(other.method)]
        for other in changes:
            other.reset()
        if trains_model(method) or changes:
            self._closed.update(others)
        self._live.add(adaptation)

    def check(self, adaptation: Any) -> None:
        """Refuse an adaptation whose model was given to another."""
        if adaptation in self._closed:
            raise StateError(
                "this adaptation was closed when its model was adapted again: "
                "to run several at once, adapt copy.deepcopy(model) for each."
            )


def trains_model(method: Method) -> bool:
    """Tell whether a method changes weights of the model itself."""
    own = _weights(method)
    return any(id(parameter) in own for parameter in method.trainable())


def _weights(method: Method) -> set[int]:
    """Return the identities of a model's weights, which `dasp.models.faster` shares with it."""
    return {id(parameter) for parameter in method.model.parameters()}
