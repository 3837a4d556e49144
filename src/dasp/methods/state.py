"""The state of an adaptation: captured and restored in memory, saved to and loaded from files.

A saved state is one plain dict, or the safetensors file that holds it:

    {"format", "method", "hyper": {option: text}, "model": hash of the source weights,
     "batch_index": batches since the last reset, "counters": of the run so far,
     "tensors": {"weight/…", "buffer/…", "optimizer/<weight>/<key>"} on the CPU}

Of the model it holds only the weights that the method trains, so it is small.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dasp.core.errors import ContractError, OptionError, StateError
from dasp.core.files import atomic_path, remove_parts
from dasp.core.types import Step, Trainable
from dasp.methods.base import Method, hyperparameters, name_of, whole
from dasp.service.events import Recorder

FORMAT = "dasp-state-1"
OTHER = {"method": "another method", "hyper": "other options", "model": "another model"}
State = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """A copy of everything that adapting changes."""

    tensors: dict[str, Tensor]  # "weight/…", "buffer/…", "optimizer/<weight>/<key>"
    batch_index: int


class Memory:
    """The trainable weights, the optimizer, the method's buffers and the number of batches."""

    def __init__(self, method: Method, lr: float) -> None:
        self.method = method
        names = {id(p): _public(name) for name, p in method.named_parameters()}
        trainable = list(method.trainable())
        if any(id(parameter) not in names for parameter in trainable):
            raise ContractError(
                f"{type(method).__name__}.trainable() returned a parameter that belongs neither "
                "to the model nor to the method: keep new ones as attributes or in self.adapters."
            )
        self.weights = {names[id(parameter)]: parameter for parameter in trainable}
        parameters = list(self.weights.values())
        self.optimizer = method.optimizer(parameters, lr) if parameters else None
        self.batch_index = 0
        self._hashed: tuple[Snapshot, str] | None = None

    def buffers(self) -> dict[str, Tensor]:
        """Return the method's own buffers (not the model's)."""
        return {n: b for n, b in self.method.named_buffers() if not n.startswith("_model.")}

    def descend(self, step: Step) -> str | None:
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
        self._descend_at(step.rate)
        self.optimizer.zero_grad(set_to_none=True)
        if not all(torch.isfinite(p).all() for p in self.weights.values()):
            return "the update made a weight that is not finite: lower lr"
        return None

    def _descend_at(self, rate: float) -> None:
        """Let the optimizer step once with its learning rates multiplied by `rate`."""
        assert self.optimizer is not None
        groups = self.optimizer.param_groups
        usual = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] *= rate
        try:
            self.optimizer.step()
        finally:
            for group, lr in zip(groups, usual, strict=True):
                group["lr"] = lr

    def forget_moments(self) -> None:
        """Clear the optimizer's state, which belongs to weights that were rolled back."""
        if self.optimizer:
            self.optimizer.state.clear()

    @torch.no_grad()
    def capture(self) -> Snapshot:
        """Copy the whole state."""
        tensors = {f"weight/{n}": p.detach().clone() for n, p in self.weights.items()}
        tensors |= {f"buffer/{n}": b.clone() for n, b in self.buffers().items()}
        if self.optimizer:
            for name, parameter in self.weights.items():
                for key, value in self.optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        tensors[f"optimizer/{name}/{key}"] = value.clone()
        return Snapshot(tensors, self.batch_index)

    @torch.no_grad()
    def restore(self, snapshot: Snapshot, keep_index: bool = False) -> None:
        """Return to a captured state, bit for bit."""
        for name, parameter in self.weights.items():
            parameter.copy_(snapshot.tensors[f"weight/{name}"])
            parameter.grad = None
        for name, buffer in self.buffers().items():
            value = snapshot.tensors[f"buffer/{name}"]
            if buffer.shape != value.shape:
                buffer.resize_(value.shape)
            buffer.copy_(value)
        if self.optimizer:
            self.optimizer.state.clear()
            for path, value in snapshot.tensors.items():
                if path.startswith("optimizer/"):
                    name, key = path.removeprefix("optimizer/").rsplit("/", 1)
                    parameter = self.weights[name]
                    moments = value.shape == parameter.shape  # Adam's counter stays on the CPU
                    value = value.clone().to(parameter.device) if moments else value.clone()
                    self.optimizer.state[parameter][key] = value
        if not keep_index:
            self.batch_index = snapshot.batch_index

    def checksum(self) -> int:
        """Return a number that differs where ranks' weights differ, independent of the order."""
        halves = (p.detach().reshape(-1).view(torch.int16) for p in self.weights.values())
        return int(sum(half.sum() for half in halves))

    def report(self) -> Trainable:
        """Return what is trained, and how much."""
        shapes = {name: tuple(parameter.shape) for name, parameter in self.weights.items()}
        count = sum(parameter.numel() for parameter in self.weights.values())
        return Trainable(shapes, count, sum(p.numel() for p in self.method.parameters()))

    def fingerprint(self, source: Snapshot) -> str:
        """Return a hash of the model's source weights: names, shapes and bytes; computed once."""
        if self._hashed is None or self._hashed[0] is not source:
            self._hashed = source, self._hash(source)
        return self._hashed[1]

    def _hash(self, source: Snapshot) -> str:
        digest = hashlib.sha256()
        model: nn.Module = self.method.model  # type: ignore[assignment]
        for name, value in sorted(model.state_dict().items()):
            value = source.tensors.get(f"weight/model.{name}", value)
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
            flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(flat.numpy().data)
        digest.update(getattr(model, "faster_encoders", "").encode())  # other tokens, other states
        return digest.hexdigest()


