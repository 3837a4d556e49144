"""What changes while adapting, captured and restored as one thing."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dasp.core.errors import ContractError
from dasp.core.types import Step, Trainable
from dasp.methods.base import Method


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
        self._hashed: tuple[Snapshot, str] | None = None

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
        """Let the optimiser step with its learning rates scaled for this once."""
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
        """Let the optimiser start over: its averages belong to weights that were taken back."""
        if self.optimizer:
            self.optimizer.state.clear()

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

    def checksum(self) -> int:
        """Return a number that tells weights of ranks apart, the same in whatever order summed."""
        halves = (p.detach().reshape(-1).view(torch.int16) for p in self.weights.values())
        return int(sum(half.sum() for half in halves))

    def report(self) -> Trainable:
        """Say what is trained."""
        shapes = {name: tuple(parameter.shape) for name, parameter in self.weights.items()}
        count = sum(parameter.numel() for parameter in self.weights.values())
        return Trainable(shapes, count, sum(p.numel() for p in self.method.parameters()))

    def fingerprint(self, source: Snapshot) -> str:
        """Hash the model's source weights: names, shapes and bytes. They stay: once is enough."""
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
