"""Every method on a second device: nothing may mix its tensors with those of the processor.

The second device needs no hardware. Inside `second_device` the device "meta" computes: its tensors
hold their values on the processor, but an operation that mixes them with tensors from outside
fails, as it would on a GPU.
"""

import copy
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import dasp
from dasp.bench.checks import trial, trial_batches, trial_model
from dasp.cli import serve
from dasp.core.devices import find_device
from dasp.core.errors import InputError, OptionError
from dasp.serve.worker import run as run_served

NAME = "meta"
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

    @property
    def data(self):
        return Elsewhere(self.values_here)

    @data.setter
    def data(self, other):
        self.values_here = other.values_here

    def new_tensor(self, values):
        return Elsewhere(torch.tensor(values, dtype=self.dtype))

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

    made = torch.tensor

    def tensor(*values, device=None, **options):  # torch would make it without values
        return made(*values, **options).to(device or "cpu")

    with monkeypatch.context() as patch, SecondDevice():
        patch.setattr(torch, "autocast", NoAutocast)
        patch.setattr(torch, "tensor", tensor)
        yield torch.device(NAME)


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def moved(batch, device):
    return {name: value.to(device) for name, value in batch.items()}


def adapted(name, device, batches):
    """Adapt on a device, batch by batch, with everything a method may need."""
    model = trial_model().to(device)
    options = {"stream_length": len(batches)} if name == "sumi" else {}
    tta = dasp.adapt(model, name, lr=1e-2, **options)
    batches = [moved(batch, device) for batch in batches]
    if tta.method.needs_source:
        tta.fit(batches[:1])
    return tta, batches, [tta(batch).logits.cpu() for batch in batches]


@pytest.mark.parametrize("name", dasp.METHODS)
def test_every_method_stays_on_the_device_of_the_model(name, monkeypatch):
    batches = trial_batches()[:2]
    here = adapted(name, torch.device("cpu"), batches)[2]
    with second_device(monkeypatch) as device:
        tta, received, there = adapted(name, device, batches)
        tta.load_state(tta.state())
        with tta.frozen():
            tta(received[0])
    for one, other in zip(here, there, strict=True):
        assert torch.allclose(one, torch.as_tensor(other.tolist()), atol=1e-4)


def test_tensors_of_two_devices_do_not_mix(monkeypatch):
    """The second device must notice, or the test above would prove nothing."""
    with second_device(monkeypatch) as device, pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device=device) + torch.ones(2)
    with second_device(monkeypatch) as device, pytest.raises(InputError, match="the model on"):
        dasp.adapt(trial_model().to(device), "tent")(trial_batches()[0])


def test_a_served_model_and_its_clean_samples_are_put_on_the_device(tmp_path, monkeypatch):
    """The journal of a server is on the processor, whatever the model runs on."""
    (tmp_path / "mine.py").write_text(
        "from dasp.bench.checks import trial_model\n\n\ndef build():\n    return trial_model()\n"
    )
    batches = trial_batches()[:2]
    save_file(batches[0], tmp_path / "clean.safetensors")
    clean = tmp_path / "clean.safetensors"
    options = serve.AdaptOptions(f"{tmp_path}/mine.py:build", "eata", ("lr=1e-2",), clean)
    here = run_served(serve.build(options, None), batches[1], learn=True).logits
    with second_device(monkeypatch) as device:
        monkeypatch.setattr(serve, "find_device", lambda name: device)
        there = run_served(serve.build(options, None), batches[1], learn=True).logits
        assert there.device == device
    assert torch.allclose(here, torch.as_tensor(there.tolist()), atol=1e-4)


def test_what_the_method_added_follows_a_model_that_is_moved():
    tta, twin = (trial("dasp", delta=1e-6, lr=1e-2) for _ in range(2))
    batches = trial_batches()
    for one in (tta, twin):
        one(batches[0])
    tta.memory._device = torch.device("meta")  # as if the model came from there
    assert torch.equal(tta(batches[1]).logits, twin(batches[1]).logits)
    for one in (tta, twin):
        one.reset()
    assert torch.equal(tta(batches[1]).logits, twin(batches[1]).logits)


@pytest.mark.parametrize("autocast", ["bfloat16", "float16"])
def test_low_precision_by_name(autocast):
    tta, batch = dasp.adapt(trial_model(), "tent", autocast=autocast), trial_batches()[0]
    exact = dasp.adapt(trial_model(), "source")(batch).logits
    out = tta(batch)
    assert out.updated
    assert out.logits.dtype == torch.float32
    assert not torch.equal(out.logits, exact)
    assert torch.allclose(out.logits, exact, atol=0.1)
    with pytest.raises(OptionError, match="autocast must be one of"):
        dasp.adapt(trial_model(), "tent", autocast="float8")


def test_devices_by_name(monkeypatch):
    assert find_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda")
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(OptionError, match="cuda:2 is not here: it sees 2"):
        find_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")
    for name in ("cuda", "mps"):
        with pytest.raises(OptionError, match=f"{name} is not here: there is none"):
            find_device(name)
    for name in ("gpu", "meta", "cpu:x"):
        with pytest.raises(OptionError, match="--device is one of auto"):
            find_device(name)


@CUDA
@pytest.mark.parametrize("name", dasp.METHODS)
@pytest.mark.parametrize("autocast", [False, "bfloat16", "float16"])
def test_every_method_on_cuda(name, autocast, tmp_path):
    batches, device = trial_batches(), torch.device("cuda")
    here, there = (adapted(name, where, batches)[2] for where in (torch.device("cpu"), device))
    for one, other in zip(here, there, strict=True):
        assert torch.allclose(one, other, atol=1e-2)
    options = {"stream_length": 4} if name == "sumi" else {}
    tta = dasp.adapt(trial_model().to(device), name, autocast=autocast, **options)
    if tta.method.needs_source:
        tta.fit([moved(batches[0], device)])
    assert torch.isfinite(tta(moved(batches[0], device)).logits).all()
    tta.save(tmp_path / "state")
    tta.load(tmp_path / "state")


@CUDA
def test_an_adaptation_follows_its_model_to_cuda():
    model = trial_model()
    tta, batches = dasp.adapt(model, "dasp", delta=1e-6, lr=1e-2), trial_batches()
    twin = dasp.adapt(copy.deepcopy(model), "dasp", delta=1e-6, lr=1e-2)
    tta(batches[0])
    twin(batches[0])
    model.to("cuda")
    moved_logits = tta(moved(batches[1], "cuda")).logits
    assert torch.allclose(moved_logits.cpu(), twin(batches[1]).logits, atol=1e-3)
    tta.reset()