def _public(name: str) -> str:
    return "model." + name.removeprefix("_model.") if name.startswith("_model.") else name


def pack_state(memory: Memory, source: Snapshot, counters: dict[str, Any]) -> State:
    """Return a copy of the current state together with what it belongs to."""
    now = memory.capture()
    return {
        "format": FORMAT,
        **_belonging(memory, source),
        "batch_index": now.batch_index,
        "counters": counters,
        "tensors": {name: value.cpu().contiguous() for name, value in now.tensors.items()},
    }


def unpack_state(state: State, memory: Memory, source: Snapshot, where: str) -> Snapshot:
    """Return a saved state as a snapshot; refuse one that belongs to another method or model.

    `where` names the state in error messages.
    """
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise StateError(f"{where} is not a saved state (format {found!r}).")
    for key, value in _belonging(memory, source).items():
        if state.get(key) != value:
            difference = _difference(state.get(key, ""), value)
            raise StateError(
                f"{where} was saved with {OTHER[key]}: {difference}. Load it into an adaptation "
                "with the same method, hyper-parameters and source weights."
            )
    if not isinstance(state.get("batch_index"), int) or not isinstance(state.get("tensors"), dict):
        raise StateError(f"{where} lacks its batch_index or its tensors: use another copy.")
    _check_tensors(where, state["tensors"], memory)
    return Snapshot(state["tensors"], state["batch_index"])


def write_state(path: str | Path, state: State) -> None:
    """Write a state to one file, which is complete and on the disk when this returns."""
    texts = {key: value for key, value in state.items() if key != "tensors"}
    metadata = {k: v if isinstance(v, str) else json.dumps(v) for k, v in texts.items()}
    with atomic_path(path, durable=True) as part:
        try:
            save_file(state["tensors"], part, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"{path} could not be written: {error}") from error


def read_state(path: str | Path) -> State:
    """Read a state from a file; `unpack_state` checks whether it belongs here."""
    path = Path(path)
    if not path.is_file():
        raise StateError(f"no saved state at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            state: State = dict(file.metadata() or {})
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        for key in ("hyper", "batch_index", "counters"):
            if key in state:
                state[key] = json.loads(state[key])
    except (SafetensorError, OSError, ValueError) as error:
        raise StateError(f"{path} is damaged or not a saved state: {error}.") from error
    return state | {"tensors": tensors}


def describe(method: Method) -> State:
    """Return the name of a method and its hyper-parameters as texts."""
    hyper = {name: repr(getattr(method, name, None)) for name in hyperparameters(type(method))}
    return {"method": name_of(type(method)), "hyper": hyper}


def _belonging(memory: Memory, source: Snapshot) -> State:
    return {**describe(memory.method), "model": memory.fingerprint(source)}


def _difference(saved: Any, here: Any) -> str:
    """Say how two settings differ: by option if they are dicts, shortened if they are long."""
    if isinstance(saved, dict) and isinstance(here, dict):
        names = sorted(n for n in saved.keys() | here.keys() if saved.get(n) != here.get(n))
        return ", ".join(f"{name} {saved.get(name)}, here {here.get(name)}" for name in names)
    return f"{str(saved)[:12]}, here {str(here)[:12]}"


def _check_tensors(where: str, tensors: dict[str, Tensor], memory: Memory) -> None:
    shapes = {f"weight/{name}": value.shape for name, value in memory.weights.items()}
    needed = [*shapes, *(f"buffer/{name}" for name in memory.buffers())]
    wrong = [name for name in needed if name not in tensors]
    for name, value in tensors.items():
        fits = isinstance(value, Tensor) and value.shape == shapes.get(name, value.shape)
        weight = name.removeprefix("optimizer/").rsplit("/", 1)[0]
        if not fits or (name.startswith("optimizer/") and weight not in memory.weights):
            wrong.append(name)
    if wrong:
        raise StateError(f"{where} does not fit: {', '.join(wrong)}.")


class Checkpoint:
    """A file to which the state is written every few batches, to resume a killed run from."""

    def __init__(self, path: str | Path, every: int, writes: bool = True) -> None:
        """Write after every `every` batches, or, on all ranks but one, only read the file."""
        whole(checkpoint_every=every)
        self.path, self.every, self.writes = Path(path), every, writes
        if self.path.is_dir():
            raise OptionError(f"checkpoint={str(path)!r} is a directory: give the path of a file.")
        if writes:
            remove_parts(self.path)
        self._written_at = 0

    def start_from(self, batches: int) -> int:
        """Set the number of batches already processed, and return it."""
        self._written_at = batches
        return batches

    def after_batch(self, recorder: Recorder, state: Callable[[], State]) -> None:
        """Write the state if it is due. If writing fails the old file stays and the run goes on."""
        batches = recorder.counters.totals["batches"]
        if not self.writes or batches - self._written_at < self.every:
            return
        self._written_at = batches
        recorder.to_disk()  # the log first, so that it has every batch that the state includes
        what = f"the checkpoint {self.path}"
        if recorder.guarded(lambda: write_state(self.path, state()), what):
            recorder.event("save", count="saves", path=self.path)
