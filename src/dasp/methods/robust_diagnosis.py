"""The diagnosis of `Robust`: each modality is compared with itself when clean, over recent samples.

Statistics of whole batches change with the classes that happen to be in a batch. The *profile*
belongs to a single sample: the length of its embedding and the model's uncertainty about it. Its
average depends less on the classes, and a few dozen clean samples are enough to estimate it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Diagnosis, Fused
from dasp.methods.dasp import Score, diagnose, redundancy
from dasp.methods.distributed import ALONE, Ranks
from dasp.methods.losses import entropy

RobustScore = Score | Literal["corrected", "profile"]
Level = Literal["lowest", "own"]
LEVEL_BATCH = 64  # samples over which the level of clean data is measured
SHARPEST = 128  # clean samples of another day differ a little: more than this many do not count
RECENT = 8  # samples that are enough to see that the stream has changed


def profile(alone: Fused) -> Tensor:
    """Return log ‖embedding‖ and the entropy of the prediction of each sample: → (B, 2)."""
    length = alone.embedding.norm(dim=1).clamp(min=1e-12).log()
    return torch.stack([length, entropy(alone.logits)], dim=1)


class CleanProfile(nn.Module):
    """The profile of clean samples of one modality: mean (2,), inverse covariance (2, 2)."""

    mean: Tensor
    precision: Tensor
    count: Tensor  # number of samples it was learned from; 0 if none yet

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("precision", torch.eye(2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def fit(self, rows: Tensor) -> None:
        """Learn from the profiles (n, 2) of clean samples."""
        if len(rows) < 5:
            raise InputError(f"fit() got {len(rows)} clean samples, which is too few: give 32.")
        rows = rows.to(self.mean)
        centred = rows - rows.mean(dim=0)
        # The floor is for a model that is equally sure of every sample.
        spread = centred.T @ centred / (len(rows) - 1) + 1e-6 * torch.eye(2).to(rows)
        self.mean.copy_(rows.mean(dim=0))
        self.precision.copy_(torch.linalg.inv(spread))
        self.count.fill_(len(rows))

    def distance(self, rows: Tensor) -> Tensor:
        """Return how far the mean of rows (n, 2) is from clean, relative to chance: ().

        Hotelling's statistic, (x̄ − μ)ᵀ Σ⁻¹ (x̄ − μ) / (1/n + 1/N) for N clean samples: about χ²
        with two degrees of freedom if the rows are clean, for any n.
        """
        known = self.count.clamp(max=SHARPEST)
        gap = rows.mean(dim=0) - self.mean
        return gap @ self.precision @ gap / (1 / len(rows) + 1 / known)

    def since_change(self, rows: Tensor, newest: int, limit: float) -> Tensor:
        """Drop the older of rows (n, 2), in order of arrival, if the last ones differ from them.

        The last `newest`, but at least 8, are compared with all before them by the same statistic.
        """
        newest = max(newest, RECENT)
        if len(rows) <= newest:
            return rows
        last, before = rows[-newest:], rows[:-newest]
        gap = last.mean(dim=0) - before.mean(dim=0)
        apart = gap @ self.precision @ gap / (1 / len(last) + 1 / len(before))
        return last if apart > limit else rows


def without_noise_floor(squared: float, rows: int) -> float:
    """Correct a mean squared correlation of `rows` samples for what chance adds to it.

    Independent dimensions have r² = 1/(B − 1) on average; r² − (1 − r²)/(B − 2) is 0 for them at
    any B, and may be negative. It is 0 for fewer than three rows.
    """
    return squared - (1 - squared) / (rows - 2) if rows > 2 else 0.0


class ProfileDiagnoser(nn.Module):
    """Diagnoses batch after batch, by the options that `Robust` documents.

    Its memory is in buffers, so resets and states cover it.
    """

    levels: Tensor  # the redundancy of each modality when clean: learned, or the lowest so far
    fitted: Tensor

    def __init__(
        self, names: Sequence[str], score: str, level: str, queue: int, false_alarms: float
    ) -> None:
        super().__init__()
        self.score, self.level, self.queue = score, level, queue
        self.form = "correlation" if score in ("correlation", "corrected") else "cosine"
        # What χ² with two degrees of freedom exceeds in this share of clean batches.
        self.limit = -2 * math.log(false_alarms)
        self.frozen = False  # whether earlier batches do not count for the present one
        self.recent = nn.ModuleDict({name: _Queue() for name in names})
        self.clean = nn.ModuleDict({name: CleanProfile() for name in names})
        self.places = {name: place for place, name in enumerate(names)}
        self.register_buffer("levels", torch.full((len(names),), torch.inf))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    @property
    def uses_source(self) -> bool:
        """Whether clean samples make a difference."""
        return self.level == "own" or self.score == "profile"

    @torch.no_grad()
    def fit(self, clean: Mapping[str, Fused]) -> None:
        """Learn what each modality alone looks like on clean samples."""
        for name, alone in clean.items():
            spread = float((alone.embedding - alone.embedding.mean(dim=0)).abs().max())
            if spread < 1e-6 * float(alone.embedding.abs().max()):
                raise InputError(f"all clean samples of '{name}' are alike: give real ones.")
            self.clean[name].fit(profile(alone))  # type: ignore[operator]
        last = max(len(next(iter(clean.values())).embedding) - LEVEL_BATCH, 0)
        batches = [slice(start, start + LEVEL_BATCH) for start in range(0, last + 1, LEVEL_BATCH)]
        scores = [self._redundancy({n: f.embedding[b] for n, f in clean.items()}) for b in batches]
        for name in clean:
            self.levels[self.places[name]] = sum(s[name] for s in scores) / len(scores)
        self.fitted.fill_(True)

    @torch.no_grad()
    def forward(
        self, alone: Mapping[str, Fused], delta: float, remember: bool, group: Ranks = ALONE
    ) -> Diagnosis:
        """Diagnose the modalities present; with `remember`, the batch counts for later ones."""
        if self.score == "profile" and self.fitted:
            return self._by_profile(alone, remember, group)
        rows = {name: group.gather(fused.embedding) for name, fused in alone.items()}
        scores = self._redundancy({n: self._with_recent(n, r, remember) for n, r in rows.items()})
        if self.level == "lowest":
            return diagnose(scores, delta, strict=True)
        return self._by_levels(scores, delta, remember)

    def _by_profile(self, alone: Mapping[str, Fused], remember: bool, group: Ranks) -> Diagnosis:
        scores = {}
        for name, fused in alone.items():
            own = self.clean[name]
            assert isinstance(own, CleanProfile)
            rows = group.gather(profile(fused).to(own.mean))
            scores[name] = float(own.distance(self._with_recent(name, rows, remember, own)))
        excess = {name: score - self.limit for name, score in scores.items()}
        return Diagnosis(scores, excess, frozenset(n for n, over in excess.items() if over > 0))

    def _by_levels(self, scores: Mapping[str, float], delta: float, remember: bool) -> Diagnosis:
        """Compare each score with its own level; until that is learned, also with the others.

        The lowest score so far is not a clean level if the modality has never been clean.
        """
        levels = {name: float(self.levels[self.places[name]]) for name in scores}
        if not self.fitted:
            levels = {name: min(levels[name], score) for name, score in scores.items()}
            if remember:
                for name, level in levels.items():
                    self.levels[self.places[name]] = level
        over = {name: score - levels[name] for name, score in scores.items()}
        biased = {name for name, gap in over.items() if gap > delta}
        if not self.fitted:
            biased |= diagnose(scores, delta, strict=True).biased
        return Diagnosis(dict(scores), over, frozenset(biased))

    def _redundancy(self, embeddings: Mapping[str, Tensor]) -> dict[str, float]:
        found = redundancy(embeddings, self.form, "joint")
        scores = {name: float(value) for name, value in found.items()}
        if self.score != "corrected":
            return scores
        return {n: without_noise_floor(r, len(embeddings[n])) for n, r in scores.items()}

    def _with_recent(
        self, name: str, rows: Tensor, remember: bool, clean: CleanProfile | None = None
    ) -> Tensor:
        """Return rows (B, K) with remembered ones before them, as many as the queue holds."""
        queue, size, recent = self.recent[name], self.queue, rows
        assert isinstance(queue, _Queue)
        if size == 0 or self.frozen:
            return rows
        if queue.rows.shape[1] == rows.shape[1]:  # else there are none yet, or of another kind
            recent = torch.cat([queue.rows.to(rows), rows])[-max(size, len(rows)) :]
        if clean is not None:
            recent = clean.since_change(recent, len(rows), self.limit)
        if remember:
            queue.rows = recent[-size:].detach().clone()
        return recent


class _Queue(nn.Module):
    rows: Tensor  # (n, K), the last of a stream, oldest first

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.empty(0, 0))
