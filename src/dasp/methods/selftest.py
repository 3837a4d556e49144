"""Self-test: damage clean samples in generic ways, and see whether the diagnosis would notice.

The clean samples are halved: one half is fitted, and the other is tested, then vice versa. So the
diagnosis in use, which was fitted with all of them, is a little better than what is reported.

It cannot know people, places or mixes of classes that the clean samples do not have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d

from dasp.core.types import Fused, Inputs, Tokens
from dasp.methods.base import Method
from dasp.methods.diagnosis import FEWEST, Diagnoser, summaries
from dasp.methods.passes import SourcePasses

KEPT = 128  # clean samples that are kept for it
DRAWS = 8  # batches per half and damage, each of half of its samples
COSTLY = 0.02  # share of predictions that a damage must change to count
MOST_CLEAN, MOST_MISTAKEN, MOST_MISSED = 0.1, 0.1, 0.2  # shares up to which it is trusted

Damage = Callable[[Tensor, torch.Generator], Tensor]


def noise(values: Tensor, draws: torch.Generator) -> Tensor:
    """Add noise as strong as the signal: (B, …) → (B, …)."""
    return values + values.std() * torch.randn(values.shape, generator=draws).to(values)


def offset(values: Tensor, draws: torch.Generator) -> Tensor:  # noqa: ARG001
    """Add a constant of the size of the signal."""
    return values + values.std()


def gain(values: Tensor, draws: torch.Generator) -> Tensor:  # noqa: ARG001
    """Weaken the signal to a third."""
    return values / 3


def dropout(values: Tensor, draws: torch.Generator) -> Tensor:
    """Lose half of the values."""
    return values * (torch.rand(values.shape, generator=draws) > 0.5).to(values)


def blur(values: Tensor, draws: torch.Generator) -> Tensor:  # noqa: ARG001
    """Average over seven neighbours along the longest dimension of a sample."""
    place = 1 + max(range(values.ndim - 1), key=lambda d: values.shape[1 + d])
    moved = values.movedim(place, -1)
    flat = moved.reshape(-1, 1, moved.shape[-1])
    smooth = avg_pool1d(flat, 7, stride=1, padding=3, count_include_pad=False)
    return smooth.reshape(moved.shape).movedim(-1, place)


DAMAGES: Mapping[str, Damage] = {d.__name__: d for d in (noise, offset, gain, dropout, blur)}


@dataclass(frozen=True)
class Trial:
    """One damage of one modality; shares are of samples or of batches."""

    modality: str
    space: str  # "inputs" or "tokens"
    damage: str
    changed: float  # predictions that differ from those of the clean samples
    named: float  # batches in which exactly this modality was flagged
    mistaken: float  # batches in which another modality was flagged

    @property
    def verdict(self) -> str:
        """Return "harmless", "mistaken", "named" or "missed"."""
        if self.mistaken > MOST_MISTAKEN:
            return "mistaken"
        if self.changed < COSTLY:
            return "harmless"
        return "named" if self.named > 0.5 else "missed"


@dataclass(frozen=True)
class SelfTest:
    """What the diagnosis would do under generic damage; print it for a report."""

    trials: tuple[Trial, ...] = ()
    clean: float = 0.0  # share of clean batches in which something was flagged
    samples: int = 0

    @property
    def warning(self) -> str | None:
        """Return why the diagnosis should not be trusted on this model, or None."""
        if not self.trials:
            return (
                "there are no clean samples to compare with: no probability is given, and whatever "
                "is flagged cannot be tested. Call fit() with 128 to 512 clean samples (32: few)."
            )
        costly = [trial for trial in self.trials if trial.changed >= COSTLY]
        missed = [trial for trial in costly if trial.verdict == "missed"]
        mistaken = [trial for trial in self.trials if trial.verdict == "mistaken"]
        if self.clean > MOST_CLEAN:
            return f"{self.clean:.0%} of clean batches are flagged: give more clean samples."
        if mistaken:
            return f"another modality is blamed for {_listed(mistaken)}."
        if len(missed) > MOST_MISSED * len(costly):
            return f"it misses {len(missed)} of {len(costly)} damages: {_listed(missed)}."
        if not costly:
            return "no damage changed a prediction: are these real inputs of this model?"
        return None

    @property
    def trusted(self) -> bool:
        """Return whether there is nothing to warn of."""
        return self.warning is None

    def __str__(self) -> str:
        title = f"Self-test with {self.samples} of the clean samples"
        lines = [f"{title}; {self.clean:.1%} of clean batches flagged"] if self.trials else []
        for t in self.trials:
            what = f"{t.modality}, {t.damage} ({t.space})"
            lines.append(f"  {what:36} changes {t.changed:4.0%}  {t.verdict} ({t.named:.0%})")
        verdict = (
            "trusted for samples like those of fit(); new people or places may look like damage"
            if self.trusted
            else f"do not trust it: {self.warning}"
        )
        return "\n".join([*lines, f"The diagnosis on this model: {verdict}"])


def _listed(trials: Sequence[Trial]) -> str:
    named = [f"{t.modality} {t.damage} ({t.space})" for t in trials]
    more = f" and {len(named) - 4} more" if len(named) > 4 else ""
    return ", ".join(named[:4]) + more


@torch.no_grad()
def selftest(method: Method, own: Diagnoser, clean: Sequence[Inputs], kind: str) -> SelfTest:
    """Test the diagnosis of a method on clean batches of raw "inputs" or of "tokens"."""
    batch = {name: torch.cat([part[name] for part in clean]) for name in clean[0]} if clean else {}
    samples = len(next(iter(batch.values()))) if batch else 0
    if samples < 2 * FEWEST:
        return SelfTest()
    halves = [slice(start, None, 2) for start in range(2)]
    tokens = batch if kind == "tokens" else method.encode(batch)
    looks = [_Half(method, {n: v[half] for n, v in tokens.items()}) for half in halves]
    fitted = []
    for look in reversed(looks):
        fitted.append(Diagnoser(own.names, 0, own.false_alarms))
        fitted[-1].fit(summaries(look.tokens), look.alone)
    pairs = list(zip(looks, fitted, strict=True))
    alarms = [bool(flags) for look, other in pairs for flags in look.flags(other, {})]
    trials: list[Trial] = []
    for name in own.names:
        for space in ("inputs", "tokens") if kind == "inputs" else ("tokens",):
            for word, damage in DAMAGES.items():
                values = batch[name] if space == "inputs" else tokens[name]
                draws = torch.Generator().manual_seed(len(trials))
                damaged = damage(values, draws) if values.is_floating_point() else values
                if space == "inputs":
                    damaged = method.encode({name: damaged})[name]
                parts = [{name: damaged[half]} for half in halves]
                found = [
                    f for (look, d), p in zip(pairs, parts, strict=True) for f in look.flags(d, p)
                ]
                changed = [look.changed(p) for look, p in zip(looks, parts, strict=True)]
                named = sum(flags == {name} for flags in found) / len(found)
                mistaken = sum(bool(flags - {name}) for flags in found) / len(found)
                share = sum(changed) / len(changed)
                trials.append(Trial(name, space, word, share, named, mistaken))
    return SelfTest(tuple(trials), sum(alarms) / len(alarms), samples)


class _Half:
    """Half of the clean samples: what the source model makes of them, and batches drawn of them."""

    def __init__(self, method: Method, tokens: Tokens) -> None:
        self._method, self.tokens = method, dict(tokens)
        passes = SourcePasses(method, tokens)
        self.alone, self._joint = passes.alone, passes.joint().argmax(dim=1)
        count, draws = len(self._joint), torch.Generator().manual_seed(0)
        size = max(count // 2, 1)
        mixed = [torch.randperm(count, generator=draws)[:size] for _ in range(DRAWS // 2)]
        order = self._joint.cpu().argsort(stable=True)  # batches of few classes
        starts = torch.linspace(0, count - size, DRAWS - len(mixed)).long()
        self._rows = [*mixed, *(order[start : start + size] for start in starts.tolist())]

    def flags(self, diagnoser: Diagnoser, damaged: Tokens) -> list[frozenset[str]]:
        """Return what is flagged in each batch, with some modalities replaced."""
        tokens = {**self.tokens, **damaged}
        alone = {**self.alone, **(SourcePasses(self._method, damaged).alone if damaged else {})}
        found = []
        for rows in self._rows:
            place = rows.to(self._joint.device)
            views = {n: Fused(f.embedding[place], f.logits[place]) for n, f in alone.items()}
            own = {name: value[place] for name, value in tokens.items()}
            found.append(diagnoser(own, views, remember=False).biased)
        return found

    def changed(self, damaged: Tokens) -> float:
        """Return the share of samples whose joint prediction differs from the clean one."""
        joint = SourcePasses(self._method, {**self.tokens, **damaged}).joint().argmax(dim=1)
        return float((joint != self._joint).float().mean())
