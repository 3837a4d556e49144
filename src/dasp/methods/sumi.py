"""SuMi: learn from samples well within the batch; at first, let the modalities agree."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.contract import HasOwnNorms
from dasp.core.errors import OptionError
from dasp.core.types import Inputs, Step, Tokens
from dasp.methods.base import METHODS, Method, not_negative, positive, whole
from dasp.methods.losses import entropy, read_balance


def within_range(features: Tensor, time: float, share: float = 0.6, reach: float = 1.5) -> Tensor:
    """Tell which samples lie well within the batch: features (B, F) → (B,) bool.

    A sample is well within if at least share + (1 − share)·time of its features lie in
    [Q1 − reach·time·IQR, Q3 + reach·time·IQR], Q1 and Q3 the quarter points of the feature's range
    over the batch. As `time` goes from 0 to 1, more features must lie in a wider range.
    """
    low, high = features.amin(dim=0), features.amax(dim=0)
    quarter = (high - low) / 4
    room = reach * time * 2 * quarter
    inside = (features >= low + quarter - room) & (features <= high - quarter + room)
    return inside.float().mean(dim=1) >= share + (1 - share) * time


def mutual_information(first: Tensor, second: Tensor, joint: Tensor) -> Tensor:
    """Return KL((p₂ + p)/2 ‖ p₁) + KL((p₁ + p)/2 ‖ p₂) of logits (B, C) → (B,)."""
    one, two, both = (logits.log_softmax(dim=1) for logits in (first, second, joint))

    def kl_of_mixture(log_p: Tensor, log_q: Tensor) -> Tensor:
        mixed = torch.logaddexp(log_p, both) - math.log(2)
        return (mixed.exp() * (mixed - log_q)).sum(dim=1)

    return kl_of_mixture(two, one) + kl_of_mixture(one, two)


def pad_to(tokens: Tensor, count: int, front: bool) -> Tensor:
    """Pad with zero tokens, in front or behind: (B, N, D) → (B, count, D)."""
    missing = count - tokens.shape[1]
    return F.pad(tokens, (0, 0, missing, 0) if front else (0, 0, 0, missing))


@METHODS.register("sumi")
class Sumi(Method):
    """L = mean over kept samples of w·ℓ − READ's balance term, on every norm.

    Paper: Guo and Jin, "Smoothing the Shift: Towards Stable Test-Time Adaptation under Complex
    Multimodal Noises", ICLR 2025. Settings as in the authors' code.

    ℓ = H + mutual_weight·(mutual information) in the first half of the stream, afterwards the
    mean H; w = exp(joint_limit − H), a constant. A sample is kept if its pooled tokens lie
    well within the batch's (`within_range`), the single modalities are uncertain enough (mean H at
    least alone_floor) and the joint prediction is certain enough (H at most joint_limit).

    `stream_length` is the number of batches until the next reset (times `steps`, if that is not
    1), which decides how far the stream has gone: t/T. Beyond it t/T stays at 1.
    """

    version = 1
    published = "2025-04"
    sharded = "it selects samples by the range of all samples' tokens, which stay on their rank"
    tunes_encoder = True
    needs = (HasOwnNorms,)
    exactly_two_modalities = True
    default_predict = "after"
    trainable = Method.norms
    seen: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        stream_length: int | None = None,
        share: float = 0.6,
        reach: float = 1.5,
        alone_floor: float = math.e / 10,
        joint_limit: float = math.log(1000) / 2 - 1,
        mutual_weight: float = 5.0,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        if stream_length is not None:
            whole(stream_length=stream_length)
        positive(joint_limit=joint_limit)
        not_negative(share=share, reach=reach, alone_floor=alone_floor, mutual_weight=mutual_weight)
        if share > 1:
            raise OptionError(f"share must be a number from 0 to 1, not {share!r}.")
        self.stream_length, self.share, self.reach = stream_length, share, reach
        self.alone_floor, self.joint_limit = alone_floor, joint_limit
        self.mutual_weight = mutual_weight
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))  # batches

    def step(self, batch: Inputs) -> Step:
        """Predict with all modalities and with each alone, and learn from the kept samples."""
        time = self._time()
        early = time < 0.5
        tokens = self.encode(batch)
        joint = self.fuse(tokens).logits
        with torch.set_grad_enabled(early):  # later, single modalities only help to select
            alone = self._alone(tokens)
        keep = self._keep(tokens, alone, joint, time)
        self.seen += 1
        if not keep.any():
            return Step(joint, skipped=f"0 of {len(keep)} samples are in range and certain enough")
        kept = joint[keep]
        value = entropy(kept)
        weight = (self.joint_limit - value).exp().detach()
        if early:
            apart = mutual_information(alone[0][keep], alone[1][keep], kept)
            value = value + self.mutual_weight * apart
        else:
            value = value.mean()
        return Step(joint, (weight * value).mean() - read_balance(kept))

    def _time(self) -> float:
        """Return t/T, the share of the stream that has passed."""
        assert self.stream_length is not None  # `adapt` asks for it
        return min(int(self.seen) / self.stream_length, 1.0)

    def _alone(self, tokens: Tokens) -> list[Tensor]:
        """Predict from each modality alone, padded with zeros to a common length."""
        count = max(own.shape[1] for own in tokens.values()) + 1
        padded = {n: pad_to(tokens[n], count, i > 0) for i, n in enumerate(self.model.modalities)}
        return [self.fuse({n: own}, own_norm=True).logits for n, own in padded.items()]

    @torch.no_grad()
    def _keep(self, tokens: Tokens, alone: list[Tensor], joint: Tensor, time: float) -> Tensor:
        """Tell which samples to learn from: (B,) bool."""
        pooled = torch.cat([tokens[n].mean(dim=1) for n in self.model.modalities], dim=1)
        unsure = (entropy(alone[0]) + entropy(alone[1])) / 2 >= self.alone_floor
        sure = entropy(joint) <= self.joint_limit
        return within_range(pooled, time, self.share, self.reach) & unsure & sure
