"""CoTTA: learn from an averaged teacher's augmented predictions, and return to source at random."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from dasp.core.contract import HasWeightOrder
from dasp.core.types import Inputs, Prediction, Step
from dasp.methods.augment import augmented, check_augment
from dasp.methods.base import METHODS, Method, fraction, one_of, whole
from dasp.methods.copies import WeightCopy


def consistency(student: Tensor, teacher: Tensor, symmetric: bool = False) -> Tensor:
    """Return the mean cross-entropy of the student with the teacher's targets, (B, C) → ().

    Symmetric: half of it, and half of the reverse.
    """
    loss = -(teacher.softmax(dim=1) * student.log_softmax(dim=1)).sum(dim=1).mean()
    if symmetric:
        reverse = -(student.softmax(dim=1) * teacher.log_softmax(dim=1)).sum(dim=1).mean()
        loss = (loss + reverse) / 2
    return loss


@METHODS.register("cotta")
class Cotta(Method):
    """L = cross-entropy with an averaged teacher, on every weight and bias.

    Paper: Wang et al., "Continual Test-Time Domain Adaptation", CVPR 2022.

    If the source model's mean confidence in the batch is below `ap`, the teacher's logits are
    averaged over `augmentations` augmented copies. After the update the teacher follows the student
    with `momentum`, then each trained number returns to its source value with probability
    `restore`. The teacher's prediction is reported. Published: ap .92, restore .01 (CIFAR); ap .1,
    restore .001, symmetric (ImageNet). Learns nothing from a batch that lacks a modality.

    The paper's image augmentations have no counterpart for sound: `augment` names ours
    (`dasp.methods.augment`). As long as student and teacher are equal, an unaugmented one-sided
    loss has no gradient but rounding noise, which Adam would blow up: such a step is skipped.
    """

    version = 2
    published = "2022-06"
    sharded = "it draws for weights after the update, on each rank anew"
    tunes_encoder = True

    def __init__(
        self,
        model: nn.Module,
        *,
        ap: float = 0.92,
        momentum: float = 0.999,
        restore: float = 0.01,
        augmentations: int = 32,
        augment: str | Mapping[str, str] = "roll",
        symmetric: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        fraction(ap=ap, momentum=momentum, restore=restore)
        whole(augmentations=augmentations)
        one_of("symmetric", symmetric, True, False)
        check_augment(augment, self.model.modalities)
        self.ap, self.momentum, self.restore = ap, momentum, restore
        self.augmentations, self.augment, self.symmetric = augmentations, augment, symmetric
        self.teacher = WeightCopy(model, self.trainable())
        self.anchor = WeightCopy(model, self.trainable(), constant=True)

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train what is called weight or bias, in the order of the release if the model has one."""
        model = self.model
        if isinstance(model, HasWeightOrder):
            return model.weight_order()
        named = model.named_parameters()
        return [p for name, p in named if name.rpartition(".")[2] in ("weight", "bias")]

    def begin(self) -> None:
        """Copy the source weights."""
        self.teacher.take()
        self.anchor.take()

    def step(self, batch: Inputs) -> Step:
        """Predict with the teacher; the student learns to agree."""
        target, averaged = self._teach(batch, self.generator)
        if len(batch) < len(self.model.modalities):
            return Step(target, skipped="Cotta learns only from all modalities")
        if not (averaged or self.symmetric or self._has_moved()):
            return Step(target, skipped="student and teacher agree: the source model is sure")
        return Step(target, consistency(self.forward(batch).logits, target, self.symmetric))

    def after_update(self) -> None:
        """Let the teacher follow, then return some of the student's numbers to their source."""
        self.teacher.follow(1 - self.momentum)
        if self.restore:
            for weight, source in zip(self.trainable(), self.anchor.values(), strict=True):
                back = torch.rand(weight.shape, generator=self.generator) < self.restore
                weight.copy_(torch.where(back.to(weight.device), source, weight))

    def predicting(self) -> AbstractContextManager[None]:
        """Let the averaged weights predict."""
        return self.teacher.in_place()

    def predict(self, batch: Inputs) -> Prediction:
        """Predict with the teacher; random augmentations are the same in every call."""
        return Prediction(self._teach(batch, torch.Generator().manual_seed(self.seed))[0])

    @torch.no_grad()
    def _teach(self, batch: Inputs, generator: torch.Generator) -> tuple[Tensor, bool]:
        """Return the teacher's logits, and whether they are an average over augmentations."""
        with self.anchor.in_place():
            sure = self.forward(batch).logits.softmax(dim=1).amax(dim=1).mean()
        with self.predicting():
            if sure >= self.ap:
                return self.forward(batch).logits, False
            views = (
                self.forward(augmented(batch, self.augment, k, generator)).logits
                for k in range(self.augmentations)
            )
            return torch.stack(list(views)).mean(dim=0), True

    def _has_moved(self) -> bool:
        pairs = zip(self.trainable(), self.teacher.values(), strict=True)
        return any(not torch.equal(weight, value) for weight, value in pairs)
