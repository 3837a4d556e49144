"""AdaPGC: class-conditional Gaussians calibrate predictions and tell which modality leads."""

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.contract import HasFusionQkv, HasLinearHead, HasTopNorms
from dasp.core.errors import StateError
from dasp.core.types import Inputs, Prediction, Step
from dasp.methods.base import METHODS, Method, full_precision, not_negative, one_of, positive
from dasp.methods.copies import WeightCopy
from dasp.methods.losses import with_spoilt_rows
from dasp.methods.read import read_loss

MOMENTUM = 0.9  # of priors and means; a tenth of each batch's second moments is added
JITTERS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # added to a diagonal that has no Cholesky factor


class ClassGaussians(nn.Module):
    """One Gaussian per class of features (B, F), in buffers; starts at the head's prototypes.

    Mean μ_k: row k of the head's weight; covariance Σ_k: I; log prior: b_k + ½‖μ_k‖², which is not
    normalised. As released, second moments are not centred, so that Σ only grows.
    """

    mean: Tensor  # (C, F)
    covariance: Tensor  # (C, F, F)
    log_prior: Tensor  # (C,)
    count: Tensor  # (C,), responsibilities so far
    total: Tensor  # (C, F), features so far, by responsibility

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        for name in ("mean", "covariance", "log_prior", "count", "total"):
            self.register_buffer(name, torch.empty(0))
        self.begin(head)

    @torch.no_grad()
    def begin(self, head: nn.Linear) -> None:
        """Start at the prototypes of a linear head."""
        self.mean = head.weight.detach().clone()
        classes, width = self.mean.shape
        self.covariance = torch.eye(width).to(self.mean).repeat(classes, 1, 1)
        bias = torch.zeros(classes).to(self.mean) if head.bias is None else head.bias.detach()
        self.log_prior = bias + self.mean.square().sum(dim=1) / 2
        self.count = self.mean.new_zeros(classes)
        self.total = torch.zeros_like(self.mean)

    @torch.no_grad()
    def update(self, features: Tensor, p: Tensor) -> None:
        """Take in features (B, F) with responsibilities (B, C); a class never seen stays."""
        self.count += p.sum(dim=0)
        self.total += p.T @ features
        seen = self.count > 0
        count = self.count.clamp_min(torch.finfo(p.dtype).tiny)[:, None]
        share = (self.count / self.count.sum()).log()
        self.log_prior = torch.logaddexp(
            self.log_prior + math.log(MOMENTUM), share + math.log(1 - MOMENTUM)
        )
        moved = MOMENTUM * self.mean + (1 - MOMENTUM) * self.total / count
        self.mean = torch.where(seen[:, None], moved, self.mean)
        weighed = (p.T[:, None] * features.T) @ features  # (C, F, B) @ (B, F)
        self.covariance += (1 - MOMENTUM) * weighed / count[..., None]

    def forward(self, features: Tensor) -> Tensor:
        """Return log π_k − ½ log|Σ_k| − ½ Mahalanobis² − F/2·log 2π: (B, F) → (B, C)."""
        factor = self.factor()
        apart = features.T[None] - self.mean[..., None]  # (C, F, B)
        white = torch.linalg.solve_triangular(factor, apart, upper=False)
        log_det = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        constant = features.shape[1] * math.log(2 * math.pi)
        scores: Tensor = self.log_prior - (log_det + constant) / 2 - white.square().sum(dim=1).T / 2
        return scores

    def factor(self) -> Tensor:
        """Return the Cholesky factors of the covariances: (C, F, F)."""
        factor: Tensor
        diagonal = torch.eye(self.covariance.shape[1]).to(self.covariance)
        for jitter in JITTERS:
            factor, failed = torch.linalg.cholesky_ex(self.covariance + jitter * diagonal)
            if not failed.any():
                return factor
        raise StateError(
            "Adapgc: the covariance of a class is not positive definite even with 1e-2 added to "
            "its diagonal: call tta.reset() and check the stream's features."
        )


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """Return ½(KL + KL) of the softmax of scores, clamped at 1e-12: (B, C) → (B,)."""
    p, q = (scores.softmax(dim=1).clamp_min(1e-12) for scores in (first, second))
    return ((p - q) * (p.log() - q.log())).sum(dim=1) / 2


def leaders(distances: Sequence[Tensor]) -> Tensor:
    """Return the number of the nearest modality, the last of equals: (B,) each → (B,)."""
    stacked = torch.stack(list(distances)).flip(0)
    return len(distances) - 1 - stacked.argmin(dim=0)


def pull(features: Sequence[Tensor], leader: Tensor, temperature: float) -> Tensor:
    """Return the mean contrastive loss of following modalities with leading ones: (B, F) → ().

    Row i of a follower should be nearest to row i of the leader, which is constant. What only
    leading samples use has no gradient at all, not a gradient of zero.
    """
    unit = [F.normalize(own, dim=1) for own in features]
    losses = []
    for first, target in enumerate(unit):
        rows = (leader == first).nonzero()[:, 0]
        for second, own in enumerate(unit):
            if second != first and len(rows):
                scores = own[rows] @ target.detach().T / temperature
                losses.append(F.cross_entropy(scores, rows, reduction="sum"))
    return torch.stack(losses).sum() / (len(leader) * (len(unit) - 1))


