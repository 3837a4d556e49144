"""T3A: replace the linear head by class prototypes made of the stream's confident features."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.contract import HasLinearHead
from dasp.core.types import Prediction, Step, Tokens
from dasp.methods.base import METHODS, Method, full_precision, whole
from dasp.methods.losses import entropy, with_spoilt_rows


def lowest_per_class(labels: Tensor, values: Tensor, k: int) -> Tensor:
    """Return the positions of the `k` lowest values of each class, in their order: (S,) → (K,)."""
    order = values.argsort(stable=True)
    same = labels[order][:, None] == labels[order]  # (S, S)
    rank = same.tril().sum(dim=1)  # from 1, within the class
    kept: Tensor = order[rank <= k].sort().values
    return kept


def prototype_scores(features: Tensor, supports: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return f · normalise(Σ of the class's normalised supports): (B, F) → (B, C).

    A class without supports scores 0.
    """
    member = F.one_hot(labels, classes).to(supports)  # (S, C)
    centres = F.normalize(member.T @ F.normalize(supports, dim=1), dim=1)
    return features @ centres.T


@METHODS.register("t3a")
class T3a(Method):
    """Score each sample by its distance to prototypes; nothing is trained.

    Paper: Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain
    Generalization", NeurIPS 2021.

    The supports begin as the rows of the head's weight. Each batch adds its features under the
    class that the head predicts; the `k` of lowest entropy per class stay; then the same batch is
    scored. The scores are not logits of the head: they have neither its bias nor its scale.
    """

    version = 1
    published = "2021-12"
    sharded = "it keeps features of samples, which stay on their rank"
    needs = (HasLinearHead,)
    supports: Tensor
    labels: Tensor
    entropies: Tensor

    def __init__(self, model: nn.Module, *, k: int = 20, seed: int = 0) -> None:
        super().__init__(model, seed=seed)
        whole(k=k)
        self.k = k
        self.register_buffer("supports", torch.empty(0, 0))  # (S, F)
        self.register_buffer("labels", torch.empty(0, dtype=torch.int64))  # (S,)
        self.register_buffer("entropies", torch.empty(0))  # (S,)

    @torch.no_grad()
    def begin(self) -> None:
        """Make the rows of the head's weight the first supports."""
        _, linear = self.model.linear_head()
        self.supports = linear.weight.detach().clone()
        logits = linear(self.supports)
        self.labels, self.entropies = logits.argmax(dim=1), entropy(logits)

    @torch.no_grad()
    def step(self, batch: Tokens) -> Step:
        """Add the batch to the supports, then score it."""
        fused = self.fuse(batch)
        features = self.head_features(fused)
        if (spoilt := with_spoilt_rows(fused.logits, features)) is not None:
            return Step(spoilt)
        self.supports = torch.cat([self.supports, features])
        self.labels = torch.cat([self.labels, fused.logits.argmax(dim=1)])
        self.entropies = torch.cat([self.entropies, entropy(fused.logits)])
        kept = lowest_per_class(self.labels, self.entropies, self.k)
        self.supports, self.labels = self.supports[kept], self.labels[kept]
        self.entropies = self.entropies[kept]
        why = "T3a renews the supports of its classes and trains no weights"
        return Step(self._scores(features), skipped=why)

    def predict(self, batch: Tokens) -> Prediction:
        """Score a batch by the present supports."""
        return Prediction(self._scores(self.head_features(self.fuse(batch))))

    def _scores(self, features: Tensor) -> Tensor:
        with full_precision(features):
            classes = self.model.num_classes
            return prototype_scores(features, self.supports, self.labels, classes)
