"""DASP: diagnose which modality is shifted, adapt that one freely, keep the others stable.

In the order of the paper: the redundancy score R(Z), the diagnosis of the biased modalities G, the
stable and plastic adapters φ_s and φ_p, the loss, and one step. `passes.py` has the passes through
the fusion, `losses.py` entropy and KL.
"""

import math
import operator
from collections.abc import Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from dasp.core.contract import token_width
from dasp.core.types import Diagnosis, Fused, Prediction, Step, Tokens
from dasp.methods.base import METHODS, Method, not_negative, one_of, whole
from dasp.methods.losses import entropy, kl_divergence
from dasp.methods.passes import LearningPasses, SourcePasses, adapted_logits

Embeddings = Mapping[str, Tensor]
Score = Literal["cosine", "correlation"]
Kinds = Literal["both", "stable", "plastic"]
Role = Literal["source", "stable", "plastic", "both"]
RoleOf = Mapping[str, Role]

VARIANTS = ("released", "paper")
RULES = {
    "score": ("cosine", "correlation"),
    "dimension_filter": ("joint", "own"),
    "threshold": ("above", "reached"),
    "none_biased": ("source", "adapt"),
    "kl_from": ("source", "adapted"),
}
"""Where the released code (first) and the paper (second) differ; each is an option of `Dasp`."""


# Diagnosis via redundancy score (paper, section 3.2)


def redundancy(embeddings: Embeddings, score: str, dimension_filter: str) -> dict[str, Tensor]:
    """Return R(Z) of each modality, how much its dimensions repeat each other: {name: ()}.

    Z (B, D) are embeddings of one modality alone, after the fusion. Score "correlation" (paper):
    the mean over i≠j of the squared correlations C_ij. "cosine" (released): the root mean square
    over i≠j of the un-centred cosines of the dimensions' columns. Filter "own" (paper): keep the
    dimensions with variance above 1e-8 in the modality itself. "joint" (released): keep those
    whose spread over all modalities' rows together exceeds 5% of the largest spread. With fewer
    than two dimensions kept the score is 0. A dimension that does not vary correlates with none.
    """
    centred = {name: value - value.mean(dim=0) for name, value in embeddings.items()}
    varies = {name: value.square().mean(dim=0) > 1e-8 for name, value in centred.items()}
    keep = varies if dimension_filter == "own" else dict.fromkeys(embeddings, _spread(embeddings))
    if score == "cosine":
        return {n: _mean_squared_cosine(v[:, keep[n]]).sqrt() for n, v in embeddings.items()}
    return {n: _mean_squared_cosine((v * varies[n])[:, keep[n]]) for n, v in centred.items()}


def _spread(embeddings: Embeddings) -> Tensor:
    """Tell whether a dimension's spread over all rows exceeds 5% of the largest: → (D,)."""
    stacked = torch.cat(list(embeddings.values()))
    spread = stacked.std(dim=0) if len(stacked) > 1 else torch.zeros_like(stacked[0])
    return spread > 0.05 * spread.max()


def _mean_squared_cosine(columns: Tensor) -> Tensor:
    """Return the mean over i≠j of the squared cosine of columns i and j: (B, K) → ()."""
    count = columns.shape[1]
    if count < 2:
        return columns.new_zeros(())
    unit = torch.nn.functional.normalize(columns, dim=0)
    # ‖UᵀU‖ = ‖UUᵀ‖: the smaller of the two products gives the same sum.
    gram = unit @ unit.T if len(unit) < count else unit.T @ unit
    diagonal = unit.square().sum(dim=0).square().sum()
    return (gram.square().sum() - diagonal).clamp(min=0) / (count * (count - 1))


def diagnose(scores: Mapping[str, float], delta: float, strict: bool) -> Diagnosis:
    """Return the biased modalities G = {m: Δ^m ≥ δ} with Δ^m = r^m − min r; > δ if `strict`."""
    lowest, exceeds = min(scores.values()), operator.gt if strict else operator.ge
    differences = {name: score - lowest for name, score in scores.items()}
    biased = frozenset(name for name, gap in differences.items() if exceeds(gap, delta))
    return Diagnosis(dict(scores), differences, biased)


# Mitigation via asymmetric adaptation (paper, section 3.3)


class StableAdapter(nn.Module):
    """φ_s: h = x + up(relu(down(x))), of low rank; starts as the identity."""

    def __init__(self, dim: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        # skip_init: nn.Linear's own initial draw would disturb the global generator.
        self.down = skip_init(nn.Linear, dim, rank, bias=False)  # type: ignore[no-untyped-call]
        self.up = skip_init(nn.Linear, rank, dim, bias=False)  # type: ignore[no-untyped-call]
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(3), generator=generator)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Be the identity again; the down projection stays as it is."""
        nn.init.zeros_(self.up.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, N, D) → (B, N, D)."""
        out: Tensor = tokens + self.up(self.down(tokens).relu())
        return out


