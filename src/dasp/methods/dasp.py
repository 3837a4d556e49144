"""DASP: diagnose which modality is shifted, adapt that one freely, keep the others steady."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from dasp.core.errors import OptionError
from dasp.core.types import Diagnosis, Fused, Prediction, Step, Tokens
from dasp.methods.adapters import AdapterPair
from dasp.methods.base import METHODS, Method, not_negative, whole
from dasp.methods.losses import entropy, kl_divergence
from dasp.methods.redundancy import diagnose, paper_redundancy, released_redundancy

Variant = Literal["released", "paper"]


def diversity(logits: Tensor) -> Tensor:
    """Σ p̄ log p̄, each sample's p clamped to [1e-7, 1 − 1e-7] before the mean: (B, C) → ()."""
    mean = logits.softmax(dim=1).clamp(1e-7, 1 - 1e-7).mean(dim=0)
    return (mean * mean.log()).sum()


def dasp_loss(logits: Tensor, divergence: Tensor | float, ent: float, kl: float) -> Tensor:
    """L = diversity + λ_ent·mean H + λ_kl·KL of the unbiased modalities."""
    return diversity(logits) + ent * entropy(logits).mean() + kl * divergence


@METHODS.register("dasp")
class Dasp(Method):
    """Trains, per batch, the plastic adapters of biased and the stable ones of unbiased modalities.

    Paper: He, Guo and Jin, "Decoupling Stability and Plasticity for Multi-Modal Test-Time
    Adaptation", CVPR 2026. `variant="paper"` follows its equations, `variant="released"` the
    authors' code; README lists the differences. Published λ_ent of the code: .5 (Kinetics50),
    .8 (VGGSound).

    Passes through the fusion: one a modality for the scores (its logits are also p_source), one
    joint with gradient, one more for each unbiased modality's p_adapted.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        variant: Variant = "released",
        stable_rank: int = 32,
        delta: float = 0.05,
        lambda_ent: float = 0.5,
        lambda_kl: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        if variant not in ("released", "paper"):
            raise OptionError(f"variant is 'released' or 'paper', not {variant!r}.")
        whole(stable_rank=stable_rank)
        not_negative(delta=delta, lambda_ent=lambda_ent, lambda_kl=lambda_kl)
        self.variant, self.stable_rank, self.delta = variant, stable_rank, delta
        self.lambda_ent, self.lambda_kl = lambda_ent, lambda_kl
        for name in self.model.modalities:
            pair = AdapterPair(self.model.embed_dim, stable_rank, self.generator)
            self.adapters[name] = self.module_like_model(pair)

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train all adapters; those that take no part in a batch get no gradient and stay put."""
        return self.adapters.parameters()

    def step(self, batch: Tokens) -> Step:
        """Diagnose, predict from adapted tokens, and take the loss."""
        alone, diagnosis = self._diagnose(batch)
        if self._leaves_alone(diagnosis):
            return Step(self._source(batch), diagnosis=diagnosis)
        adapted = self._adapt(batch, diagnosis)
        logits = self.fuse(adapted).logits
        divergence = self._divergence(adapted, alone, diagnosis) if self.lambda_kl else 0.0
        loss = dasp_loss(logits, divergence, self.lambda_ent, self.lambda_kl)
        return Step(logits, loss, diagnosis)

    @torch.no_grad()
    def predict(self, batch: Tokens) -> Prediction:
        """Diagnose, and predict with the adapters as they are."""
        _, diagnosis = self._diagnose(batch)
        if self._leaves_alone(diagnosis):
            return Prediction(self._source(batch), diagnosis)
        return Prediction(self.fuse(self._adapt(batch, diagnosis)).logits, diagnosis)

    @torch.no_grad()
    def adapted_tokens(self, batch: Tokens) -> dict[str, Tensor]:
        """Diagnose, and return the tokens through the adapters that take part."""
        _, diagnosis = self._diagnose(batch)
        return dict(batch) if self._leaves_alone(diagnosis) else self._adapt(batch, diagnosis)

    @torch.no_grad()
    def _diagnose(self, batch: Tokens) -> tuple[dict[str, Fused], Diagnosis]:
        alone = {name: self.fuse({name: tokens}) for name, tokens in batch.items()}
        embeddings = {name: fused.embedding for name, fused in alone.items()}
        released = self.variant == "released"
        with torch.autocast(next(iter(batch.values())).device.type, enabled=False):
            if released:
                scores = released_redundancy(embeddings)
            else:
                scores = {name: paper_redundancy(value) for name, value in embeddings.items()}
        plain = {name: float(score) for name, score in scores.items()}
        return alone, diagnose(plain, self.delta, strict=released)

    def _leaves_alone(self, diagnosis: Diagnosis) -> bool:
        """The released code adapts nothing, and applies nothing, when nothing is flagged."""
        return self.variant == "released" and not diagnosis.biased

    @torch.no_grad()
    def _source(self, batch: Tokens) -> Tensor:
        return self.fuse(batch).logits

    def _adapt(self, batch: Tokens, diagnosis: Diagnosis) -> dict[str, Tensor]:
        return {
            name: self.adapters[name](tokens, name in diagnosis.biased)
            for name, tokens in batch.items()
        }

    def _divergence(self, adapted: Tokens, alone: dict[str, Fused], diagnosis: Diagnosis) -> Tensor:
        terms = []
        for name in adapted:
            if name not in diagnosis.biased:
                source = alone[name].logits
                now = self.fuse({name: adapted[name]}).logits
                pair = (source, now) if self.variant == "released" else (now, source)
                terms.append(kl_divergence(*pair))
        return torch.stack(terms).sum()
