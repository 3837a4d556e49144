"""Train a model of several modalities so that each of them also works alone.

The loss is the cross-entropy of all modalities together plus half that of each one alone; for
three modalities, that of any two may be added. (seed, epoch) alone decides the order of the
samples, and a checkpoint is written after each epoch: a training that was stopped goes on as if it
had not been.
"""

import json
import math
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

from dasp.core.contract import MultiModalModel
from dasp.core.errors import StateError
from dasp.core.files import atomic_path
from dasp.core.seeding import numpy_generator
from dasp.methods.base import device_of, positive, whole
from dasp.models import CavMae

WARMUP = 0.03  # share of all steps in which the learning rate climbs
ALONE = 0.5  # weight of each modality's own cross-entropy


class Examples(Protocol):
    """Items that begin with ({modality: tensor}, label).

    `batch(indices)`, if it has it, gives the stacked inputs and labels of many at once;
    `set_epoch(epoch)` makes the examples others in each epoch, as many in each.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Any, ...]: ...


@dataclass(frozen=True)
class TrainOptions:
    """How to train."""

    epochs: int = 7
    """Passes through the examples."""
    lr: float = 1.5e-3
    """Highest learning rate of AdamW; it warms up briefly and then falls as a cosine."""
    weight_decay: float = 0.05
    """Weight decay of AdamW."""
    batch: int = 64
    """Samples per step."""
    seed: int = 0
    """Seed of the first weights and of the order."""

    def __post_init__(self) -> None:
        positive(lr=self.lr, batch=self.batch)
        whole(epochs=self.epochs)


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to: mean loss, and validation accuracy (%) fused and alone."""

    loss: float
    accuracy: dict[str, float]


def fit(
    model: nn.Module,
    examples: Examples,
    validation: Examples,
    options: TrainOptions,
    checkpoint: Path,
    progress: Progress,
    pairs: float = 0.0,
) -> list[Epoch]:
    """Train `model` in place; go on from `checkpoint` where it exists.

    `pairs` is the weight of the cross-entropy of each pair, of three modalities.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, weight_decay=options.weight_decay)
    state: dict[str, Any] = {"model": model, "optimizer": optimizer}
    # What must be the same for a checkpoint to be continued:
    known = [getattr(model, "config", {}), len(examples), asdict(options), pairs]
    mark = json.dumps(known, sort_keys=True)
    history = _resume(checkpoint, state, mark)
    steps = len(epoch_order(len(examples), 0, options))
    step, total = steps * len(history), steps * options.epochs
    bar = progress.add_task("train", total=total, completed=step)
    for epoch in range(len(history), options.epochs):
        if hasattr(examples, "set_epoch"):
            examples.set_epoch(epoch)
        model.train()
        loss = 0.0
        for indices in epoch_order(len(examples), epoch, options):
            for group in optimizer.param_groups:
                group["lr"] = options.lr * schedule(step / total)
            batch_loss = _loss(model, *_take_to(model, examples, indices), pairs)
            optimizer.zero_grad(set_to_none=True)
            batch_loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loss += batch_loss.item() / steps
            step += 1
            progress.advance(bar)
        history.append(Epoch(loss, evaluate(model, validation)))
        _save(checkpoint, state, mark, history)
        progress.update(bar, description=f"train, epoch {epoch + 1}: loss {loss:.3f}")
    model.eval()
    return history


def epoch_order(size: int, epoch: int, options: TrainOptions) -> list[NDArray[np.int64]]:
    """Return the indices of each batch: whole batches only, unless there is not even one."""
    order, batch = (
        numpy_generator(options.seed, "order", str(epoch)).permutation(size),
        options.batch,
    )
    return [order[start : start + batch] for start in range(0, max(size - batch, 0) + 1, batch)]


def take(examples: Examples, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the stacked inputs, each (n, ...), and labels (n,) of some samples."""
    if hasattr(examples, "batch"):
        return examples.batch(indices)  # type: ignore[no-any-return]
    items = [examples[int(index)] for index in indices]
    inputs = {name: torch.stack([item[0][name] for item in items]) for name in items[0][0]}
    return inputs, torch.tensor([int(item[1]) for item in items])


