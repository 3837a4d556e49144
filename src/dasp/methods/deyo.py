"""DeYO: entropy on samples whose prediction depends on the shape of the input."""

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.contract import HasLayers, missing_part
from dasp.core.errors import ContractError, InputError
from dasp.core.types import Inputs, Step
from dasp.methods.base import METHODS, Method, not_negative, one_of, positive, whole
from dasp.methods.losses import entropy
from dasp.methods.norms import norms_of

PORT_BLOCKS = 9  # of each encoder, whose norms the port trains


def shuffle_patches(values: Tensor, order: Tensor) -> Tensor:
    """Cut each picture into p×p pieces and put them in another order: (B, …, H, W), same shape.

    `order` (B, p²) names the old piece at each new place, row by row. A size that p does not
    divide is resized down to one and back.
    """
    if values.ndim < 3:
        raise InputError(
            f"DeYO shuffles pieces of pictures (B, …, H, W), not {tuple(values.shape)}: choose "
            "another method for this input."
        )
    side = math.isqrt(order.shape[1])
    height, width = values.shape[-2:]
    fitted = [max(size // side, 1) * side for size in (height, width)]
    x = _resized(values.reshape(len(values), -1, height, width), fitted)
    x = x.reshape(*x.shape[:2], side, fitted[0] // side, side, fitted[1] // side)
    x = x.permute(0, 2, 4, 1, 3, 5)  # (B, C, p, h, p, w) → (B, p, p, C, h, w)
    rows = torch.arange(len(x), device=values.device)[:, None]
    moved = x.flatten(1, 2)[rows, order.to(values.device)].reshape(x.shape)
    x = moved.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
    return _resized(x, [height, width]).reshape(values.shape)


def _resized(x: Tensor, size: list[int]) -> Tensor:
    if list(x.shape[-2:]) == size:
        return x
    return F.interpolate(x, size, mode="bilinear", antialias=True, align_corners=False)


def deyo_loss(logits: Tensor, plpd: Tensor, margin: float) -> Tensor:
    """Return mean H·[exp(margin·ln C − H) + exp(PLPD)], with a constant bracket: (K, C) → ()."""
    value = entropy(logits)
    sure = (margin * math.log(logits.shape[1]) - value).exp()
    return (value * (sure + plpd.exp()).detach()).mean()


@METHODS.register("deyo")
class Deyo(Method):
    """L = mean of weighted H over samples that are sure and lose it when destroyed.

    Paper: Lee et al., "Entropy is not Enough for Test-Time Adaptation: From the Perspective of
    Disentangled Factors", ICLR 2024. Follows the port to CAV-MAE.

    PLPD is the fall of the predicted class's probability when every modality is cut into pieces
    and shuffled. Kept are samples with H < margin·ln C and PLPD > plpd_threshold. `variant="all"`
    trains every norm, "port" only those of the first nine blocks of each encoder.
    """

    version = 1
    published = "2024-05"
    sharded = "it draws numbers for its samples in order, which starts anew on each rank"
    tunes_encoder = True

    def __init__(
        self,
        model: nn.Module,
        *,
        variant: str = "all",
        margin: float = 0.5,
        margin_e0: float = 0.4,
        plpd_threshold: float = 0.2,
        pieces: int = 4,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        one_of("variant", variant, "all", "port")
        positive(margin=margin)
        not_negative(margin_e0=margin_e0)
        whole(pieces=pieces)
        if variant == "port" and (missing := missing_part(model, HasLayers)):
            raise ContractError(f'Deyo with variant="port": {missing}. See docs/own_model.md.')
        self.variant, self.margin, self.margin_e0 = variant, margin, margin_e0
        self.plpd_threshold, self.pieces = plpd_threshold, pieces

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train all norms, or those of the port."""
        if self.variant == "all":
            return self.norms()
        encoders = self.model.layers().encoders.values()
        return norms_of(block for blocks in encoders for block in blocks[:PORT_BLOCKS])

    def step(self, batch: Inputs) -> Step:
        """Predict intact and destroyed samples; learn from those that pass both filters."""
        logits = self.forward(batch).logits
        sure = entropy(logits.detach()) < self.margin * math.log(logits.shape[1])
        if not sure.any():
            limit = self.margin * math.log(logits.shape[1])
            return Step(logits, skipped=f"0 of {len(sure)} samples below entropy {limit:.2g}")
        plpd = self._plpd(batch, logits.detach(), sure)
        shaped = plpd > self.plpd_threshold
        if not shaped.any():
            few = f"0 of {len(shaped)} sure samples"
            return Step(logits, skipped=f"{few} fall by {self.plpd_threshold:g} when destroyed")
        return Step(logits, deyo_loss(logits[sure][shaped], plpd[shaped], self.margin_e0))

    @torch.no_grad()
    def _plpd(self, batch: Inputs, logits: Tensor, chosen: Tensor) -> Tensor:
        """Return the pseudo-label's fall in probability for the chosen samples: (K,)."""
        count, destroyed = int(chosen.sum()), {}
        for name in self.model.modalities:
            if name in batch:
                drawn = torch.rand(count, self.pieces**2, generator=self.generator)
                destroyed[name] = shuffle_patches(batch[name][chosen], drawn.argsort(dim=1))
        intact, broken = logits[chosen].softmax(dim=1), self.forward(destroyed).logits
        label = intact.argmax(dim=1, keepdim=True)
        return (intact.gather(1, label) - broken.softmax(dim=1).gather(1, label))[:, 0]
