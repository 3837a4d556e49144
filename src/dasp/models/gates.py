"""Run a model with the outputs of some of its modules given instead of computed.

A gate stands in for the `forward` of a module (a hook could not skip the computation). It passes
everything on, except in a thread that is in a `Pass`. Other threads may use the model meanwhile.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from dasp.core.errors import ContractError

_THREAD = threading.local()  # its `current` is the pass that this thread is in


class _AllEncodedError(BaseException):
    """Ends a forward early; not an `Exception`, which a model might catch."""


class Gate:
    """Stands in for a module's `forward`. A deep copy of the module gets a gate of its own."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.forward, self.users = module, module.forward, 0
        self.over_another = "forward" in vars(module)  # such as that of another library
        functools.update_wrapper(self, self.forward)  # some libraries read its signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module, or what the pass of this thread makes of it."""
        current: Pass | None = getattr(_THREAD, "current", None)
        if current is None:
            return self.forward(*args, **kwargs)
        return current.at(self, args, kwargs)


def open_gates(modules: Iterable[nn.Module]) -> None:
    """Put gates before modules; each must be closed as often as it was opened."""
    for module in modules:
        if not isinstance(vars(module).get("forward"), Gate):
            module.forward = Gate(module)
        module.forward.users += 1  # type: ignore[attr-defined]


def close_gates(modules: Iterable[nn.Module]) -> None:
    """Remove the gates that nobody else uses."""
    for module in modules:
        gate = vars(module).get("forward")
        if isinstance(gate, Gate):  # otherwise somebody has put something over it since
            gate.users -= 1
            if gate.users == 0:
                del module.forward
                if gate.over_another:
                    module.forward = gate.forward


@dataclass
class Pass:
    """One call of a model whose encoders have gates: what is given, and what was found."""

    encoders: Mapping[str, nn.Module]  # by name; a shared one in the order of its calls
    given: Mapping[str, Any] = field(default_factory=dict)  # outputs that are not computed
    wanted: Iterable[str] | None = None  # end when these were computed; None: run to the end
    head: nn.Module | None = None
    computed: dict[str, Any] = field(default_factory=dict)
    embedding: Tensor | None = None  # what entered the head
    _called: set[str] = field(default_factory=set)

    def run(self, call: Callable[[], Any]) -> Any:
        """Call the model in this thread; return its output, None if the pass ended early."""
        outer, _THREAD.current = getattr(_THREAD, "current", None), self
        try:
            with suppress(_AllEncodedError):
                return call()
        finally:
            _THREAD.current = outer

    def at(self, gate: Gate, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return the output of the module behind a gate."""
        if gate.module is self.head:
            self.embedding = next((v for v in (*args, *kwargs.values()) if is_float(v)), None)
        names = [name for name, encoder in self.encoders.items() if encoder is gate.module]
        if not names:
            return gate.forward(*args, **kwargs)
        name = next((name for name in names if name not in self._called), None)
        if name is None:
            raise ContractError(
                f"the encoder of {' and '.join(names)} runs more than once per modality in one "
                "forward: name a module around these calls."
            )
        self._called.add(name)
        if name in self.given:
            return self.given[name]
        output = self.computed[name] = gate.forward(*args, **kwargs)
        if self.wanted is not None and self.computed.keys() >= {*self.wanted}:
            raise _AllEncodedError
        return output


def is_float(value: object) -> bool:
    """Tell whether a value is a tensor of floating-point numbers."""
    return isinstance(value, Tensor) and value.is_floating_point()
