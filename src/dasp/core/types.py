"""The types passed between packages: batches, tokens, fused outputs, steps and outcomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

Inputs = Mapping[str, Tensor]  # raw inputs by modality, each (B, ...)
Tokens = Mapping[str, Tensor]  # encoded tokens by modality, each (B, N, D)


@dataclass(frozen=True)
class Batch:
    """One batch of a stream. A method sees only `inputs`; the rest is for evaluation."""

    inputs: Inputs
    labels: Tensor  # (B,)
    ids: Sequence[str] = ()  # of the samples, length B if they have names
    domain: str = ""


@dataclass(frozen=True)
class Attention:
    """Post-softmax attention of the fusion, and the span of each modality's tokens in it."""

    weights: Tensor  # (B, heads, N, N), rows are queries
    spans: Mapping[str, slice]


@dataclass(frozen=True)
class Fused:
    """The output of a model's `fuse`."""

    embedding: Tensor  # (B, D), before the head
    logits: Tensor  # (B, C)
    attention: Attention | None = None


@dataclass(frozen=True)
class Layered:
    """The output of an encoder run layer by layer: its tokens, and the features per layer."""

    tokens: Tensor  # (B, N, D), as returned by `encode`
    features: Tensor  # (L, B, D), the token mean after each of its L layers, normalised


@dataclass(frozen=True)
class Layers:
    """The parts of a model that methods train or leave alone, in the order they run."""

    encoders: Mapping[str, Sequence[nn.Module]]  # blocks per modality
    fusion: Sequence[nn.Module]  # blocks
    output: Sequence[nn.Module]  # what follows the fusion's blocks, such as norm and head


@dataclass(frozen=True)
class Diagnosis:
    """The modalities that look shifted in one batch, and why."""

    scores: Mapping[str, float]  # per modality: redundancy, or distance from clean over its limit
    differences: Mapping[str, float]  # score minus what it is compared with, such as the lowest
    biased: frozenset[str]
    probability: Mapping[str, float] = field(default_factory=dict)  # of damage; {} if not known
    # Which of the B samples are damaged in a flagged modality; {} if they were not told apart.
    samples: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Prediction:
    """Logits computed without changing any state."""

    logits: Tensor  # (B, C)
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True)
class Step:
    """The result of a method's `step` on one batch; the loop applies it.

    `loss=None` means no update, and `skipped` says why. A method whose gradient is not that of
    `loss` at the current weights (SAR) returns `gradients`, one per parameter of `trainable()` in
    that order, None for a parameter without one.
    `restart` asks the loop to return to the source state after this step. `rollback` is the reason
    to return to good weights (`Method.roll_back`); `logits` is then the prediction without the
    present ones, and no update is made. `rate` scales the learning rate of this step. `more` asks
    the loop to update and to call `step` on the same batch again, which does not count as one of
    `steps`.
    """

    logits: Tensor  # (B, C), of the prediction before the update
    loss: Tensor | None = None
    diagnosis: Diagnosis | None = None
    gradients: tuple[Tensor | None, ...] | None = None
    restart: bool = False
    rollback: str | None = None
    rate: float = 1.0
    more: bool = False
    skipped: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of one call of an adaptation."""

    logits: Tensor = field(repr=False)  # (B, C), float32, detached
    diagnosis: Diagnosis | None = None
    updated: bool = False
    loss: float | None = None
    lr: float | None = None  # the learning rate of the update; None if not `updated`
    rejected: str | None = None  # why the batch was rejected; the state is then unchanged
    rollback: str | None = None  # why the state returned to an earlier one after this batch
    skipped: str | None = None  # why no weight was updated; None if `updated`


@dataclass(frozen=True)
class Trainable:
    """The parameters a method trains, and the number of all parameters."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    count: int = 0
    total: int = 0

    def __str__(self) -> str:
        share = 100 * self.count / self.total if self.total else 0.0
        lines = [f"{self.count:,} of {self.total:,} parameters are trainable ({share:.2f}%)"]
        lines += [f"  {name} {tuple(shape)}" for name, shape in self.shapes.items()]
        return "\n".join(lines)
