"""The state of an adaptation: captured and restored in memory, saved to and loaded from files.

A saved state is one plain dict, or the safetensors file that holds it and a checksum:

    {"format", "method", "version", "hyper": {option: text}, "model": hash of the source weights,
     "batch_index": batches since the last reset, "counters": of the run so far,
     "tensors": {"weight/…", "buffer/…", "optimizer/<weight>/<key>"} on the CPU}

Of the model it holds only the weights that the method trains and the buffers that have changed. It
is taken over whole or not at all: every field is checked before anything is replaced.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dasp.core.errors import ContractError, OptionError, StateError, cause
from dasp.core.files import atomic_path, remove_parts
from dasp.core.types import Step
from dasp.methods.base import METHODS, Method, device_of, hyperparameters, whole
from dasp.methods.rate import LearningRate, Rate
from dasp.service.events import Recorder

FORMAT = "dasp-state-3"
MANY = 2**62  # more than any counter reaches
OTHER = {
    "method": "another method",
    "version": "another version of the method",
    "hyper": "other options",
    "model": "another model",
}
State = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """A copy of everything that adapting changes."""

    tensors: dict[str, Tensor]  # "weight/…", "buffer/…", "optimizer/<weight>/<key>"
    batch_index: int
    whole: bool = True  # or only the model's buffers


class Memory:
    """The trainable weights, the optimizer, the method's buffers and the number of batches."""

    def __init__(self, method: Method, lr: LearningRate) -> None:
        self.method = method
        names = {id(parameter): name for name, parameter in method.named_parameters()}
        parameters = list(method.trainable())
        if any(id(parameter) not in names for parameter in parameters):
            raise ContractError(
                f"{type(method).__name__}.trainable() returned a parameter that belongs neither "
                "to the model nor to the method: keep new ones as attributes or in self.adapters."
            )
        self.weights = {names[id(parameter)]: parameter for parameter in parameters}
        self.rate = Rate(method, lr if parameters else method.default_lr)
        usual = self.rate.value or method.default_lr
        self.optimizer = method.optimizer(parameters, usual) if parameters else None
        self._built: dict[float, list[float]] = {}
        self._device = device_of(method.model)
        self.batch_index = 0
        self._source: Snapshot | None = None
        self._source_digest: str | None = None
        self._copies: dict[str, tuple[Tensor, int, Tensor]] = {}  # of the model's buffers

    def _tensors(self, whole: bool = True) -> dict[str, Tensor]:
        """Return all tensors that adapting changes; if not `whole`, the model's buffers alone."""
        if not whole:
            return {f"buffer/model.{n}": b for n, b in self.method.model.named_buffers()}
        found = {f"buffer/{name}": buffer for name, buffer in self.method.named_buffers()}
        for name, weight in self.weights.items():
            found[f"weight/{name}"] = weight.detach()
            moments = self.optimizer.state.get(weight, {}) if self.optimizer else {}
            for key, value in moments.items():
                if isinstance(value, Tensor):
                    found[f"optimizer/{name}/{key}"] = value
        return found

    def _copy_of(self, name: str, tensor: Tensor) -> Tensor:
        """Return a copy; of a buffer of the model, the same one until the buffer changes.

        Few models change their buffers in evaluation mode, and some have large ones.
        """
        if not name.startswith("buffer/model."):
            return tensor.clone()
        known, then, copy = self._copies.get(name, (None, 0, tensor))
        if known is not tensor or then != _version(tensor) or then < 0:
            copy = tensor.clone()
            self._copies[name] = tensor, _version(tensor), copy
        return copy

    def source(self, now: Snapshot | None = None) -> Snapshot:
        """Return the state before the first batch, captured when first asked for, or `now`."""
        if self._source is None:
            self._source = now or self.capture()
        return self._source

    def follow_model(self) -> None:
        """If the user has moved the model, move what belongs to the method to the same device."""
        device = device_of(self.method.model)
        if device == self._device:
            return
        self.method.to(device)
        moments = {n: v for n, v in self._tensors().items() if n.startswith("optimizer/")}
        self.set_moments(moments)
        self._device, self._copies = device, {}
        if self._source is not None:
            moved = {name: value.to(device) for name, value in self._source.tensors.items()}
            self._source = replace(self._source, tensors=moved)

    def forget_source(self) -> None:
        """Make the current state the source state."""
        self._source = self._source_digest = None

    def descend(self, step: Step, lr: float) -> str | None:
        """Update once; if something is not finite, return what (the caller then restores)."""
        assert step.loss is not None
        assert self.optimizer is not None
        if not torch.isfinite(step.loss):
            return f"the loss is {float(step.loss.detach())}"
        self.optimizer.zero_grad(set_to_none=True)
        if step.gradients is None:
            step.loss.backward()  # type: ignore[no-untyped-call]
        else:
            for parameter, gradient in zip(self.weights.values(), step.gradients, strict=True):
                parameter.grad = gradient
        gradients = [p.grad for p in self.weights.values() if p.grad is not None]
        self.method.group.average(gradients)
        # The sum of squares, not each value: Adam squares them, and an overflow would stay.
        if not all(torch.isfinite(g.square().sum()) for g in gradients):
            return "a gradient is not finite"
        for group, own in zip(self.optimizer.param_groups, self._rates(lr), strict=True):
            group["lr"] = own * step.rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not all(torch.isfinite(p).all() for p in self.weights.values()):
            return "the update made a weight that is not finite: lower lr"
        return None

    def _rates(self, lr: float) -> list[float]:
        """Return the rates that the optimizer's groups have when it is built with this one."""
        if lr not in self._built:
            built = self.method.optimizer(list(self.weights.values()), lr)
            self._built = {lr: [group["lr"] for group in built.param_groups]}
        return self._built[lr]

    def set_moments(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the optimizer's state by copies of those named "optimizer/<weight>/<key>"."""
        if self.optimizer:
            self.optimizer.state.clear()
            for path, value in tensors.items():
                if path.startswith("optimizer/"):
                    name, key = path.removeprefix("optimizer/").rsplit("/", 1)
                    weight = self.weights[name]
                    like = weight if value.shape == weight.shape else value  # a counter: the CPU
                    self.optimizer.state[weight][key] = value.clone().to(like.device)

    @torch.no_grad()
    def capture(self, whole: bool = True) -> Snapshot:
        """Copy the state; if not `whole`, only what a call that learns nothing could change."""
        tensors = {n: self._copy_of(n, tensor) for n, tensor in self._tensors(whole).items()}
        return Snapshot(tensors, self.batch_index, whole)

    @torch.no_grad()
    def restore(self, snapshot: Snapshot, keep_index: bool = False) -> None:
        """Return to a captured state, bit for bit."""
        if snapshot.whole:
            self.set_moments({})
        for name, tensor in self._tensors(snapshot.whole).items():
            value, of_model = snapshot.tensors[name], name.startswith("buffer/model.")
            if not of_model or self._copy_of(name, tensor) is not value:
                if tensor.shape != value.shape:
                    tensor.resize_(value.shape)
                tensor.copy_(value)
            if of_model:
                self._copies[name] = tensor, _version(tensor), value
        if not snapshot.whole:
            return
        for parameter in self.weights.values():
            parameter.grad = None
        self.set_moments(snapshot.tensors)
        if not keep_index:
            self.batch_index = snapshot.batch_index

    @torch.no_grad()
    def distances(self) -> dict[str, float]:
        """Return how far the weights are from their source, ‖θ − θ₀‖, by the adapters' modality.

        Weights that belong to no modality's adapter count as "shared".
        """
        squares: dict[str, list[Tensor]] = {}
        source = self.source().tensors
        for path, weight in self.weights.items():
            kind, _, rest = path.partition(".")
            owner = rest.split(".")[0] if kind == "adapters" else "shared"
            change = weight.float() - source[f"weight/{path}"].float()
            squares.setdefault(owner, []).append(change.square().sum())
        return {owner: float(torch.stack(own).sum().sqrt()) for owner, own in squares.items()}

    def checksum(self) -> int:
        """Return a number that differs where ranks' weights differ."""
        weights = self.weights.values()
        return int(sum(p.detach().reshape(-1).view(torch.int16).sum() for p in weights))

    def digest(self, source: Snapshot) -> str:
        """Return a hash of the model's weights in the source state: names, shapes and bytes."""
        digest, model, tensors = hashlib.sha256(), self.method.model, source.tensors
        for name, value in sorted(model.state_dict().items()):
            value = tensors.get(f"weight/model.{name}", value)
            value = tensors.get(f"buffer/model.{name}", value)
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
            digest.update(_bytes(value))
        digest.update(getattr(model, "faster_encoders", "").encode())  # other tokens, other states
        return digest.hexdigest()

    def pack(self, counters: dict[str, Any]) -> State:
        """Return a copy of the current state together with what it belongs to."""
        source, found = self.source().tensors, self.capture().tensors
        changed = {n: v for n, v in found.items() if v is not source.get(n)}
        tensors = {name: value.cpu().contiguous() for name, value in changed.items()}
        place = {"batch_index": self.batch_index, "counters": counters}
        return {"format": FORMAT, **self._belonging(), **place, "tensors": tensors}

    def unpack(self, state: State, where: str) -> Snapshot:
        """Return a state as a snapshot; refuse another method's or model's, calling it `where`.

        Everything is checked here, before `restore` replaces anything.
        """
        kind = state.get("format") if isinstance(state, dict) else type(state).__name__
        if kind != FORMAT:
            raise StateError(f"{where} is not a saved state (format {kind!r}, not {FORMAT!r}).")
        for key, value in self._belonging().items():
            if state.get(key) != value:
                difference = _difference(state.get(key, ""), value)
                raise StateError(
                    f"{where} was saved with {OTHER[key]}: {difference}. Load it into an "
                    "adaptation with the same method, hyper-parameters and source weights, by the "
                    "version of dasp that wrote it."
                )
        index, tensors = state.get("batch_index"), state.get("tensors")
        if type(index) is not int or not 0 <= index < MANY or not isinstance(tensors, dict):
            raise StateError(f"{where}: batch_index {index!r} or its tensors are damaged.")
        tensors = {n: self.source().tensors[n] for n in self._tensors(whole=False)} | tensors
        tensors = self.rate.in_state(tensors)
        if wrong := list(self._misfits(tensors)):
            raise StateError(f"{where} is damaged or does not fit: {'; '.join(wrong[:5])}.")
        return Snapshot(tensors, index)

    def _misfits(self, tensors: dict[str, Any]) -> Iterator[str]:
        """Say of each tensor that is missing, of no use, or cannot be what it should be."""
        needed = {n: v for n, v in self._tensors().items() if not n.startswith("optimizer/")}
        yield from (f"{name} is missing" for name in needed if name not in tensors)
        keys: dict[str, set[str]] = {}  # of the optimizer's tensors, by weight
        for name, value in tensors.items():
            weight, _, key = name.removeprefix("optimizer/").rpartition("/")
            moment = name.startswith("optimizer/") and weight in self.weights
            like = self.weights[weight] if moment else needed.get(name)
            if moment:
                keys.setdefault(weight, set()).add(key)
            if like is None or not isinstance(value, Tensor):
                yield f"{name} is not part of this adaptation"
                continue
            grows, single = name.startswith("buffer/"), moment and value.numel() == 1
            fits = single or (value.ndim == like.ndim if grows else value.shape == like.shape)
            counts = single and value.dtype == torch.float32  # Adam counts its steps in float32
            if not fits or (value.dtype != like.dtype and not counts):
                yield f"{name} has {_kind(value)} instead of {_kind(like)}"
            elif not grows and not torch.isfinite(value).all():
                yield f"{name} has values that are not finite"
        whole = set().union(*keys.values())
        for weight, found in keys.items():
            yield from (f"optimizer/{weight}/{key} is missing" for key in whole - found)

    def _belonging(self) -> State:
        if self._source_digest is None:  # hashed once
            self._source_digest = self.digest(self.source())
        version = str(type(self.method).version)
        return {**describe(self.method), "version": version, "model": self._source_digest}


def describe(method: Method) -> State:
    """Return the registered name of a method (or that of its class) and its options as texts."""
    kind = type(method)
    name = next((name for name in METHODS if METHODS[name] is kind), kind.__qualname__)
    hyper = {option: repr(getattr(method, option, None)) for option in hyperparameters(kind)}
    return {"method": name, "hyper": hyper}


def _version(tensor: Tensor) -> int:
    """Return a number that grows when a tensor is changed in place, -1 if nothing counts it."""
    return -1 if tensor.is_inference() else tensor._version


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _difference(saved: Any, here: Any) -> str:
    """Say how two settings differ: by option if they are dicts, shortened if they are long."""
    if isinstance(saved, dict) and isinstance(here, dict):
        names = sorted(n for n in saved.keys() | here.keys() if saved.get(n) != here.get(n))
        return ", ".join(f"{name} {saved.get(name)}, here {here.get(name)}" for name in names)
    return f"{str(saved)[:12]}, here {str(here)[:12]}"


def write_state(path: str | Path, state: State) -> None:
    """Write a state to one file, which is complete and on the disk when this returns."""
    texts = {key: value for key, value in state.items() if key != "tensors"}
    metadata = {k: v if isinstance(v, str) else json.dumps(v) for k, v in texts.items()}
    metadata["checksum"] = _checksum(metadata, state["tensors"])
    with atomic_path(path, durable=True) as part:
        try:
            save_file(state["tensors"], part, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"{path} could not be written: {error}") from error


def read_state(path: str | Path) -> State:
    """Read a state from a file; `Memory.unpack` checks whether it belongs here."""
    path = Path(path)
    if not path.is_file():
        raise StateError(f"no saved state at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            state: State = dict(file.metadata() or {})
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if state.pop("checksum", None) != _checksum(state, tensors):
            raise ValueError("its content does not have its checksum; use another copy")
        for key in {"hyper", "batch_index", "counters"} & state.keys():
            state[key] = json.loads(state[key])
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise StateError(f"{path} is damaged or not a saved state: {cause(error)}.") from error
    return state | {"tensors": tensors}


def _checksum(texts: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(dict(texts), sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {_kind(value)}\n".encode())
        digest.update(_bytes(value))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


class Checkpoint:
    """A file to which the state is written every few batches, to resume a killed run from."""

    def __init__(self, path: str | Path, every: int, writes: bool = True) -> None:
        """Write after every `every` batches, or, on all ranks but one, only read the file."""
        whole(checkpoint_every=every)
        self.path, self.every, self.writes = Path(path), every, writes
        self.written_at = 0  # batches processed when it was written
        if self.path.is_dir():
            raise OptionError(f"checkpoint={str(path)!r} is a directory: give the path of a file.")
        if writes:
            remove_parts(self.path.parent)

    def after_batch(self, recorder: Recorder, state: Callable[[], State]) -> None:
        """Write the state if it is due. If writing fails the old file stays and the run goes on."""
        batches = recorder.counters.totals["batches"]
        if not self.writes or batches - self.written_at < self.every:
            return
        self.written_at = batches
        recorder.to_disk()  # the log first, so that it has every batch that the state includes
        what = f"the checkpoint {self.path}"
        if recorder.guarded(lambda: write_state(self.path, state()), what):
            recorder.event("save", self.path)