@METHODS.register("adapgc")
class Adapgc(Method):
    """Train the fusion's query, key and value maps by one loss and all norms by another.

    Paper: "Multi-modal Test-time Adaptation via Adaptive Probabilistic Gaussian Calibration",
    CVPR 2026.

    L₁ = READ's loss + w_g·cross-entropy of the prediction with softmax G(f), G the scores of
    Gaussians over the head's feature f. L₂ = w_c·`pull` of each modality towards the one whose
    own Gaussians agree best with the joint ones. Both gradients are taken at the old weights.

    Reported after the update: logits under an average of the weights, plus γ·G(f) from before.
    The release starts that average at random query, key and value maps, by mistake:
    `ema_start="random"`; the default is "checkpoint". To set it, change
    `tta.method.shadow.of(weight)` in place. `predict="before"` reports the model's own logits.
    Needs 3·C·F² numbers for two modalities and learns nothing from a batch that lacks one.
    """

    version = 2
    published = "2026-06"
    sharded = "it keeps statistics of features, which stay on their rank"
    tunes_encoder = True
    needs = (HasFusionQkv, HasLinearHead, HasTopNorms)
    default_predict = "after"
    updates: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        w_c: float = 0.01,
        w_g: float = 1.0,
        gamma: float = 1.0,
        temperature: float = 0.05,
        decay: float = 0.999,
        ema_start: str = "checkpoint",
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        not_negative(w_c=w_c, w_g=w_g, gamma=gamma, decay=decay)
        positive(temperature=temperature)
        one_of("ema_start", ema_start, "checkpoint", "random")
        self.w_c, self.w_g, self.gamma = w_c, w_g, gamma
        self.temperature, self.decay, self.ema_start = temperature, decay, ema_start
        _, head = self.model.linear_head()
        self.joint = ClassGaussians(head)
        self.own = nn.ModuleDict({name: ClassGaussians(head) for name in self.model.modalities})
        self.shadow = WeightCopy(model, self.trainable())
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self._scored: tuple[Inputs, Tensor] | None = None  # of the batch being learned from

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train the fusion's query, key and value maps, and all norms."""
        return [*self.fusion_qkv(), *self.norms()]

    def begin(self) -> None:
        """Start Gaussians and average from the source weights."""
        _, head = self.model.linear_head()
        for gaussians in (self.joint, *self.own.values()):
            gaussians.begin(head)  # type: ignore[operator]
        self.shadow.take()
        if self.ema_start == "random":
            for weight in self.fusion_qkv():
                value = self.shadow.of(weight)
                value.copy_(_xavier(value, self.generator))

    def step(self, batch: Inputs) -> Step:
        """Update the Gaussians, then take both gradients."""
        tokens = self.encode(batch)
        fused = self.fuse(tokens)
        logits, feature = fused.logits, self.head_features(fused)
        alone = {n: self.head_features(self.model.fuse_top_norm({n: t})) for n, t in tokens.items()}
        if (spoilt := with_spoilt_rows(logits, feature, *alone.values())) is not None:
            return Step(spoilt)
        p = logits.detach().softmax(dim=1)
        with full_precision(p):
            self.joint.update(feature.detach(), p)
            for name, own in alone.items():
                self.own[name].update(own.detach(), p)  # type: ignore[operator]
            scores = self.joint(feature)
        agreement = -(scores.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1).mean()
        first = read_loss(logits) + self.w_g * agreement
        leader = self._leaders(scores.detach(), alone)
        second = self.w_c * pull(list(alone.values()), leader, self.temperature)
        maps, norms = self.fusion_qkv(), self.norms()
        gradients = (
            *torch.autograd.grad(first, maps, retain_graph=True, allow_unused=True),
            *torch.autograd.grad(second, norms, allow_unused=True),
        )
        self._scored = batch, scores.detach()
        return Step(logits, (first + second).detach(), gradients=gradients)

    def after_update(self) -> None:
        """Let the average follow, fast at first."""
        self.updates += 1
        count = int(self.updates)
        self.shadow.follow(1 - min(self.decay, (1 + count) / (10 + count)))

    def predicting(self) -> AbstractContextManager[None]:
        """Let the averaged weights predict."""
        return self.shadow.in_place()

    @torch.no_grad()
    def predict(self, batch: Inputs) -> Prediction:
        """Add the Gaussian scores to the logits under the averaged weights."""
        if self._scored is not None and self._scored[0] is batch:
            scores = self._scored[1]
        else:
            scores = self.joint(self.head_features(self.forward(batch)))
        self._scored = None
        with self.predicting():
            return Prediction(self.forward(batch).logits + self.gamma * scores)

    @torch.no_grad()
    def _leaders(self, scores: Tensor, alone: dict[str, Tensor]) -> Tensor:
        return leaders([symmetric_kl(scores, self.own[n](own)) for n, own in alone.items()])


def _xavier(like: Tensor, generator: torch.Generator) -> Tensor:
    """Draw separate query, key and value maps as Xavier does, or biases of zero."""
    if like.ndim < 2:
        return torch.zeros_like(like)
    rows, width = like.shape
    bound = math.sqrt(6 / (width + (rows // 3 if rows == 3 * width else rows)))
    return torch.empty(like.shape).uniform_(-bound, bound, generator=generator).to(like)
