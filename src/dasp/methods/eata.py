"""EATA: entropy on reliable, non-redundant samples; optionally a Fisher penalty against drift."""

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Inputs, Step
from dasp.methods.base import METHODS, Method, not_negative, positive
from dasp.methods.losses import entropy


def eata_keep(logits: Tensor, average: Tensor, margin: float, similarity: float) -> Tensor:
    """Tell which samples are confident (H < margin·ln C) and unlike the average: (B,) bool.

    `average` (C,) is the running mean of kept predictions; as long as it is NaN (none kept yet),
    the second filter does not apply.
    """
    keep = entropy(logits) < margin * math.log(logits.shape[1])
    if not torch.isnan(average).any():
        likeness = F.cosine_similarity(logits.softmax(dim=1), average[None], dim=1)
        keep = keep & (likeness.abs() < similarity)
    return keep


def usual_similarity(classes: int) -> float:
    """Return ε = .4·(10/C)^.45, close to the published .4 (10 classes) and .05 (1000 classes).

    The cosine of a sure prediction with a uniform average is 1/√C: a fixed ε that suits many
    classes lets hardly any sample of few classes pass.
    """
    return 0.4 * math.pow(10 / classes, 0.45)


def eata_loss(logits: Tensor, margin: float) -> Tensor:
    """Return the mean of exp(margin·ln C − H)·H, with a constant weight: (K, C) → ()."""
    value = entropy(logits)
    weight = (margin * math.log(logits.shape[1]) - value).exp().detach()
    return (weight * value).mean()


@METHODS.register("eata")
class Eata(Method):
    """L = mean over kept samples of w·H (+ α Σ F (θ − θ₀)² after `fit`), on every norm.

    Paper: Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022.
    Without `fit` this is the paper's ETA. `fit(source)` takes clean batches of raw inputs and
    estimates F as the mean over batches of the squared gradient of the cross-entropy with the
    model's own labels, as the authors' code does. `similarity=None` is `usual_similarity`.
    """

    version = 1
    published = "2022-07"
    sharded = True
    tunes_encoder = True
    trainable = Method.norms
    average: Tensor
    fisher: Tensor
    anchor: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        margin: float = 0.4,
        similarity: float | None = None,
        momentum: float = 0.9,
        alpha: float = 2000.0,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        usual = usual_similarity(self.model.num_classes)
        self._limit = usual if similarity is None else similarity
        positive(margin=margin, similarity=self._limit)
        not_negative(momentum=momentum, alpha=alpha)
        self.margin, self.similarity = margin, similarity
        self.momentum, self.alpha = momentum, alpha
        like = self.norms()[0]
        self.register_buffer("average", like.new_full((self.model.num_classes,), torch.nan))
        self.register_buffer("fisher", like.new_empty(0))  # (P,) after fit
        self.register_buffer("anchor", like.new_empty(0))  # (P,) after fit

    def step(self, batch: Inputs) -> Step:
        """Predict; the loss is the weighted entropy of the kept samples."""
        logits = self.forward(batch).logits
        keep = eata_keep(logits.detach(), self.average, self.margin, self._limit)
        if not keep.any():
            return Step(logits, skipped=self._why_none(logits.detach()))
        mean = logits.detach()[keep].softmax(dim=1).mean(dim=0)
        if torch.isnan(self.average).any():
            self.average.copy_(mean)
        else:
            self.average.mul_(self.momentum).add_(mean, alpha=1 - self.momentum)
        loss = eata_loss(logits[keep], self.margin)
        if self.fitted:
            loss = loss + self.alpha * (self.fisher * (self._flat() - self.anchor).square()).sum()
        return Step(logits, loss)

    def _why_none(self, logits: Tensor) -> str:
        """Say which filter no sample has passed."""
        limit = self.margin * math.log(logits.shape[1])
        sure = int((entropy(logits) < limit).sum())
        if not sure:
            return f"0 of {len(logits)} samples below entropy {limit:.2g}"
        return (
            f"0 of {sure} samples below entropy {limit:.2g} are unlike earlier ones "
            f"(cosine below {self._limit:.2g})"
        )

    @property
    def fitted(self) -> bool:
        """Whether there is a Fisher penalty."""
        return self.fisher.numel() > 0

    def fit(self, source: Iterable[Inputs]) -> None:
        """Estimate the Fisher information from clean source batches."""
        parameters = self.norms()
        total, count = torch.zeros_like(self._flat()), 0
        for batch in source:
            logits = self.forward(batch).logits
            loss = F.cross_entropy(logits, logits.argmax(dim=1))
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            total = total + torch.cat([gradient.flatten().square() for gradient in gradients])
            count += 1
        if count == 0:
            raise InputError("fit() got no source batch: pass at least one {name: tensor} dict.")
        self.fisher, self.anchor = total / count, self._flat().detach().clone()

    def _flat(self) -> Tensor:
        return torch.cat([parameter.flatten() for parameter in self.norms()])
