"""MiDl: predict alike with and without a modality, and stay close to the source model."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dasp.core.types import Inputs, Step
from dasp.methods.base import METHODS, Method, not_negative, one_of
from dasp.methods.copies import WeightCopy
from dasp.methods.losses import kl_divergence


def view_information(views: Sequence[Tensor]) -> Tensor:
    """Return H(mean of the views' p) − mean of their H, batch mean, of logits (B, C) each.

    It is 0 when the prediction does not depend on which view is seen. log(p + 1e-5), as released.
    """
    p = torch.stack([logits.softmax(dim=1) for logits in views])  # (V, B, C)

    def value(p: Tensor) -> Tensor:
        return -(p * (p + 1e-5).log()).sum(dim=-1)

    return (value(p.mean(dim=0)) - value(p).mean(dim=0)).mean()


@METHODS.register("midl")
class Midl(Method):
    """L = λ₁·[H(p̄ of the views) − mean H] + λ₂·KL(p_source ‖ p), on every norm.

    Paper: Ramazanova et al., "Combating Missing Modalities in Egocentric Videos at Test Time",
    ICLR 2025.

    The views are each modality alone and all together; the last is reported and compared with the
    model before adaptation. A batch of one modality has one view: `incomplete="kl"` learns from
    the second term, as the release does when it has that sample's source prediction; "skip" learns
    nothing, as the paper says. SGD with momentum. `scale_lr` multiplies lr by B/32 below 32
    samples, as released; the original goes sample by sample, here a batch's samples are averaged.
    """

    version = 1
    published = "2025-04"
    sharded = "it compares modalities alone, whose logits stay on their rank"
    tunes_encoder = True
    trainable = Method.norms
    default_lr = 2.5e-4

    def __init__(
        self,
        model: nn.Module,
        *,
        lambda1: float = 3.0,
        lambda2: float = 3.0,
        incomplete: str = "kl",
        scale_lr: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        not_negative(lambda1=lambda1, lambda2=lambda2)
        one_of("incomplete", incomplete, "kl", "skip")
        one_of("scale_lr", scale_lr, True, False)
        self.lambda1, self.lambda2 = lambda1, lambda2
        self.incomplete, self.scale_lr = incomplete, scale_lr
        self.anchor = WeightCopy(model, self.norms(), constant=True)

    def begin(self) -> None:
        """Copy the source weights."""
        self.anchor.take()

    def optimizer(self, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        """Return SGD with momentum, as in the paper."""
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)

    def step(self, batch: Inputs) -> Step:
        """Predict from all modalities and from each alone, and with the source weights."""
        if self.incomplete == "skip" and len(batch) < len(self.model.modalities):
            why = 'a modality is missing, and incomplete="skip"'
            return Step(self.predict(batch).logits, skipped=why)
        with self.anchor.in_place():
            source = self.forward(batch).logits
        tokens = self.encode(batch)
        full = self.fuse(tokens).logits
        loss = self.lambda2 * kl_divergence(source, full)
        if len(tokens) > 1:
            alone = [self.fuse({name: own}).logits for name, own in tokens.items()]
            loss = loss + self.lambda1 * view_information([*alone, full])
        rate = min(len(full) / 32, 1.0) if self.scale_lr else 1.0
        return Step(full, loss, rate=rate)
