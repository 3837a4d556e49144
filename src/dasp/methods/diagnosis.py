"""Which modalities are shifted: a score of each, a level to hold it against, and a memory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Diagnosis, Fused
from dasp.methods.group import ALONE, Group
from dasp.methods.moments import moments, packed, redundancy_of_moments, unpacked
from dasp.methods.profile import CleanProfile, profile
from dasp.methods.redundancy import DimensionFilter, Score, diagnose, redundancy

Indicator = Score | Literal["corrected", "profile"]
Level = Literal["lowest", "own"]
LEVEL_BATCH = 64  # samples over which the level of clean data is taken


@dataclass(frozen=True)
class Rules:
    """How a diagnosis is made; `Dasp` says what each means."""

    score: Indicator
    dimension_filter: DimensionFilter
    threshold: Literal["above", "reached"]
    level: Level
    queue: int
    false_alarms: float

    @property
    def form(self) -> Score:
        """Return the form of redundancy that the score is made from."""
        return "correlation" if self.score in ("correlation", "corrected") else "cosine"

    @property
    def limit(self) -> float:
        """Return what χ² with two degrees of freedom exceeds in this share of clean batches."""
        return -2 * math.log(self.false_alarms)


class Diagnoser(nn.Module):
    """Diagnoses batch after batch. What it remembers are buffers, so resets and states cover it."""

    def __init__(self, modalities: Sequence[str], rules: Rules) -> None:
        super().__init__()
        self.rules = rules
        self.recent = nn.ModuleDict({name: _Queue(rules.queue) for name in modalities})
        self.clean = nn.ModuleDict({name: CleanProfile() for name in modalities})
        self.places = {name: place for place, name in enumerate(modalities)}
        self.register_buffer("levels", torch.full((len(modalities),), torch.inf))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    levels: Tensor  # the redundancy of each modality when clean: learnt, or the lowest so far
    fitted: Tensor

    @property
    def takes_source(self) -> bool:
        """Whether clean samples make a difference."""
        return self.rules.level == "own" or self.rules.score == "profile"

    @torch.no_grad()
    def fit(self, clean: Mapping[str, Fused]) -> None:
        """Learn what each modality alone looks like on clean samples."""
        for name, alone in clean.items():
            spread = float((alone.embedding - alone.embedding.mean(dim=0)).abs().max())
            if spread < 1e-6 * float(alone.embedding.abs().max()):
                raise InputError(f"all clean samples of '{name}' are alike: give real ones.")
            self._profile_of(name).fit(profile(alone))
        scores = [
            self._redundancy(
                {n: f.embedding[start : start + LEVEL_BATCH] for n, f in clean.items()}
            )
            for start in range(0, _count(clean), LEVEL_BATCH)
            if start == 0 or start + LEVEL_BATCH <= _count(clean)
        ]
        for name in clean:
            self.levels[self.places[name]] = sum(s[name] for s in scores) / len(scores)
        self.fitted.fill_(True)

    @torch.no_grad()
    def forward(
        self, alone: Mapping[str, Fused], delta: float, remember: bool, group: Group = ALONE
    ) -> Diagnosis:
        """Diagnose the modalities present; with `remember`, the batch counts for later ones.

        Where ranks share the stream, `alone` is of this rank's samples, the diagnosis of all.
        """
        if self.rules.score == "profile" and self.fitted:
            return self._by_profile(alone, remember, group)
        width = next(iter(alone.values())).embedding.shape[1]
        if self.rules.queue or group.gathers(width):
            whole = {name: group.gather(fused.embedding) for name, fused in alone.items()}
            scores = self._redundancy(
                {name: self._with_recent(name, rows, remember) for name, rows in whole.items()}
            )
        else:
            scores = self._redundancy_by_moments(alone, group)
        strict = self.rules.threshold == "above"
        if self.rules.level == "lowest":
            return diagnose(scores, delta, strict)
        return self._against_own_levels(scores, delta, strict, remember)

    def _by_profile(self, alone: Mapping[str, Fused], remember: bool, group: Group) -> Diagnosis:
        scores = {}
        for name, fused in alone.items():
            own = self._profile_of(name)
            rows = group.gather(profile(fused).to(own.mean))
            rows = self._with_recent(name, rows, remember, own)
            scores[name] = float(own.distance(rows))
        excess = {name: score - self.rules.limit for name, score in scores.items()}
        return Diagnosis(scores, excess, frozenset(n for n, over in excess.items() if over > 0))

    def _against_own_levels(
        self, scores: Mapping[str, float], delta: float, strict: bool, remember: bool
    ) -> Diagnosis:
        """Hold each score against its own level; while that is not learnt, also against the others.

        The lowest score so far is no level as long as the modality has never been clean.
        """
        levels = {name: float(self.levels[self.places[name]]) for name in scores}
        if not self.fitted:
            levels = {name: min(levels[name], score) for name, score in scores.items()}
            if remember:
                for name, level in levels.items():
                    self.levels[self.places[name]] = level
        over = {name: score - levels[name] for name, score in scores.items()}
        biased = {name for name, gap in over.items() if (gap > delta if strict else gap >= delta)}
        if not self.fitted:
            biased |= diagnose(scores, delta, strict).biased
        return Diagnosis(dict(scores), over, frozenset(biased))

    def _redundancy(self, embeddings: Mapping[str, Tensor]) -> dict[str, float]:
        found = redundancy(embeddings, self.rules.form, self.rules.dimension_filter)
        return self._corrected(found, {name: len(rows) for name, rows in embeddings.items()})

    def _redundancy_by_moments(self, alone: Mapping[str, Fused], group: Group) -> dict[str, float]:
        """Do as `_redundancy` does on the embeddings of all ranks, without moving them."""
        triangles = [packed(moments(fused.embedding)) for fused in alone.values()]
        group.add_up(triangles)
        parts = dict(zip(alone, map(unpacked, triangles), strict=True))
        found = redundancy_of_moments(parts, self.rules.form, self.rules.dimension_filter)
        return self._corrected(found, {name: round(float(m[0, 0])) for name, m in parts.items()})

    def _corrected(self, found: Mapping[str, Tensor], rows: Mapping[str, int]) -> dict[str, float]:
        scores = {name: float(value) for name, value in found.items()}
        if self.rules.score != "corrected":
            return scores
        return {name: without_noise_floor(r, rows[name]) for name, r in scores.items()}

    def _with_recent(
        self, name: str, rows: Tensor, remember: bool, clean: CleanProfile | None = None
    ) -> Tensor:
        """Return rows (B, K) behind the remembered ones, as many as the queue holds or more."""
        queue = self.recent[name]
        assert isinstance(queue, _Queue)
        if queue.size == 0:
            return rows
        recent = queue.before(rows)
        if clean is not None:
            recent = clean.since_change(recent, len(rows), self.rules.limit)
        if remember:
            queue.keep(recent)
        return recent

    def _profile_of(self, name: str) -> CleanProfile:
        own = self.clean[name]
        assert isinstance(own, CleanProfile)
        return own


def without_noise_floor(squared: float, rows: int) -> float:
    """Correct a mean squared correlation of so many rows for what chance adds to it.

    Independent dimensions have r² = 1/(B − 1) on average; r² − (1 − r²)/(B − 2) is 0 for them at
    any B, and may fall below. It says nothing, 0, of fewer than three rows.

    >>> abs(without_noise_floor(1 / 63, 64)) < 1e-9, without_noise_floor(1.0, 8)
    (True, 1.0)
    """
    return squared - (1 - squared) / (rows - 2) if rows > 2 else 0.0


class _Queue(nn.Module):
    """The last rows of a stream, oldest first, as one buffer."""

    rows: Tensor  # (n, K), n at most `size`

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("rows", torch.empty(0, 0))

    def before(self, rows: Tensor) -> Tensor:
        """Return rows (B, K) with the kept ones before them: the last max(size, B)."""
        if self.rows.shape[1] != rows.shape[1]:  # nothing yet, or of another kind
            return rows
        return torch.cat([self.rows.to(rows), rows])[-max(self.size, len(rows)) :]

    def keep(self, rows: Tensor) -> None:
        """Keep the last of these rows (n, K)."""
        self.rows = rows[-self.size :].detach().clone()


def _count(clean: Mapping[str, Fused]) -> int:
    return len(next(iter(clean.values())).embedding)
