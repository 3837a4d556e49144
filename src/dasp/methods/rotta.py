"""RoTTA: learn from a class-balanced memory of recent, certain samples, by an averaged teacher."""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Inputs, Prediction, Step
from dasp.methods.augment import augmented, check_augment
from dasp.methods.base import METHODS, Method, fraction, whole
from dasp.methods.copies import WeightCopy


@dataclass
class Item:
    """A sample in the memory: its predicted class, entropy, age, and where its inputs lie."""

    label: int
    uncertainty: float
    place: int
    age: int = 0

    def score(self, capacity: int, classes: int) -> float:
        """Return how dispensable it is: 1/(1 + exp(−age/N)) + u/ln C."""
        old = 1 / (1 + math.exp(-self.age / capacity))
        return old + self.uncertainty / math.log(classes)


def admit(items: list[Item], new: Item, capacity: int, classes: int) -> None:
    """Let a sample into a memory, kept class by class; then everything in it grows older.

    A class may hold capacity/classes samples, a real number. If it is full, its most dispensable
    sample must go; if the memory is full, that of the largest classes; and only if it is more
    dispensable than the new one, which is dropped otherwise.
    """
    counts = [0] * classes
    for item in items:
        counts[item.label] += 1
    rivals: list[Item] = []
    if counts[new.label] >= capacity / classes:
        rivals = [item for item in items if item.label == new.label]
    elif len(items) >= capacity:
        rivals = [item for item in items if counts[item.label] == max(counts)]
    if rivals:
        worst = max(reversed(rivals), key=lambda item: item.score(capacity, classes))  # the last
    if not rivals or worst.score(capacity, classes) > new.score(capacity, classes):
        if rivals:
            items.remove(worst)
        items.insert(sum(item.label <= new.label for item in items), new)
    for item in items:
        item.age += 1


def timeliness(age: Tensor, capacity: int) -> Tensor:
    """Return the weight of samples by age, e^−t / (1 + e^−t) with t = age/N: (M,) → (M,)."""
    return torch.sigmoid(-age / capacity)


class SampleStore(nn.Module):
    """The raw inputs of remembered samples, as buffers: (M, n) flat per modality, and its shape."""

    def __init__(self, modalities: tuple[str, ...], like: Tensor) -> None:
        super().__init__()
        for name in modalities:
            self.register_buffer(f"values/{name}", like.new_empty(0, 0))
            self.register_buffer(f"shape/{name}", torch.empty(0, dtype=torch.int64))

    def keep(self, places: list[int], batch: Inputs) -> None:
        """Keep the samples at these places of what is stored followed by a batch."""
        for name, value in batch.items():
            stored: Tensor = getattr(self, f"values/{name}")
            shape: Tensor = getattr(self, f"shape/{name}")
            if len(stored) and shape.tolist() != list(value.shape[1:]):
                raise InputError(
                    f"Rotta remembers '{name}' of shape {tuple(shape.tolist())} per sample and got "
                    f"{tuple(value.shape[1:])}: give all samples one shape, or reset() first."
                )
            flat = value.flatten(1).to(stored)
            both = torch.cat([stored, flat]) if len(stored) else flat
            setattr(self, f"values/{name}", both[places])
            setattr(self, f"shape/{name}", torch.tensor(value.shape[1:]))

    def samples(self, like: Inputs) -> dict[str, Tensor]:
        """Return all samples, of the kind of a batch."""
        return {
            name: getattr(self, f"values/{name}").reshape(-1, *value.shape[1:]).to(value.dtype)
            for name, value in like.items()
        }


