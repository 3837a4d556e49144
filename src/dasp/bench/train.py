"""Train a model of several modalities so that each of them also works alone.

The loss is the cross-entropy of all modalities together plus half that of each one alone; for
three modalities, that of any two may be added. (seed, epoch) alone decides the order of the
samples, and a checkpoint is written after each epoch: a training that was stopped goes on as if it
had not been.
"""

import json
import math
from collections.abc import Sequence
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
from dasp.core.errors import OptionError, StateError
from dasp.core.files import atomic_path
from dasp.core.seeding import numpy_generator
from dasp.data.clips import open_manifest
from dasp.data.loading import ClipDataset
from dasp.methods.base import positive
from dasp.models import CavMae

WARMUP = 0.03  # share of all steps in which the learning rate climbs
ALONE = 0.5  # weight of each modality's own cross-entropy

_State = dict[str, nn.Module | torch.optim.Optimizer]


class Examples(Protocol):
    """Any data set whose items begin with ({modality: tensor}, label).

    If it has `batch(indices)`, that gives the stacked inputs and labels of many samples at once; if
    it has `set_epoch(epoch)`, its examples are others in each epoch.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Any, ...]: ...


def epoch_order(size: int, epoch: int, batch: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the indices of each batch: whole batches only, unless there is not even one."""
    order = numpy_generator(seed, "order", str(epoch)).permutation(size)
    return [order[start : start + batch] for start in range(0, max(size - batch, 0) + 1, batch)]


def take(examples: Examples, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the stacked inputs, each (n, ...), and labels (n,) of some samples."""
    if hasattr(examples, "batch"):
        return examples.batch(indices)  # type: ignore[no-any-return]
    items = [examples[int(index)] for index in indices]
    inputs = {name: torch.stack([item[0][name] for item in items]) for name in items[0][0]}
    return inputs, torch.tensor([int(item[1]) for item in items])


@dataclass(frozen=True)
class Stage:
    """Some epochs on the same examples."""

    name: str
    examples: Examples
    epochs: int


@dataclass(frozen=True)
class TrainOptions:
    """How to train."""

    lr: float = 1.5e-3
    weight_decay: float = 0.05
    batch: int = 64
    pairs: float = 0.0  # weight of the cross-entropy of each pair, of three modalities
    seed: int = 0

    def __post_init__(self) -> None:
        positive(lr=self.lr, batch=self.batch)


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to: mean loss, and validation accuracy (%) fused and alone."""

    stage: str
    loss: float
    accuracy: dict[str, float]


def fit(
    model: nn.Module,
    stages: Sequence[Stage],
    validation: Examples,
    options: TrainOptions,
    checkpoint: Path,
    progress: Progress,
) -> list[Epoch]:
    """Train `model` in place through all stages; go on from `checkpoint` where it exists."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, weight_decay=options.weight_decay)
    state: _State = {"model": model, "optimizer": optimizer}
    # What must be the same for a checkpoint to be continued:
    parts = [[stage.name, len(stage.examples), stage.epochs] for stage in stages]
    mark = json.dumps([getattr(model, "config", {}), parts, asdict(options)], sort_keys=True)
    history = _resume(checkpoint, state, mark)
    plan = [stage for stage in stages for _ in range(stage.epochs)]
    orders = [
        epoch_order(len(stage.examples), epoch, options.batch, options.seed)
        for epoch, stage in enumerate(plan)
    ]
    step, total = sum(map(len, orders[: len(history)])), sum(map(len, orders))
    bar = progress.add_task("train", total=total, completed=step)
    for epoch in range(len(history), len(plan)):
        examples, loss = plan[epoch].examples, 0.0
        if hasattr(examples, "set_epoch"):
            examples.set_epoch(epoch)
        model.train()
        for indices in orders[epoch]:
            for group in optimizer.param_groups:
                group["lr"] = options.lr * schedule(step / total)
            batch = take(examples, indices)
            batch_loss = _loss(model, *batch, options)
            optimizer.zero_grad(set_to_none=True)
            batch_loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loss += batch_loss.item() / len(orders[epoch])
            step += 1
            progress.advance(bar)
        history.append(Epoch(plan[epoch].name, loss, evaluate(model, validation)))
        _save(checkpoint, state, mark, history)
        progress.update(bar, description=f"train, epoch {epoch + 1}: loss {loss:.3f}")
    model.eval()
    return history


@torch.no_grad()
def evaluate(model: nn.Module, examples: Examples, batch: int = 128) -> dict[str, float]:
    """Return the accuracy (%) of "fused" and of each part, from global counts.

    A part is one modality, or several but not all, such as "audio+video" of three.
    """
    assert isinstance(model, MultiModalModel)
    model.eval()
    parts = {"fused": model.modalities} | {
        "+".join(names): names
        for size in range(1, len(model.modalities))
        for names in combinations(model.modalities, size)
    }
    right = dict.fromkeys(parts, 0)
    for indices in np.array_split(np.arange(len(examples)), math.ceil(len(examples) / batch)):
        inputs, labels = take(examples, indices)
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


def _loss(
    model: nn.Module, inputs: dict[str, Tensor], labels: Tensor, options: TrainOptions
) -> Tensor:
    assert isinstance(model, MultiModalModel)
    tokens = model.encode(inputs)
    loss = F.cross_entropy(model.fuse(tokens).logits, labels)
    for size, weight in ((1, ALONE), (2, options.pairs)):
        for names in combinations(tokens, size) if weight else ():
            part = {name: tokens[name] for name in names}
            loss = loss + weight * F.cross_entropy(model.fuse(part).logits, labels)
    return loss


def _save(path: Path, state: _State, mark: str, history: list[Epoch]) -> None:
    content = {name: part.state_dict() for name, part in state.items()}
    epochs = [asdict(epoch) for epoch in history]
    with atomic_path(path) as part:
        torch.save({"mark": mark, "history": epochs, **content}, part)


def _resume(path: Path, state: _State, mark: str) -> list[Epoch]:
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


def clip_stages(
    data: Path, validation: Path, epochs: int, follow_links: bool = False
) -> tuple[list[Stage], Examples, int]:
    """Return the training stage, the held-out examples and the number of classes of two folders."""
    manifest, held_out = (
        open_manifest(folder, follow_links=follow_links) for folder in (data, validation)
    )
    if manifest.classes != held_out.classes:
        raise OptionError(f"{data} and {validation} do not have the same classes.")
    stage = Stage(manifest.name, ClipDataset(manifest), epochs)
    return [stage], ClipDataset(held_out), len(manifest.classes)


def history_table(history: list[Epoch]) -> Table:
    """Return the validation accuracies of a training, one row per epoch."""
    table = Table("epoch", "on", title="Validation accuracy (%)")
    for name in ("loss", *history[-1].accuracy):
        table.add_column(name, justify="right")
    for number, epoch in enumerate(history, start=1):
        figures = [f"{epoch.loss:.3f}", *(f"{value:.1f}" for value in epoch.accuracy.values())]
        table.add_row(str(number), epoch.stage, *figures)
    return table