class PlasticAdapter(nn.Linear):
    """φ_p: h = x + Wx, of full rank; starts as the identity."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, bias=False)

    def reset_parameters(self) -> None:
        """Be the identity again."""
        nn.init.zeros_(self.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, N, D) → (B, N, D)."""
        return tokens + super().forward(tokens)


class AdapterPair(nn.Module):
    """The stable and the plastic adapter of one modality, or only one of them (`kinds`)."""

    def __init__(self, dim: int, rank: int, generator: torch.Generator, kinds: Kinds) -> None:
        super().__init__()
        self.has_both = kinds == "both"
        self.stable = nn.Identity() if kinds == "plastic" else StableAdapter(dim, rank, generator)
        self.plastic = nn.Identity() if kinds == "stable" else PlasticAdapter(dim)

    def reset_parameters(self) -> None:
        """Be the identity again."""
        for adapter in (self.stable, self.plastic):
            if not isinstance(adapter, nn.Identity):
                adapter.reset_parameters()

    def forward(self, tokens: Tensor, role: Role) -> Tensor:
        """Return z̃ from z (B, N, D), by role.

        "plastic" (biased): φ_p(φ_s(z)), and only φ_p learns. "stable" (unbiased): φ_s(z), which
        learns. "source": z. "both": φ_p(φ_s(z)), and both learn. A pair with only one adapter
        applies it, and lets it learn, in every role except "source".
        """
        if role == "source":
            return tokens
        held = self.has_both and role == "plastic"
        with torch.set_grad_enabled(torch.is_grad_enabled() and not held):
            adapted: Tensor = self.stable(tokens)
        if role != "stable" or not self.has_both:
            adapted = self.plastic(adapted)
        return adapted


def diversity(logits: Tensor) -> Tensor:
    """Return L_div = Σ p̄ log p̄: (B, C) → ()."""
    mean = mean_prediction(logits)
    return (mean * mean.log()).sum()


def mean_prediction(logits: Tensor) -> Tensor:
    """Return p̄, the mean over the batch of p clamped to [1e-7, 1 − 1e-7]: (B, C) → (C,)."""
    return logits.softmax(dim=1).clamp(1e-7, 1 - 1e-7).mean(dim=0)


