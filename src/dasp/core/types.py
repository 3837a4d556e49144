"""What flows through the house. Each type is made in one room and read in the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

Inputs = Mapping[str, Tensor]
"""Raw inputs by modality, each (B, ...)."""

Tokens = Mapping[str, Tensor]
"""Encoded tokens by modality, each (B, N, D)."""


@dataclass(frozen=True)
class Batch:
    """One batch of a stream. A method sees `inputs` alone; the bench counts with the rest."""

    inputs: Inputs
    labels: Tensor  # (B,)
    ids: Sequence[str] = ()  # of the samples, length B where they have names
    domain: str = ""


@dataclass(frozen=True)
class Attention:
    """Post-softmax attention of the fusion, and where each modality's tokens lie in it."""

    weights: Tensor  # (B, heads, N, N), rows are queries
    spans: Mapping[str, slice]


@dataclass(frozen=True)
class Fused:
    """What a model's `fuse` returns."""

    embedding: Tensor  # (B, D), before the head
    logits: Tensor  # (B, C)
    attention: Attention | None = None


@dataclass(frozen=True)
class Layered:
    """What an encoder gives when it is opened up: its tokens, and what each layer made."""

    tokens: Tensor  # (B, N, D), as `encode` gives them
    features: Tensor  # (L, B, D), the token mean after each of its L layers, normalised


@dataclass(frozen=True)
class Diagnosis:
    """Which modalities look shifted in one batch, and why."""

    scores: Mapping[str, float]  # redundancy of each modality
    differences: Mapping[str, float]  # score minus the lowest score
    biased: frozenset[str]


@dataclass(frozen=True)
class Prediction:
    """Logits made without touching any state."""

    logits: Tensor  # (B, C)
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True)
class Step:
    """What a method makes of one batch; the loop does the rest.

    `loss=None` means no update. A method whose gradient is not that of `loss` at the current
    weights (SAR) gives `gradients`, one for each parameter of
    `trainable()` in that order, None where it takes no part.
    `restart` asks the loop to return to the source state after this step. `rollback` says why the
    method wants its last good weights back (`Method.roll_back`); the batch is then predicted with
    those and nothing is learnt. `rate` scales the learning rate of this step.
    """

    logits: Tensor  # (B, C), of the prediction before the update
    loss: Tensor | None = None
    diagnosis: Diagnosis | None = None
    gradients: tuple[Tensor | None, ...] | None = None
    restart: bool = False
    rollback: str | None = None
    rate: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """What one call gives back."""

    logits: Tensor = field(repr=False)  # (B, C), float32, detached
    diagnosis: Diagnosis | None = None
    updated: bool = False
    loss: float | None = None
    rejected: str | None = None  # why the batch was refused; then nothing has changed
    rollback: str | None = None  # why the state went back to an earlier one after this batch


@dataclass(frozen=True)
class Trainable:
    """What a method trains, of how much."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    count: int = 0
    total: int = 0

    def __str__(self) -> str:
        share = 100 * self.count / self.total if self.total else 0.0
        lines = [f"{self.count:,} of {self.total:,} parameters are trainable ({share:.2f}%)"]
        lines += [f"  {name} {tuple(shape)}" for name, shape in self.shapes.items()]
        return "\n".join(lines)