def _take_to(
    model: nn.Module, examples: Examples, indices: NDArray[np.int64]
) -> tuple[dict[str, Tensor], Tensor]:
    """Return samples as `take` does, where the model is."""
    inputs, labels = take(examples, indices)
    device = device_of(model)
    return {name: value.to(device) for name, value in inputs.items()}, labels.to(device)


@torch.no_grad()
def evaluate(model: nn.Module, examples: Examples, batch: int = 128) -> dict[str, float]:
    """Return the accuracy (%) of "fused" and of each part, from global counts.

    A part is one modality, or two of three, such as "audio+video".
    """
    assert isinstance(model, MultiModalModel)
    model.eval()
    count = len(model.modalities)
    sizes = range(1, count if count <= 3 else 2)  # five have 31 subsets: too many to read
    some = [names for size in sizes for names in combinations(model.modalities, size)]
    parts = {"fused": model.modalities} | {"+".join(names): names for names in some}
    right = dict.fromkeys(parts, 0)
    for indices in np.array_split(np.arange(len(examples)), math.ceil(len(examples) / batch)):
        inputs, labels = _take_to(model, examples, indices)
        tokens = model.encode(inputs)
        for part, names in parts.items():
            logits = model.fuse({name: tokens[name] for name in names}).logits
            right[part] += int((logits.argmax(dim=1) == labels).sum())
    return {name: 100 * count / len(examples) for name, count in right.items()}


def schedule(done: float) -> float:
    """Return the share of the learning rate when `done` of all steps are made: climb, cosine."""
    if done < WARMUP:
        return (done + 1e-3) / (WARMUP + 1e-3)
    return 0.5 * (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP)))


def _loss(model: nn.Module, inputs: dict[str, Tensor], labels: Tensor, pairs: float) -> Tensor:
    assert isinstance(model, MultiModalModel)
    tokens = model.encode(inputs)
    loss = F.cross_entropy(model.fuse(tokens).logits, labels)
    for size, weight in ((1, ALONE), (2, pairs)):
        for names in combinations(tokens, size) if weight else ():
            part = {name: tokens[name] for name in names}
            loss = loss + weight * F.cross_entropy(model.fuse(part).logits, labels)
    return loss


def _save(path: Path, state: dict[str, Any], mark: str, history: list[Epoch]) -> None:
    content = {name: part.state_dict() for name, part in state.items()}
    content |= {"mark": mark, "history": [asdict(epoch) for epoch in history]}
    with atomic_path(path) as part:
        torch.save(content, part)


def _resume(path: Path, state: dict[str, Any], mark: str) -> list[Epoch]:
    if not path.is_file():
        return []
    content = torch.load(path, map_location="cpu", weights_only=True)
    if content["mark"] != mark:
        raise StateError(
            f"{path} is the checkpoint of a training with other settings: "
            "repeat those, or give another output or remove the file."
        )
    for name, part in state.items():
        part.load_state_dict(content[name])
    return [Epoch(**epoch) for epoch in content["history"]]


def new_model(sizes: dict[str, float], seed: int) -> CavMae:
    """Return a CAV-MAE of these sizes whose first weights the seed decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CavMae(**sizes)  # type: ignore[arg-type]


def history_table(history: list[Epoch]) -> Table:
    """Return the validation accuracies of a training, one row per epoch."""
    table = Table("epoch", "loss", *history[-1].accuracy, title="Validation accuracy (%)")
    for number, epoch in enumerate(history, start=1):
        figures = [f"{value:.1f}" for value in epoch.accuracy.values()]
        table.add_row(str(number), f"{epoch.loss:.3f}", *figures)
    return table
