"""A second device without hardware: tensors that refuse to meet those of the processor.

Inside `SecondDevice()` the device "meta" computes: its tensors hold their values on the processor,
but an operation that mixes them with tensors from outside fails, as it would on a GPU.
"""

from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "meta"
aten = torch.ops.aten
# May read from another device, as on a GPU: copies, and indices or scalars on the processor.
CROSSING = {"_to_copy", "copy_", "index", "index_put", "index_put_", "_index_put_impl_"}


class Elsewhere(Tensor):
    """A tensor of the second device; `values` is on the processor."""

    @staticmethod
    def __new__(cls, values):
        return Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=NAME,
            requires_grad=values.requires_grad,
        )

    def __init__(self, values):
        self.values_here = values.detach()

    def __repr__(self, **_):
        return f"Elsewhere({self.values_here})"

    def tolist(self):
        return self.values_here.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


def inside(value):
    return value.values_here if isinstance(value, Elsewhere) else value


def run(function, args, kwargs):
    leaves, _ = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
    name = function._schema.name.removeprefix("aten::")
    strangers = [t for t in tensors if not isinstance(t, Elsewhere) and t.ndim]
    if there and strangers and name not in CROSSING:
        raise RuntimeError(f"{name}: expected all tensors on the same device, cpu and {NAME}")
    device = kwargs.get("device")
    to_there = bool(there) if device is None else torch.device(device).type == NAME
    if device is not None:
        kwargs = {**kwargs, "device": "cpu"}
    result = function(*tree_map(inside, args), **tree_map(inside, kwargs))
    if name.endswith("_") or "out" in kwargs:
        return args[0] if name.endswith("_") else kwargs["out"]

    def wrapped(value):
        return Elsewhere(value) if to_there and isinstance(value, Tensor) else value

    return tree_map(wrapped, result)


class SecondDevice(TorchDispatchMode):
    """In this block, what is made on or moved to "meta" has values."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


@contextmanager
def second_device(monkeypatch):
    """Offer the second device; autocast, which does not know it, does nothing."""

    class NoAutocast:
        def __init__(self, *_, **__): ...
        def __enter__(self): ...
        def __exit__(self, *_): ...

    with monkeypatch.context() as patch, SecondDevice():
        patch.setattr(torch, "autocast", NoAutocast)
        yield torch.device(NAME)
