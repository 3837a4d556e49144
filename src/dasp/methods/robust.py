"""Robust: our own method, DASP for streams as sensors send them (docs/robust.md has figures)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from dasp.core.errors import ContractError, OptionError
from dasp.core.types import Diagnosis, Fused, Step, Tokens
from dasp.methods.base import METHODS, device_of, not_negative, one_of, whole
from dasp.methods.dasp import Dasp, Role, RoleOf, diversity, mean_prediction
from dasp.methods.losses import entropy
from dasp.methods.passes import LearningPasses, joined
from dasp.methods.robust_diagnosis import Level, ProfileDiagnoser, RobustScore

EVEN_SHARE = 0.5  # weight of a uniform class mix beside the one that healthy modalities see
WINDOW = 256  # samples over which the guard averages predictions
FALLEN, GOOD = 0.5, 0.8  # shares of the running level
EVERY = 16  # batches between two copies of good weights
PATIENCE = 0.02  # how fast the running level follows, per batch


@METHODS.register("robust")
class Robust(Dasp):
    """DASP that compares each modality with itself when clean, and guards what it learns.

    Paper: none; this method was made for this library in 2026, on the released variant of `Dasp`.

    - `score="profile"`: how far each sample's profile (`dasp.methods.robust_diagnosis`) is from
      those of the clean samples given to `fit`. A modality is biased if clean batches would get
      that far in a share `false_alarms` of cases. Until `fit`, "cosine" is used. "cosine" and
      "correlation" are DASP's redundancy; "corrected" is the latter without its noise floor.
    - `level="own"` compares a score with that of the same modality when clean (learned by `fit`,
      or the lowest so far), "lowest" with the lowest of all; the gap must exceed `delta`.
    - `queue`: the number of recent samples that the diagnosis uses if a batch has fewer.
    - `label_mix="healthy"`: the diversity term asks not for all classes equally ("even") but for
      the classes that the unbiased modalities predict in this batch.
    - `lambda_kl_biased`: weight of a KL term of the biased modalities too.
    - `full_batch`: a batch of B samples, fewer than this, is learned at √(B/full_batch) of the
      learning rate; 0 turns this off.
    - `collapse_guard`: if predictions collapse into few classes, return to the last good weights.
    """

    version = 1
    sharded = True

    def __init__(
        self,
        model: nn.Module,
        *,
        stable_rank: int = 32,
        delta: float = 0.05,
        lambda_ent: float = 0.5,
        lambda_kl: float = 1.0,
        none_biased: Literal["source", "adapt"] = "source",
        score: RobustScore = "profile",
        level: Level = "own",
        queue: int = 128,
        false_alarms: float = 0.001,
        label_mix: Literal["even", "healthy"] = "healthy",
        lambda_kl_biased: float = 0.1,
        full_batch: int = 64,
        collapse_guard: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(
            model,
            stable_rank=stable_rank,
            delta=delta,
            lambda_ent=lambda_ent,
            lambda_kl=lambda_kl,
            none_biased=none_biased,
            seed=seed,
        )
        one_of("score", score, "cosine", "correlation", "corrected", "profile")
        one_of("level", level, "lowest", "own")
        one_of("label_mix", label_mix, "even", "healthy")
        one_of("collapse_guard", collapse_guard, True, False)
        whole(0, queue=queue, full_batch=full_batch)
        not_negative(lambda_kl_biased=lambda_kl_biased)
        if not 0 < false_alarms < 1:
            raise OptionError(f"false_alarms must be between 0 and 1, not {false_alarms!r}.")
        self.score, self.level, self.queue = score, level, queue  # type: ignore[assignment]
        self.false_alarms, self.label_mix, self.full_batch = false_alarms, label_mix, full_batch
        self.lambda_kl_biased, self.collapse_guard = lambda_kl_biased, collapse_guard
        names, device = self.model.modalities, device_of(self.model)
        self.diagnoser = ProfileDiagnoser(names, score, level, queue, false_alarms).to(device)
        guard = CollapseGuard(self.model.num_classes, self.trainable()).to(device)
        self.guard = guard if collapse_guard else None

    @property
    def fitted(self) -> bool | None:
        """Whether the diagnosis knows clean samples; None if it does not use them."""
        return bool(self.diagnoser.fitted) if self.diagnoser.uses_source else None

    @torch.no_grad()
    def fit(self, source: Iterable[Tokens]) -> None:
        """Learn what each modality alone looks like on clean samples; 32 are few, 128 enough."""
        if not self.diagnoser.uses_source:
            super().fit(source)
        seen: dict[str, list[Fused]] = {name: [] for name in self.model.modalities}
        for batch in source:
            for name, tokens in batch.items():
                seen[name].append(self.fuse({name: tokens}))
        if not all(seen.values()):
            raise ContractError(f"fit() was given no clean samples of {', '.join(seen)}.")
        self.diagnoser.fit({name: joined(parts) for name, parts in seen.items()})

    def diagnose(self, alone: Mapping[str, Fused], remember: bool) -> Diagnosis:
        """Compare each modality with itself when clean, over recent samples.

        A call inside `frozen()` sees its own samples alone: the queue belongs to another stream.
        """
        self.diagnoser.frozen = self.frozen
        found: Diagnosis = self.diagnoser(alone, self.delta, remember, self.group)
        return found

    def _learn(self, passes: LearningPasses, diagnosis: Diagnosis, roles: RoleOf) -> Step:
        """Check for collapse, then return the prediction with the loss and its gradient."""
        logits = passes.logits
        healthy = self.group.gather(healthy_mix(passes.alone, diagnosis.biased))
        fallen = self.guard and self.guard.judge(logits, healthy, self.trainable())
        if fallen:
            return Step(logits.detach(), diagnosis=diagnosis, rollback=fallen)
        mix = self.label_mix == "healthy"
        spread = divergence_from_mix(logits, healthy.mean(dim=0)) if mix else diversity(logits)
        loss = spread + self.lambda_ent * entropy(logits).mean()
        rate = min(1.0, len(logits) / self.full_batch) ** 0.5 if self.full_batch else 1.0
        return replace(self._with_kl(loss, passes, diagnosis, roles), rate=rate)

    def _kl_weight(self, role: Role) -> float:
        return self.lambda_kl_biased if role == "plastic" else self.lambda_kl

    def roll_back(self) -> None:
        """Return the adapters to the last good ones."""
        assert self.guard is not None
        self.guard.give_back(self.trainable())


@torch.no_grad()
def healthy_mix(alone: Mapping[str, Fused], biased: Collection[str]) -> Tensor:
    """Return the mean probabilities (B, C) of the unbiased modalities, or of all if none is."""
    names = [name for name in alone if name not in biased] or list(alone)
    return torch.stack([alone[name].logits.softmax(dim=1) for name in names]).mean(dim=0)


def divergence_from_mix(logits: Tensor, mix: Tensor) -> Tensor:
    """Return KL(p̄ ‖ half the mix of classes (C,), half uniform) of logits (B, C): ()."""
    mean = mean_prediction(logits)
    wanted = (1 - EVEN_SHARE) * mix + EVEN_SHARE / len(mix)
    return (mean * (mean.log() - wanted.log())).sum()


class CollapseGuard(nn.Module):
    """Tracks the number of classes predicted, and keeps the last weights that were good.

    How many classes a stream shows is unknown, so the adapted predictions are compared with those
    of single modalities, made by the source model: classes that the stream lacks are missing in
    both. All state is in buffers, so resets and states cover it.
    """

    adapted: Tensor  # (C,) running mean of the adapted predictions
    steady: Tensor  # (C,) of the source model's, by single modalities
    level: Tensor  # () running ratio of the two effective numbers of classes
    age: Tensor  # () batches seen

    def __init__(self, classes: int, weights: Iterable[nn.Parameter]) -> None:
        super().__init__()
        for name in ("adapted", "steady"):
            self.register_buffer(name, torch.full((classes,), 1 / classes))
        self.register_buffer("level", torch.ones(()))
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))
        for place, weight in enumerate(weights):
            self.register_buffer(f"good_{place}", weight.detach().clone())

    @torch.no_grad()
    def judge(self, logits: Tensor, steady: Tensor, weights: Iterable[nn.Parameter]) -> str | None:
        """Return why the weights should be rolled back, or None; every few batches, keep them then.

        `logits` (B, C) are adapted by these weights, `steady` (B, C) the source's probabilities.
        """
        share = min(1.0, len(logits) / WINDOW)
        self.adapted.lerp_(logits.softmax(dim=1).mean(dim=0).to(self.adapted), share)
        self.steady.lerp_(steady.mean(dim=0).to(self.steady), share)
        now, usual = effective_classes(self.adapted), effective_classes(self.steady)
        if now / usual < FALLEN * self.level:
            self.adapted.copy_(self.steady)
            return (
                f"predictions collapsed into {now:.1f} classes; single modalities see {usual:.1f}"
            )
        if self.age % EVERY == 0 and now / usual >= GOOD * self.level:
            for place, weight in enumerate(weights):
                self.get_buffer(f"good_{place}").copy_(weight)
        self.level.lerp_(now / usual, PATIENCE)
        self.age += 1
        return None

    @torch.no_grad()
    def give_back(self, weights: Iterable[nn.Parameter]) -> None:
        """Copy the last good weights into `weights`."""
        for place, weight in enumerate(weights):
            weight.copy_(self.get_buffer(f"good_{place}"))


def effective_classes(share: Tensor) -> Tensor:
    """Return exp H of shares (C,): the number of equally frequent classes as varied as these."""
    return torch.exp(-torch.xlogy(share, share).sum())
