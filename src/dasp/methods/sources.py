"""The source weights of models that are adapted more than once, whatever happens to the handles.

Methods that leave the model's own weights alone may share a model. If one trains those weights,
adapting the model again returns it to its source state and closes the earlier adaptations.
"""

import threading
from typing import TYPE_CHECKING
from weakref import WeakSet, finalize

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from dasp.core.errors import StateError
from dasp.methods.state import Memory

if TYPE_CHECKING:
    from dasp.methods.loop import Adaptation

_LIVE: "WeakSet[Adaptation]" = WeakSet()
_LOCK = threading.Lock()
_LEFT: dict[Tensor, tuple[int, Tensor]] = WeakIdKeyDictionary()  # type: ignore[assignment]
"""The version and the source of what an adaptation that is gone has changed in its model."""


def claim(adaptation: "Adaptation") -> None:
    """Make an adaptation a user of its model, and close those that it would disturb."""
    own = _weights(adaptation.model)
    with _LOCK:
        others = [user for user in _LIVE if not own.isdisjoint(_weights(user.model))]
        changes = [user for user in others if _trains_model(user)]
        for user in changes:
            user.reset()
        if changes or _trains_model(adaptation):
            _LIVE.difference_update(others)
        _LIVE.add(adaptation)
    if _trains_model(adaptation):
        finalize(adaptation, _leave, adaptation.memory).atexit = False


def check_open(adaptation: "Adaptation") -> None:
    """Refuse an adaptation that another one has closed."""
    if adaptation not in _LIVE:
        raise StateError(
            "this adaptation was closed when its model was adapted again: "
            "to run several at once, adapt copy.deepcopy(model) for each."
        )


@torch.no_grad()
def return_to_source(model: nn.Module) -> None:
    """Undo what forgotten adaptations did to a model; weights changed since are the user's own."""
    own = (*model.parameters(), *model.buffers()) if isinstance(model, nn.Module) else ()
    for tensor in own:
        if tensor in _LEFT:
            version, source = _LEFT.pop(tensor)
            if tensor._version == version:
                tensor.copy_(source)


def _leave(memory: Memory) -> None:
    source, method = memory.source().tensors, memory.method
    for name, weight in memory.weights.items():
        if name.startswith("model."):
            _LEFT[weight] = weight._version, source[f"weight/{name}"]
    for norm in method.batch_norms:
        statistics = {id(buffer) for buffer in norm.buffers(recurse=False)}
        for name, buffer in method.named_buffers():
            if id(buffer) in statistics:
                _LEFT[buffer] = buffer._version, source[f"buffer/{name}"]


def _weights(model: nn.Module) -> set[int]:
    return set(map(id, model.parameters()))  # models with faster encoders share them


def _trains_model(user: "Adaptation") -> bool:
    return any(name.startswith("model.") for name in user.memory.weights)
