"""What changes while adapting, captured and restored as one thing, in memory and on disk."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dasp.core.errors import ContractError, StateError
from dasp.core.files import atomic_path
from dasp.core.types import Step, Trainable
from dasp.methods.base import METHODS, Method, hyperparameters

FORMAT = "dasp-state-1"


@dataclass(frozen=True)
class Snapshot:
    """A copy of everything that adapting changes."""

    tensors: dict[str, Tensor]  # "weight/…", "buffer/…", "optimizer/<weight>/<key>"
    batch_index: int


class Memory:
    """The trainable weights, the optimiser, the method's buffers and the place in the stream."""

    def __init__(self, method: Method, lr: float) -> None:
        self.method = method
        names = {id(p): _public(name) for name, p in method.named_parameters()}
        trainable = list(method.trainable())
        if any(id(parameter) not in names for parameter in trainable):
            raise ContractError(
                f"{type(method).__name__}.trainable() returned a parameter that is neither the "
                "model's nor the method's: keep new ones as attributes or in self.adapters."
            )
        self.weights = {names[id(parameter)]: parameter for parameter in trainable}
        parameters = list(self.weights.values())
        self.optimizer = method.optimizer(parameters, lr) if parameters else None
        self.batch_index = 0

    def buffers(self) -> dict[str, Tensor]:
        """Return the method's own buffers (not the model's)."""
        return {n: b for n, b in self.method.named_buffers() if not n.startswith("_model.")}

    def descend(self, step: Step) -> str | None:
        """Update once; return why not, if something is not finite (the caller then restores)."""
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
        # The sum of squares, not each value: Adam squares them, and an overflow would stay.
        if not all(torch.isfinite(g.square().sum()) for g in gradients):
            return "a gradient is not finite"
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not all(torch.isfinite(p).all() for p in self.weights.values()):
            return "the update made a weight that is not finite: lower lr"
        return None

    @torch.no_grad()
    def capture(self) -> Snapshot:
        """Copy everything."""
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

    def report(self) -> Trainable:
        """Say what is trained."""
        shapes = {name: tuple(parameter.shape) for name, parameter in self.weights.items()}
        count = sum(parameter.numel() for parameter in self.weights.values())
        return Trainable(shapes, count, sum(p.numel() for p in self.method.parameters()))

    def fingerprint(self, source: Snapshot) -> str:
        """Hash the model's source weights: names, shapes and bytes."""
        digest = hashlib.sha256()
        model: nn.Module = self.method.model  # type: ignore[assignment]
        for name, value in sorted(model.state_dict().items()):
            value = source.tensors.get(f"weight/model.{name}", value)
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
            flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(flat.numpy().data)
        return digest.hexdigest()


def save(path: str | Path, memory: Memory, source: Snapshot) -> None:
    """Write the present state with what it belongs to."""
    now = memory.capture()
    metadata = {
        "format": FORMAT,
        "method": _method_name(memory.method),
        "hyper": json.dumps(_hyper(memory.method), sort_keys=True),
        "model": memory.fingerprint(source),
        "batch_index": str(now.batch_index),
    }
    tensors = {name: value.cpu().contiguous() for name, value in now.tensors.items()}
    with atomic_path(path) as part:
        save_file(tensors, part, metadata=metadata)


def load(path: str | Path, memory: Memory, source: Snapshot) -> Snapshot:
    """Read a state and check that it belongs to this method and model."""
    path = Path(path)
    if not path.is_file():
        raise StateError(f"no saved state at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise StateError(f"{path} is damaged or not a saved state: {error}.") from error
    if metadata.get("format") != FORMAT:
        raise StateError(f"{path} is not a saved state (format {metadata.get('format')!r}).")
    expected = {
        "method": _method_name(memory.method),
        "hyper": json.dumps(_hyper(memory.method), sort_keys=True),
        "model": memory.fingerprint(source),
    }
    for key, value in expected.items():
        if metadata.get(key) != value:
            difference = _difference(metadata.get(key, ""), value)
            raise StateError(
                f"{path} was saved with another {key}: {difference}. Load it into an adaptation "
                "with the same method, hyper-parameters and source weights."
            )
    _check_tensors(path, tensors, memory)
    return Snapshot(tensors, int(metadata["batch_index"]))


def _difference(saved: str, here: str) -> str:
    """Say how two settings differ: by option where they are maps, shortened where they are long."""
    if saved.startswith("{"):
        then, now = json.loads(saved), json.loads(here)
        names = sorted(n for n in then.keys() | now.keys() if then.get(n) != now.get(n))
        return ", ".join(f"{name} {then.get(name)}, here {now.get(name)}" for name in names)
    return f"{saved[:12]}, here {here[:12]}"


def _check_tensors(path: Path, tensors: dict[str, Tensor], memory: Memory) -> None:
    wanted = {f"weight/{name}": value.shape for name, value in memory.weights.items()}
    missing = [name for name in wanted if name not in tensors]
    missing += [f"buffer/{n}" for n in memory.buffers() if f"buffer/{n}" not in tensors]
    wrong = [n for n, shape in wanted.items() if n in tensors and tensors[n].shape != shape]
    strange = [
        name
        for name in tensors
        if name.startswith("optimizer/")
        and name.removeprefix("optimizer/").rsplit("/", 1)[0] not in memory.weights
    ]
    if missing or wrong or strange:
        raise StateError(f"{path} does not fit: {', '.join(missing + wrong + strange)}.")


def _public(name: str) -> str:
    return "model." + name.removeprefix("_model.") if name.startswith("_model.") else name


def _method_name(method: Method) -> str:
    known = {METHODS[name]: name for name in METHODS}
    return known.get(type(method), type(method).__qualname__)


def _hyper(method: Method) -> dict[str, Any]:
    return {name: repr(getattr(method, name, None)) for name in hyperparameters(type(method))}
