"""DASP: diagnose which modality is shifted, adapt that one freely, keep the others steady."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from dasp.core.errors import ContractError, OptionError
from dasp.core.types import Diagnosis, Fused, Inputs, Prediction, Step, Tokens
from dasp.methods.adapters import AdapterPair, Kinds, Role
from dasp.methods.base import METHODS, Method, not_negative, whole
from dasp.methods.dasp_loss import dasp_loss, label_mix
from dasp.methods.dasp_passes import LearningPasses, SourcePasses, adapted_logits, joined
from dasp.methods.dasp_variants import VARIANTS, Variant, one_of, resolve
from dasp.methods.diagnosis import Diagnoser, Indicator, Level, Rules
from dasp.methods.guard import CollapseGuard
from dasp.methods.losses import kl_divergence
from dasp.methods.redundancy import DimensionFilter

Roles = Literal["diagnosed", "same", "opposite"]


@METHODS.register("dasp")
class Dasp(Method):
    """Trains, per batch, the plastic adapters of biased and the stable ones of unbiased modalities.

    Paper: He, Guo and Jin, "Decoupling Stability and Plasticity for Multi-Modal Test-Time
    Adaptation", CVPR 2026. `variant="paper"` follows its equations, `variant="released"` the
    authors' code, `variant="robust"` is ours, for streams as sensors send them; README lists the
    differences and docs/robust.md what each part of "robust" is for. Published λ_ent of the code:
    .5 (Kinetics50), .8 (VGGSound).

    Options that are None are as the variant says (`VARIANTS`); each can be switched alone. Five
    decide where paper and released code differ. `score` and `dimension_filter`: see `redundancy`.
    `threshold`: a modality is biased if its score lies "above" the lowest by more than δ, or if
    the gap has "reached" δ. `none_biased`: then predict as the "source" model does and learn
    nothing, or "adapt" every modality as unbiased. `kl_from`: KL("source" ‖ adapted) or
    KL("adapted" ‖ source).

    Those of "robust", each of which goes with any variant:

    - `score="profile"`: how far two numbers of each sample are from those of clean samples, which
      `fit` is given (`dasp.methods.profile`); biased if clean batches would get so far in a share
      `false_alarms` of cases. Until it is fitted, the "cosine" stands in for it.
    - `score="corrected"`: the paper's correlation without its noise floor, for small batches.
    - `level="own"` holds a score against that of the same modality when clean (learnt by `fit`,
      or the lowest so far) instead of the lowest of all, so that all modalities can be biased.
    - `queue`: how many recent samples the diagnosis looks at where a batch has fewer.
    - `label_mix="healthy"`: the diversity term asks not for all classes alike but for the classes
      that the unbiased modalities see in this batch.
    - `lambda_kl_biased`: weight of a KL term of the biased modalities, too.
    - `full_batch`: a batch of B samples, fewer than this, moves the weights by √(B/full_batch) of
      the learning rate; 0 leaves the rate alone.
    - `collapse_guard`: if predictions fall into few classes, go back to the last good weights.

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
    also p_source), one joint with gradient, and one more for each modality with a KL term of
    weight above 0. In a batch without update: the scores and one joint, no gradient.
    """

    version = 1
    sharded = True

    def __init__(
        self,
        model: nn.Module,
        *,
        variant: Variant = "released",
        stable_rank: int = 32,
        delta: float = 0.05,
        lambda_ent: float = 0.5,
        lambda_kl: float = 1.0,
        score: Indicator | None = None,
        dimension_filter: DimensionFilter | None = None,
        threshold: Literal["above", "reached"] | None = None,
        none_biased: Literal["source", "adapt"] | None = None,
        kl_from: Literal["source", "adapted"] | None = None,
        level: Level | None = None,
        queue: int | None = None,
        false_alarms: float = 0.001,
        label_mix: Literal["even", "healthy"] | None = None,
        lambda_kl_biased: float | None = None,
        full_batch: int | None = None,
        collapse_guard: bool | None = None,
        adapter_kinds: Kinds = "both",
        roles: Roles = "diagnosed",
        seed: int = 0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in VARIANTS["released"]}
        super().__init__(model, seed=seed)
        self.rules = resolve(variant, given)
        whole(stable_rank=stable_rank)
        not_negative(delta=delta, lambda_ent=lambda_ent, lambda_kl=lambda_kl)
        if not 0 < false_alarms < 1:
            raise OptionError(f"false_alarms is a share between 0 and 1, not {false_alarms!r}.")
        one_of("adapter_kinds", adapter_kinds, "both", "stable", "plastic")
        one_of("roles", roles, "diagnosed", "same", "opposite")
        for name, value in given.items():
            setattr(self, name, value)
        self.variant, self.stable_rank, self.delta = variant, stable_rank, delta
        self.lambda_ent, self.lambda_kl, self.false_alarms = lambda_ent, lambda_kl, false_alarms
        self.adapter_kinds, self.roles = adapter_kinds, roles
        for name in self.model.modalities:
            pair = AdapterPair(self.model.embed_dim, stable_rank, self.generator, adapter_kinds)
            self.adapters[name] = self.module_like_model(pair)
        self.diagnoser = self._diagnoser()
        self.guard = self._guard() if self.rules["collapse_guard"] else None

    def _diagnoser(self) -> Diagnoser:
        names = ("score", "dimension_filter", "threshold", "level", "queue")
        rules = {name: self.rules[name] for name in names}
        own = Rules(**rules, false_alarms=self.false_alarms)
        return Diagnoser(self.model.modalities, own).to(self._device())

    def _guard(self) -> CollapseGuard:
        return CollapseGuard(self.model.num_classes, self.trainable()).to(self._device())

    def _device(self) -> torch.device:
        return next(iter(self.model.parameters()), torch.empty(0)).device

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train all adapters; those that take no part in a batch get no gradient and stay put."""
        return self.adapters.parameters()

    @torch.no_grad()
    def fit(self, source: Iterable[Inputs]) -> None:
        """Learn what each modality alone looks like on clean samples; 32 are few, 128 enough."""
        if not self.diagnoser.takes_source:
            super().fit(source)
        seen: dict[str, list[Fused]] = {name: [] for name in self.model.modalities}
        for inputs in source:
            for name, tokens in self.encode(inputs).items():
                seen[name].append(self.fuse({name: tokens}))
        empty = [name for name, parts in seen.items() if not parts]
        if empty:
            raise ContractError(f"fit() was given no clean samples of {', '.join(empty)}.")
        self.diagnoser.fit({name: joined(parts) for name, parts in seen.items()})

    def step(self, batch: Tokens) -> Step:
        """Diagnose, predict from adapted tokens, and take the loss and its gradient."""
        source, diagnosis = self._diagnose(batch, remember=True)
        roles = self._roles(diagnosis)
        if "source" in roles.values():
            return Step(source.joint(), diagnosis=diagnosis)
        alone = source.alone
        del source  # it holds much memory
        passes = LearningPasses(self, batch, partial(self._adapt, roles=roles))
        healthy = self.group.gather(label_mix(alone, diagnosis.biased))
        if self.guard is not None:
            fallen = self.guard.judge(passes.logits, healthy, self.trainable())
            if fallen is not None:
                return Step(passes.logits.detach(), diagnosis=diagnosis, rollback=fallen)
        target = healthy.mean(dim=0) if self.rules["label_mix"] == "healthy" else None
        loss, gradients = passes.gradients(
            dasp_loss(passes.logits, self.lambda_ent, target),
            self._kl_weights(roles),
            partial(self._divergence, alone),
            list(self.trainable()),
        )
        logits = passes.logits.detach()
        return Step(logits, loss, diagnosis, gradients, rate=self._rate(len(logits)))

    def roll_back(self) -> None:
        """Return the adapters to the last good ones."""
        assert self.guard is not None
        self.guard.give_back(self.trainable())

    @torch.no_grad()
    def predict(self, batch: Tokens) -> Prediction:
        """Diagnose, and predict with the adapters as they are."""
        source, diagnosis = self._diagnose(batch, remember=False)
        roles = self._roles(diagnosis)
        if "source" in roles.values():
            return Prediction(source.joint(), diagnosis)
        del source  # it holds much memory
        adapt = partial(self._adapt, roles=roles)
        return Prediction(adapted_logits(self, batch, adapt), diagnosis)

    @torch.no_grad()
    def adapted_tokens(self, batch: Tokens) -> dict[str, Tensor]:
        """Diagnose, and give the tokens (B, N, D) that `predict` fuses."""
        _, diagnosis = self._diagnose(batch, remember=False)
        return self._adapt(batch, self._roles(diagnosis))

    @torch.no_grad()
    def _diagnose(self, batch: Tokens, remember: bool) -> tuple[SourcePasses, Diagnosis]:
        source = SourcePasses(self, batch)
        with torch.autocast(next(iter(batch.values())).device.type, enabled=False):
            return source, self.diagnoser(source.alone, self.delta, remember, self.group)

    def _roles(self, diagnosis: Diagnosis) -> dict[str, Role]:
        """Say what each modality's adapters do in this batch: all "source", or none."""
        names = diagnosis.scores
        if not diagnosis.biased and self.rules["none_biased"] == "source":
            return dict.fromkeys(names, "source")
        if self.roles == "same":
            return dict.fromkeys(names, "both")
        freely = self.roles == "diagnosed"
        return {n: "plastic" if (n in diagnosis.biased) == freely else "stable" for n in names}

    def _adapt(self, batch: Tokens, roles: Mapping[str, Role]) -> dict[str, Tensor]:
        return {name: self.adapters[name](tokens, roles[name]) for name, tokens in batch.items()}

    def _kl_weights(self, roles: Mapping[str, Role]) -> dict[str, float]:
        """Give the weight of each modality's KL term, where it has one."""
        weights = {
            name: self.rules["lambda_kl_biased"] if role == "plastic" else self.lambda_kl
            for name, role in roles.items()
        }
        return {name: weight for name, weight in weights.items() if weight}

    def _divergence(
        self, alone: Mapping[str, Fused], name: str, now: Tensor, rows: slice
    ) -> Tensor:
        """KL between what a modality says alone with its adapters (b, C) and what it said."""
        source = alone[name].logits[rows]
        return kl_divergence(
            *((source, now) if self.rules["kl_from"] == "source" else (now, source))
        )

    def _rate(self, samples: int) -> float:
        full: int = self.rules["full_batch"]
        return min(1.0, samples / full) ** 0.5 if full else 1.0
