"""MDAA: analytic classifiers per modality and for all, corrected by the most confident one."""

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.errors import InputError, OptionError, StateError
from dasp.core.types import Prediction, Step, Tokens
from dasp.methods.base import (
    METHODS,
    Method,
    full_precision,
    not_negative,
    one_of,
    positive,
    whole,
)
from dasp.methods.losses import with_spoilt_rows

JOINT = "joint"  # the classifier of the fused embedding; the others have a modality's name
SHRINK = 0.9  # of the weights that source data gave, as released


def rank_weights(alpha: int) -> list[float]:
    """Return the weights of the α best classes, rounded to one decimal before they are normed.

    >>> [round(weight, 3) for weight in rank_weights(2)]
    [0.588, 0.412]
    """
    total = alpha * (alpha + 1) / 2
    weights = [round((alpha - j + 1) / total, 1) for j in range(alpha)]
    if not sum(weights):
        raise OptionError(f"alpha={alpha} leaves every rounded weight at 0: choose a smaller one.")
    return [weight / sum(weights) for weight in weights]


def soft_labels(probabilities: Tensor, alpha: int) -> Tensor:
    """Return `rank_weights` at the α most probable classes, 0 elsewhere: (B, C) → (B, C)."""
    best = probabilities.topk(alpha, dim=1).indices
    weights = probabilities.new_tensor(rank_weights(alpha)).expand_as(best)
    return torch.zeros_like(probabilities).scatter_(1, best, weights)


class AnalyticClassifier(nn.Module):
    """softmax(ReLU(x·Eᵀ + e)·Wᵀ + b): a fixed random expansion, and weights by least squares.

    All parts are buffers: `expand_weight` (F, D), `expand_bias` (F,), `head_weight` (C, F),
    `head_bias` (C,), which keeps its random start, and `R` (F, F), the inverse of the features'
    second moments; `head_weight` and `R` are NaN until `solve`.
    """

    expand_weight: Tensor
    expand_bias: Tensor
    head_weight: Tensor
    head_bias: Tensor
    R: Tensor

    def __init__(
        self, dim: int, buffer: int, classes: int, generator: torch.Generator, like: Tensor
    ) -> None:
        super().__init__()

        def drawn(*shape: int, width: int) -> Tensor:
            """Draw as `nn.Linear` does for its number of inputs."""
            uniform = torch.empty(shape).uniform_(-1, 1, generator=generator)
            return (uniform / math.sqrt(width)).to(like)

        self.register_buffer("expand_weight", drawn(buffer, dim, width=dim))
        self.register_buffer("expand_bias", drawn(buffer, width=dim))
        self.register_buffer("head_weight", like.new_full((classes, buffer), torch.nan))
        self.register_buffer("head_bias", drawn(classes, width=buffer))
        self.register_buffer("R", like.new_full((buffer, buffer), torch.nan))

    def expand(self, features: Tensor) -> Tensor:
        """Return the expanded features: (B, D) → (B, F)."""
        return F.linear(features, self.expand_weight, self.expand_bias).relu()

    def forward(self, features: Tensor) -> Tensor:
        """Return probabilities: (B, D) → (B, C)."""
        expanded = self.expand(features)
        return F.linear(expanded, self.head_weight, self.head_bias).softmax(dim=1)

    def solve(self, features: Tensor, targets: Tensor, weight: Tensor, gamma: float) -> None:
        """Fit weighted rows (B, D) to targets (B, C), with a ridge γ, in float64."""
        scale = weight.sqrt()[:, None]
        rows, wanted = self.expand(features) * scale, targets * scale
        moments = rows.T.double() @ rows.double()
        inverse = torch.linalg.inv(moments + gamma * torch.eye(len(moments)).to(moments))
        self.R.copy_(inverse)
        self.head_weight.copy_((SHRINK * self.R @ (rows.T @ wanted)).T)

    def update(self, features: Tensor, targets: Tensor) -> None:
        """Add rows (B, D) with targets (B, C) to the least-squares solution, recursively."""
        rows = self.expand(features)
        carried = self.R @ rows.T  # (F, B)
        inner = torch.eye(len(rows)).to(rows) + rows @ carried
        self.R.sub_(carried @ torch.linalg.solve(inner, carried.T))
        wrong = targets - F.linear(rows, self.head_weight)
        self.head_weight.add_((self.R @ rows.T @ wrong).T)


