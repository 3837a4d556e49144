"""DASP: diagnose which modality is shifted, adapt that one freely, keep the others steady."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dasp.core.errors import OptionError
from dasp.core.types import Diagnosis, Fused, Prediction, Step, Tokens
from dasp.methods.adapters import AdapterPair, Kinds, Role
from dasp.methods.base import METHODS, Method, not_negative, whole
from dasp.methods.losses import entropy, kl_divergence
from dasp.methods.redundancy import DimensionFilter, Score, diagnose, redundancy

Variant = Literal["released", "paper"]
Roles = Literal["diagnosed", "same", "opposite"]

VARIANTS: Mapping[Variant, Mapping[str, Any]] = {
    "released": {
        "score": "cosine",
        "dimension_filter": "joint",
        "threshold": "above",
        "none_biased": "source",
        "kl_from": "source",
    },
    "paper": {
        "score": "correlation",
        "dimension_filter": "own",
        "threshold": "reached",
        "none_biased": "adapt",
        "kl_from": "adapted",
    },
}
"""What each variant says where they differ; each is an option that can be switched alone."""


def diversity(logits: Tensor) -> Tensor:
    """Σ p̄ log p̄, each sample's p clamped to [1e-7, 1 − 1e-7] before the mean: (B, C) → ()."""
    mean = logits.softmax(dim=1).clamp(1e-7, 1 - 1e-7).mean(dim=0)
    return (mean * mean.log()).sum()


def dasp_loss(logits: Tensor, divergence: Tensor | float, ent: float, kl: float) -> Tensor:
    """L = diversity + λ_ent·mean H + λ_kl·KL of the steady modalities."""
    return diversity(logits) + ent * entropy(logits).mean() + kl * divergence


