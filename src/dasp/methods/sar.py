"""SAR: sharpness-aware entropy minimisation on reliable samples; restarts before collapse."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dasp.core.types import Inputs, Step
from dasp.methods.base import METHODS, Method, not_negative, positive
from dasp.methods.losses import entropy


def sharpness_ascent(gradients: Sequence[Tensor | None], rho: float) -> list[Tensor | None]:
    """Return the step of length `rho` along the joint gradient: where the loss rises fastest."""
    norms = [g.norm() for g in gradients if g is not None]
    scale = rho / (torch.stack(norms).norm() + 1e-12)
    return [None if g is None else g * scale for g in gradients]


@METHODS.register("sar")
class Sar(Method):
    """L = mean H over samples with H < margin·ln C, descended from the sharpest nearby point.

    Paper: Niu et al., "Towards Stable Test-Time Adaptation in Dynamic Wild World", ICLR 2023.
    The gradient is taken at weights moved by ρ along the first gradient, on those samples that are
    still confident there. If the running mean of that loss falls below `reset_below`, a sign of
    collapse, the loop returns to the source state. The published .2 is for 1000 classes; by default
    it is the same share of the largest entropy, .2·ln C/ln 1000, as the margin is a share of it.
    """

    version = 1
    published = "2023-05"
    sharded = "it ascends along the gradient before the ranks' gradients are added up"
    tunes_encoder = True
    trainable = Method.norms
    loss_average: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        margin: float = 0.4,
        rho: float = 0.05,
        reset_below: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        positive(margin=margin, rho=rho)
        usual = 0.2 * math.log(self.model.num_classes) / math.log(1000)
        self._reset_below = usual if reset_below is None else reset_below
        not_negative(reset_below=self._reset_below)
        self.margin, self.rho, self.reset_below = margin, rho, reset_below
        self.register_buffer("loss_average", self.norms()[0].new_full((), torch.nan))

    def optimizer(self, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        """Return SGD with momentum, as in the paper."""
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)

    def step(self, batch: Inputs) -> Step:
        """Predict, ascend, and return the gradient of the second forward pass."""
        parameters = self.norms()
        threshold = self.margin * math.log(self.model.num_classes)
        logits = self.forward(batch).logits
        value = entropy(logits)
        sure = value < threshold
        if not sure.any():
            return Step(logits, skipped=f"0 of {len(sure)} samples below entropy {threshold:.2g}")
        first = torch.autograd.grad(value[sure].mean(), parameters, allow_unused=True)
        climb = sharpness_ascent(first, self.rho)
        origin = [parameter.detach().clone() for parameter in parameters]
        try:
            with torch.no_grad():
                for parameter, move in zip(parameters, climb, strict=True):
                    if move is not None:
                        parameter.add_(move)
            value = entropy(self.forward(batch).logits)[sure]
            value = value[value < threshold]
            if value.numel() == 0:
                few = f"0 of {int(sure.sum())} sure samples below entropy {threshold:.2g}"
                return Step(logits, skipped=f"{few} after the step uphill")
            loss = value.mean()
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        finally:
            with torch.no_grad():
                for parameter, start in zip(parameters, origin, strict=True):
                    parameter.copy_(start)
        loss, average = loss.detach(), self.loss_average
        average.copy_(loss if torch.isnan(average) else 0.9 * average + 0.1 * loss)
        collapsing = bool(average < self._reset_below)
        return Step(logits, loss, gradients=gradients, restart=collapsing)