@METHODS.register("dasp")
class Dasp(Method):
    """Train, per batch, the plastic adapters of biased and the stable ones of unbiased modalities.

    L = L_div + λ_ent·L_ent + λ_kl·Σ over unbiased modalities of L_kl. Adapters that take no part
    in a batch get no gradient and stay.

    Paper: He, Guo and Jin, "Decoupling Stability and Plasticity for Multi-Modal Test-Time
    Adaptation", CVPR 2026. `variant="paper"` follows its equations, `variant="released"` the
    authors' code (docs/methods.md lists the differences). Published λ_ent of the code:
    .5 (Kinetics50), .8 (VGGSound).

    Five options decide where the two differ; None takes the variant's value. `score` and
    `dimension_filter`: see `redundancy`. `threshold`: a modality is biased if its score is "above"
    the lowest by more than δ, or if the gap has "reached" δ. `none_biased`: if no modality is
    biased, predict with the "source" model and learn nothing, or "adapt" every modality as an
    unbiased one. `kl_from`: KL("source" ‖ adapted) or KL("adapted" ‖ source).

    Two options are the paper's ablation, which it names but does not define. `adapter_kinds`
    "plastic" or "stable" gives each modality only that adapter, which is applied and learns,
    biased or not. `roles="same"`: both adapters of every modality are applied and learn, and every
    modality has a KL term. `roles="opposite"`: biased modalities are treated as unbiased ones
    (stable adapter, KL) and vice versa.
    """

    version = 1
    published = "2026-06"
    sharded = True
    auto_change = 0.2  # adapters start as the identity and have far to go

    def __init__(
        self,
        model: nn.Module,
        *,
        variant: Literal["released", "paper"] = "released",
        stable_rank: int = 32,
        delta: float = 0.05,
        lambda_ent: float = 0.5,
        lambda_kl: float = 1.0,
        score: Score | None = None,
        dimension_filter: Literal["joint", "own"] | None = None,
        threshold: Literal["above", "reached"] | None = None,
        none_biased: Literal["source", "adapt"] | None = None,
        kl_from: Literal["source", "adapted"] | None = None,
        adapter_kinds: Kinds = "both",
        roles: Literal["diagnosed", "same", "opposite"] = "diagnosed",
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        self.variant, self.stable_rank, self.delta = variant, stable_rank, delta
        self.lambda_ent, self.lambda_kl = lambda_ent, lambda_kl
        self.score, self.dimension_filter, self.threshold = score, dimension_filter, threshold
        self.none_biased, self.kl_from = none_biased, kl_from
        self.adapter_kinds, self.roles = adapter_kinds, roles
        one_of("variant", variant, *VARIANTS)
        whole(stable_rank=stable_rank)
        not_negative(delta=delta, lambda_ent=lambda_ent, lambda_kl=lambda_kl)
        one_of("adapter_kinds", adapter_kinds, "both", "stable", "plastic")
        one_of("roles", roles, "diagnosed", "same", "opposite")
        self._rules = {}
        for name, allowed in RULES.items():
            given, usual = getattr(self, name), allowed[VARIANTS.index(variant)]
            self._rules[name] = usual if given is None else given
            one_of(name, self._rules[name], *allowed)
        for name in self.model.modalities:
            width = token_width(self.model, name)
            pair = AdapterPair(width, stable_rank, self.generator, adapter_kinds)
            self.adapters[name] = self.module_like_model(pair)

    def step(self, batch: Tokens) -> Step:
        """Diagnose, predict from adapted tokens, and compute the loss and its gradient."""
        source, diagnosis = self._diagnose(batch, remember=True)
        roles = self._roles(diagnosis)
        if "source" in roles.values():
            return Step(source.joint(), diagnosis=diagnosis, skipped="no modality is flagged")
        alone = source.alone
        del source  # it holds much memory
        passes = LearningPasses(self, batch, partial(self._adapt, roles=roles), alone)
        return self._learn(passes, diagnosis, roles)

    @torch.no_grad()
    def predict(self, batch: Tokens) -> Prediction:
        """Diagnose, and predict with the adapters as they are."""
        source, diagnosis = self._diagnose(batch, remember=False)
        roles = self._roles(diagnosis)
        if "source" in roles.values():
            return Prediction(source.joint(), diagnosis)
        del source  # it holds much memory
        return Prediction(adapted_logits(self, batch, partial(self._adapt, roles=roles)), diagnosis)

    @torch.no_grad()
    def adapted_tokens(self, batch: Tokens) -> dict[str, Tensor]:
        """Diagnose, and return the tokens z̃ (B, N, D) that `predict` fuses."""
        _, diagnosis = self._diagnose(batch, remember=False)
        return self._adapt(batch, self._roles(diagnosis))

    @torch.no_grad()
    def _diagnose(self, batch: Tokens, remember: bool) -> tuple[SourcePasses, Diagnosis]:
        source = SourcePasses(self, batch)
        with torch.autocast(next(iter(batch.values())).device.type, enabled=False):
            return source, self.diagnose(source.alone, remember)

    def diagnose(self, alone: Mapping[str, Fused], remember: bool) -> Diagnosis:  # noqa: ARG002
        """Return the diagnosis of all ranks' samples from each modality alone; see `redundancy`.

        `remember` is for methods built on this one whose diagnosis depends on earlier batches.
        """
        embeddings = {name: self.group.gather(fused.embedding) for name, fused in alone.items()}
        found = redundancy(embeddings, self._rules["score"], self._rules["dimension_filter"])
        scores = {name: float(value) for name, value in found.items()}
        return diagnose(scores, self.delta, strict=self._rules["threshold"] == "above")

    def _roles(self, diagnosis: Diagnosis) -> dict[str, Role]:
        """Return what each modality's adapters do in this batch; "source" for all or for none."""
        names = diagnosis.scores
        if not diagnosis.biased and self._rules["none_biased"] == "source":
            return dict.fromkeys(names, "source")
        if self.roles == "same":
            return dict.fromkeys(names, "both")
        freely = self.roles == "diagnosed"
        return {n: "plastic" if (n in diagnosis.biased) == freely else "stable" for n in names}

    def _adapt(self, batch: Tokens, roles: RoleOf) -> dict[str, Tensor]:
        return {name: self.adapters[name](tokens, roles[name]) for name, tokens in batch.items()}

    def _learn(self, passes: LearningPasses, diagnosis: Diagnosis, roles: RoleOf) -> Step:
        """Return the prediction with the loss L_div + λ_ent·L_ent + λ_kl·L_kl and its gradient."""
        loss = diversity(passes.logits) + self.lambda_ent * entropy(passes.logits).mean()
        return self._with_kl(loss, passes, diagnosis, roles)

    def _with_kl(
        self, loss: Tensor, passes: LearningPasses, diagnosis: Diagnosis, roles: RoleOf
    ) -> Step:
        weights = {n: weight for n, role in roles.items() if (weight := self._kl_weight(role))}
        total, gradients = passes.gradients(loss, weights, self._kl)
        return Step(passes.logits.detach(), total, diagnosis, gradients)

    def _kl_weight(self, role: Role) -> float:
        return 0.0 if role == "plastic" else self.lambda_kl

    def _kl(self, source: Tensor, adapted: Tensor) -> Tensor:
        """Return L_kl from the logits (b, C) of a modality alone, without and with adapters."""
        forward = self._rules["kl_from"] == "source"
        return kl_divergence(source, adapted) if forward else kl_divergence(adapted, source)