@METHODS.register("dasp")
class Dasp(Method):
    """Trains, per batch, the plastic adapters of biased and the stable ones of unbiased modalities.

    Paper: He, Guo and Jin, "Decoupling Stability and Plasticity for Multi-Modal Test-Time
    Adaptation", CVPR 2026. `variant="paper"` follows its equations, `variant="released"` the
    authors' code; README lists the differences. Published λ_ent of the code: .5 (Kinetics50),
    .8 (VGGSound).

    Five options each decide one difference; None leaves it as the variant says (`VARIANTS`).
    `score` and `dimension_filter`: see `redundancy`. `threshold`: a modality is biased if its
    score lies "above" the lowest by more than δ, or if the gap has "reached" δ. `none_biased`:
    then predict as the "source" model does and learn nothing, or "adapt" every modality as
    unbiased. `kl_from`: KL("source" ‖ adapted) or KL("adapted" ‖ source).

    Two options are the paper's ablation, which it names but does not define:

    - `adapter_kinds="plastic"` or `"stable"` leaves each modality that one adapter. It stands in
      for the other: biased or not, it is applied and learns, nothing is detached, and as before
      only unbiased modalities have a KL term. So the row asks whether two adapters are needed,
      not whether a modality should adapt at all.
    - `roles="same"`, without asymmetry: in every modality both adapters are applied and both
      learn, nothing is detached, and every modality has a KL term. The diagnosis then decides no
      more than whether anything is biased, which is what `none_biased` asks.
    - `roles="opposite"`: biased modalities play the part of unbiased ones (stable adapter, KL)
      and the reverse. If none is biased and `none_biased` is "adapt", all play the plastic part.

    Passes through the fusion, with any options: one a modality for the scores (its logits are
    also p_source), one joint with gradient, and, unless λ_kl = 0, one more for each modality with
    a KL term. In a batch without update: the scores and one joint, no gradient.
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
        score: Score | None = None,
        dimension_filter: DimensionFilter | None = None,
        threshold: Literal["above", "reached"] | None = None,
        none_biased: Literal["source", "adapt"] | None = None,
        kl_from: Literal["source", "adapted"] | None = None,
        adapter_kinds: Kinds = "both",
        roles: Roles = "diagnosed",
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        _one_of("variant", variant, *VARIANTS)
        whole(stable_rank=stable_rank)
        not_negative(delta=delta, lambda_ent=lambda_ent, lambda_kl=lambda_kl)
        _one_of("adapter_kinds", adapter_kinds, "both", "stable", "plastic")
        _one_of("roles", roles, "diagnosed", "same", "opposite")
        self.variant, self.stable_rank, self.delta = variant, stable_rank, delta
        self.lambda_ent, self.lambda_kl = lambda_ent, lambda_kl
        self.score, self.dimension_filter = score, dimension_filter
        self.threshold, self.none_biased, self.kl_from = threshold, none_biased, kl_from
        self.adapter_kinds, self.roles = adapter_kinds, roles
        for name in VARIANTS[variant]:
            _one_of(name, self._rule(name), *(rules[name] for rules in VARIANTS.values()))
        for name in self.model.modalities:
            pair = AdapterPair(self.model.embed_dim, stable_rank, self.generator, adapter_kinds)
            self.adapters[name] = self.module_like_model(pair)

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train all adapters; those that take no part in a batch get no gradient and stay put."""
        return self.adapters.parameters()

    def step(self, batch: Tokens) -> Step:
        """Diagnose, predict from adapted tokens, and take the loss."""
        alone, diagnosis = self._diagnose(batch)
        roles = self._roles(diagnosis)
        if "source" in roles.values():
            with torch.no_grad():
                return Step(self.fuse(batch).logits, diagnosis=diagnosis)
        adapted = self._adapt(batch, roles)
        logits = self.fuse(adapted).logits
        divergence = self._divergence(adapted, alone, roles) if self.lambda_kl else 0.0
        loss = dasp_loss(logits, divergence, self.lambda_ent, self.lambda_kl)
        return Step(logits, loss, diagnosis)

    @torch.no_grad()
    def predict(self, batch: Tokens) -> Prediction:
        """Diagnose, and predict with the adapters as they are."""
        _, diagnosis = self._diagnose(batch)
        adapted = self._adapt(batch, self._roles(diagnosis))
        return Prediction(self.fuse(adapted).logits, diagnosis)

    @torch.no_grad()
    def adapted_tokens(self, batch: Tokens) -> dict[str, Tensor]:
        """Diagnose, and give the tokens (B, N, D) that `predict` fuses."""
        _, diagnosis = self._diagnose(batch)
        return self._adapt(batch, self._roles(diagnosis))

    def _rule(self, name: str) -> Any:
        """Return the value of an option, or what the variant says where it is None."""
        value = getattr(self, name)
        return VARIANTS[self.variant][name] if value is None else value

    @torch.no_grad()
    def _diagnose(self, batch: Tokens) -> tuple[dict[str, Fused], Diagnosis]:
        alone = {name: self.fuse({name: tokens}) for name, tokens in batch.items()}
        embeddings = {name: fused.embedding for name, fused in alone.items()}
        with torch.autocast(next(iter(batch.values())).device.type, enabled=False):
            scores = redundancy(embeddings, self._rule("score"), self._rule("dimension_filter"))
        plain = {name: float(score) for name, score in scores.items()}
        return alone, diagnose(plain, self.delta, strict=self._rule("threshold") == "above")

    def _roles(self, diagnosis: Diagnosis) -> dict[str, Role]:
        """Say what each modality's adapters do in this batch: all "source", or none."""
        names = diagnosis.scores
        if not diagnosis.biased and self._rule("none_biased") == "source":
            return dict.fromkeys(names, "source")
        if self.roles == "same":
            return dict.fromkeys(names, "both")
        freely = self.roles == "diagnosed"
        return {n: "plastic" if (n in diagnosis.biased) == freely else "stable" for n in names}

    def _adapt(self, batch: Tokens, roles: Mapping[str, Role]) -> dict[str, Tensor]:
        return {name: self.adapters[name](tokens, roles[name]) for name, tokens in batch.items()}

    def _divergence(
        self, adapted: Tokens, alone: Mapping[str, Fused], roles: Mapping[str, Role]
    ) -> Tensor | float:
        """Sum the KL terms of the modalities that are not given over to plasticity."""
        terms = []
        for name in adapted:
            if roles[name] != "plastic":
                source = alone[name].logits
                now = self.fuse({name: adapted[name]}).logits
                pair = (source, now) if self._rule("kl_from") == "source" else (now, source)
                terms.append(kl_divergence(*pair))
        return torch.stack(terms).sum() if terms else 0.0


def _one_of(name: str, value: object, *allowed: str) -> None:
    if value not in allowed:
        raise OptionError(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}.")