@METHODS.register("rotta")
class Rotta(Method):
    """L = mean of timeliness × cross-entropy(teacher(x) → student(aug x)) over a memory.

    Paper: Yuan, Xie and Li, "Robust Test-Time Adaptation in Dynamic Scenarios", CVPR 2023.

    Trains every norm; its own replacement of batch norms is left out. Samples enter the
    memory one by one, under the teacher's class and entropy, and after every `period` of them the
    student makes one step, also in the middle of a batch; the teacher then follows it by `nu`. The
    teacher's prediction from before is reported. The memory learns nothing from a batch that lacks
    a modality. `augment` names the augmentation that the student sees.
    """

    version = 2
    published = "2023-06"
    sharded = "it remembers samples in their order, which stay on their rank"
    tunes_encoder = True
    trainable = Method.norms
    labels: Tensor
    uncertainty: Tensor
    age: Tensor
    arrived: Tensor
    position: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        memory: int = 64,
        period: int = 64,
        nu: float = 0.001,
        augment: str | Mapping[str, str] = "roll",
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        whole(memory=memory, period=period)
        fraction(nu=nu)
        check_augment(augment, self.model.modalities)
        self.memory, self.period, self.nu, self.augment = memory, period, nu, augment
        norms = self.norms()
        self.teacher = WeightCopy(model, norms)
        self.store = SampleStore(self.model.modalities, norms[0].detach())
        for name in ("labels", "age"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int64))  # (M,), class by class
        self.register_buffer("uncertainty", torch.empty(0, dtype=torch.float64))  # (M,)
        self.register_buffer("arrived", torch.zeros((), dtype=torch.int64))  # samples so far
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))  # next of this batch
        self._arriving = torch.empty(0)  # the teacher's logits of this batch

    def begin(self) -> None:
        """Copy the source weights."""
        self.teacher.take()

    def step(self, batch: Inputs) -> Step:
        """Let samples in until a step is due, or the batch is over."""
        start = int(self.position)
        if start == 0:
            self._arriving = self.predict(batch).logits
        logits = self._arriving
        if len(batch) < len(self.model.modalities):
            return Step(logits, skipped="Rotta learns only from all modalities")
        items, due = list(self._items()), False
        for row, (label, uncertainty) in enumerate(_judged(logits)):
            if row >= start and not due:
                new = Item(label, uncertainty, place=len(self.labels) + row)
                admit(items, new, self.memory, self.model.num_classes)
                self.arrived += 1
                self.position.fill_((row + 1) % len(logits))
                due = int(self.arrived) % self.period == 0
        self._keep(items, batch)
        why = None if due else f"a step is due after every {self.period} samples"
        loss = self._loss(batch) if due else None
        return Step(logits, loss, more=bool(self.position), skipped=why)

    def after_update(self) -> None:
        """Let the teacher follow the student."""
        self.teacher.follow(self.nu)

    def predicting(self) -> AbstractContextManager[None]:
        """Let the averaged weights predict."""
        return self.teacher.in_place()

    def predict(self, batch: Inputs) -> Prediction:
        """Predict with the teacher."""
        with self.predicting():
            return Prediction(self.forward(batch).logits)

    def _loss(self, batch: Inputs) -> Tensor:
        samples = self.store.samples(batch)
        target = self.predict(samples).logits.softmax(dim=1)
        student = self.forward(augmented(samples, self.augment, 1, self.generator)).logits
        each = -(target * student.log_softmax(dim=1)).sum(dim=1)
        return (each * timeliness(self.age.to(each), self.memory)).mean()

    def _items(self) -> Iterator[Item]:
        stored = zip(
            self.labels.tolist(), self.uncertainty.tolist(), self.age.tolist(), strict=True
        )
        for place, (label, uncertainty, age) in enumerate(stored):
            yield Item(label, uncertainty, place, age)

    def _keep(self, items: list[Item], batch: Inputs) -> None:
        """Write back what is remembered."""
        self.store.keep([item.place for item in items], batch)
        self.labels = torch.tensor([item.label for item in items])
        self.age = torch.tensor([item.age for item in items])
        uncertainty = [item.uncertainty for item in items]
        self.uncertainty = torch.tensor(uncertainty, dtype=torch.float64)


def _judged(logits: Tensor) -> list[tuple[int, float]]:
    """Return class and entropy, with log(p + 1e-6), of each row."""
    p = logits.softmax(dim=1)
    uncertainty = -(p * (p + 1e-6).log()).sum(dim=1)
    return list(zip(p.argmax(dim=1).tolist(), uncertainty.tolist(), strict=True))
