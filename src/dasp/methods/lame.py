"""LAME: correct the predictions of a batch so that neighbours agree; the model stays."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.contract import HasLinearHead
from dasp.core.types import Prediction, Step, Tokens
from dasp.methods.base import METHODS, Method, full_precision, one_of, whole
from dasp.methods.losses import with_spoilt_rows


def affinity(features: Tensor, kernel: str, neighbours: int = 5) -> Tensor:
    """Return how close samples are by their features of unit length: (B, F) → (B, B).

    "rbf": exp(−d²/2σ²), σ the mean distance to the n-th nearest, counting oneself. "knn": 1 for
    the n nearest others, in one direction. "linear": cosine.
    """
    unit = F.normalize(features, dim=1)
    if kernel == "linear":
        return unit @ unit.T
    apart = torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist")
    count = min(neighbours, len(apart) - (kernel == "knn"))
    if kernel == "rbf":
        width = apart.topk(count, largest=False).values[:, -1].mean()
        return (-apart.square() / (2 * width.square()).clamp_min(1e-12)).exp()
    near = apart.fill_diagonal_(-1).topk(count + 1, largest=False).indices[:, 1:]  # not oneself
    return torch.zeros_like(apart).scatter_(1, near, 1.0)


def lame(logits: Tensor, kernel: Tensor, iterations: int = 100) -> Tensor:
    """Return probabilities near softmax(logits) that agree with those of neighbours: (B, C).

    Y ← softmax(log p + K·Y) until the energy, bounded by the paper, stays the same.
    """
    unary = -(logits.softmax(dim=1) + 1e-10).log()
    found, last = (-unary).softmax(dim=1), torch.inf
    for iteration in range(iterations):
        pull = kernel @ found
        found = (pull - unary).softmax(dim=1)
        terms = unary * found - pull * found + found * found.clamp_min(1e-20).log()
        energy = float(terms.sum())
        if iteration > 1 and abs(energy - last) <= 1e-8 * abs(last):
            break
        last = energy
    return found


@METHODS.register("lame")
class Lame(Method):
    """Return `lame` of each batch by itself; nothing is trained and nothing is remembered.

    Paper: Boudiaf et al., "Parameter-free Online Test-time Adaptation", CVPR 2022.

    The reported values are probabilities. Neighbours are found by the head's feature, or by the
    embedding if the model has no `linear_head`. Made for streams in which neighbouring samples
    belong together; where they do not, it does harm.
    """

    version = 1
    published = "2022-06"
    sharded = "it compares features of samples, which stay on their rank"

    def __init__(
        self,
        model: nn.Module,
        *,
        kernel: str = "rbf",
        neighbours: int = 5,
        iterations: int = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        one_of("kernel", kernel, "rbf", "knn", "linear")
        whole(neighbours=neighbours, iterations=iterations)
        self.kernel, self.neighbours, self.iterations = kernel, neighbours, iterations

    def step(self, batch: Tokens) -> Step:
        """Correct the batch; there is nothing to learn."""
        return Step(self.predict(batch).logits, skipped="Lame corrects predictions, never learns")

    @torch.no_grad()
    def predict(self, batch: Tokens) -> Prediction:
        """Correct the batch."""
        fused = self.fuse(batch)
        known = isinstance(self.model, HasLinearHead)
        features = self.head_features(fused) if known else fused.embedding
        if (spoilt := with_spoilt_rows(fused.logits, features)) is not None:
            return Prediction(spoilt)
        with full_precision(features):
            kernel = affinity(features, self.kernel, self.neighbours)
            return Prediction(lame(fused.logits, kernel, self.iterations))