@METHODS.register("mdaa")
class Mdaa(Method):
    """Solve for a linear classifier per modality and one for all; no gradient, no lr.

    Paper: Zhang et al., "Analytic Continual Test-Time Adaptation for Multi-Modality Corruption",
    arXiv 2410.22373, 2024.

    The leader of a sample is the most confident classifier. Its α best classes are the sample's
    soft label, which is reported, and which teaches every classifier that is less confident by
    more than θ. The release does not say which features it classifies: here, token means of each
    encoder, and the fused embedding.

    `fit(source)` is required. The release labels these samples by its test list. Here the model
    labels them itself, or, with `labels="given"`, `tta.method.source_labels` (N,) does, in the
    order of the samples. `class_weight` (C numbers, None for 1) weighs them by label. Published
    `buffer`/`alpha`: 8000/2 (Kinetics50), 5000/7 (VGGSound); the default suits small models.
    """

    version = 1
    published = "2024-10"
    sharded = "it solves equations of all samples' features, which stay on their rank"
    needs_source = True
    source_labels: Tensor | None = None

    def __init__(
        self,
        model: nn.Module,
        *,
        buffer: int = 1000,
        alpha: int = 2,
        theta: float = 0.001,
        gamma: float = 10.0,
        labels: str = "own",
        class_weight: Sequence[float] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        whole(buffer=buffer, alpha=alpha)
        not_negative(theta=theta)
        positive(gamma=gamma)
        one_of("labels", labels, "own", "given")
        dim, classes = self.one_width(), self.model.num_classes
        if alpha > classes:
            raise OptionError(f"alpha={alpha} is more than the model's {classes} classes.")
        if class_weight is not None and len(class_weight) != classes:
            raise OptionError(f"class_weight needs {classes} numbers, not {len(class_weight)}.")
        rank_weights(alpha)
        self.buffer, self.alpha, self.theta, self.gamma = buffer, alpha, theta, gamma
        self.labels = labels
        self.class_weight = None if class_weight is None else [float(w) for w in class_weight]
        like = next(self.model.parameters(), torch.empty(0)).detach()
        self.classifiers = nn.ModuleDict(
            {
                name: AnalyticClassifier(dim, buffer, classes, self.generator, like)
                for name in (*self.model.modalities, JOINT)
            }
        )

    @property
    def fitted(self) -> bool:
        """Whether the classifiers are solved for."""
        return not bool(torch.isnan(self.classifiers[JOINT].R).any())  # type: ignore[arg-type]

    @torch.no_grad()
    def fit(self, source: Iterable[Tokens]) -> None:
        """Solve for the classifiers from clean source batches."""
        features: dict[str, list[Tensor]] = {name: [] for name in self.classifiers}
        own = []
        for tokens in source:
            found, logits = self._features(tokens)
            own.append(logits.argmax(dim=1))
            for name, value in found.items():
                features[name].append(value)
        if not own:
            raise InputError("fit() got no source batch: pass at least one {name: tensor} dict.")
        labels = self._labels(torch.cat(own))
        targets = F.one_hot(labels, self.model.num_classes).to(features[JOINT][0])
        weight = targets.new_tensor(self.class_weight or [1.0] * targets.shape[1])[labels]
        with full_precision(targets):
            for name, classifier in self._classifiers():
                classifier.solve(torch.cat(features[name]), targets, weight, self.gamma)

    @torch.no_grad()
    def step(self, batch: Tokens) -> Step:
        """Report the leader's soft labels, then teach them to the less confident classifiers."""
        features, logits = self._features(batch)
        if (spoilt := with_spoilt_rows(logits, *features.values())) is not None:
            return Step(spoilt)
        found, targets = self._judged(features)
        tops = {name: p.amax(dim=1) for name, p in found.items()}
        highest = torch.stack(list(tops.values())).amax(dim=0)
        for name, classifier in self._classifiers():
            if name in tops:
                behind = tops[name] < highest - self.theta
                if behind.any():
                    with full_precision(targets):
                        classifier.update(features[name][behind], targets[behind])
        return Step(targets, skipped="Mdaa solves for its classifiers and trains no weights")

    @torch.no_grad()
    def predict(self, batch: Tokens) -> Prediction:
        """Return the leader's soft labels."""
        features, logits = self._features(batch)
        spoilt = with_spoilt_rows(logits, *features.values())
        return Prediction(self._judged(features)[1] if spoilt is None else spoilt)

    def _judged(self, features: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the probabilities (B, C) of each classifier, and the leader's soft labels."""
        if not self.fitted:
            raise StateError(
                "Mdaa needs source samples: call tta.fit([inputs]) with clean training samples, "
                "best some of every class, before the first batch."
            )
        with full_precision(features[JOINT]):
            found = {name: c(features[name]) for name, c in self._classifiers() if name in features}
        stacked = torch.stack(list(found.values()))  # (M, B, C)
        leader = stacked.amax(dim=2).argmax(dim=0)  # the first of equals
        chosen = stacked[leader, torch.arange(stacked.shape[1], device=leader.device)]
        return found, soft_labels(chosen, self.alpha)

    def _features(self, tokens: Tokens) -> tuple[dict[str, Tensor], Tensor]:
        """Return features (B, D) of each modality that is there and of all; and the logits."""
        fused = self.fuse(tokens)
        own = {n: tokens[n].mean(dim=1) for n in self.model.modalities if n in tokens}
        like = fused.embedding
        return {n: value.to(like) for n, value in own.items()} | {JOINT: like}, fused.logits

    def _labels(self, own: Tensor) -> Tensor:
        if self.labels == "own":
            return own
        if self.source_labels is None or self.source_labels.shape != own.shape:
            given = None if self.source_labels is None else tuple(self.source_labels.shape)
            raise InputError(
                f'labels="given" needs a label for each of the {len(own)} source samples, not '
                f"{given}: set tta.method.source_labels before tta.fit(...)."
            )
        return self.source_labels.to(own)

    def _classifiers(self) -> Iterator[tuple[str, AnalyticClassifier]]:
        for name, classifier in self.classifiers.items():
            assert isinstance(classifier, AnalyticClassifier)
            yield name, classifier
