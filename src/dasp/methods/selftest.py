"""Self-test: damage clean samples in generic ways, and see what the method would do about it.

The clean samples are halved: one half is fitted, and the other is tested, then vice versa. So the
method in use, which was fitted with all of them, is a little better than what is reported. Whether
treatment helps is told by the predictions for the same samples without damage, not by labels.

It cannot know people, places or mixes of classes that the clean samples do not have.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d

from dasp.core.types import Inputs
from dasp.methods.base import Method
from dasp.methods.diagnosis import FEWEST

KEPT = 128  # clean samples that are kept for it
ALL = "all at once"
DRAWS = 8  # batches per half and damage, each of half of its samples
COSTLY = 0.02  # share of predictions that a damage must change to count
MOST_CLEAN, MOST_MISTAKEN, MOST_MISSED = 0.1, 0.1, 0.2  # shares up to which it is trusted
MOST_HIDDEN = 1  # damages of all modalities that are missed, although each alone is named
MOST_BLIND = 0.5  # the share missed of one modality's raw inputs, or tokens
MOST_HARMED = 0.1  # share of predictions that treatment may change for the worse

LEGEND = """changes: predictions that damage changes; treated: those that then still differ;
in brackets: batches in which exactly what is damaged is flagged"""

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
    """One damage of one modality, or of all at once; shares are of samples or of batches."""

    modality: str  # or ALL
    space: str  # "inputs" or "tokens"
    damage: str
    changed: float  # predictions of the source model that differ from those without damage
    treated: float  # predictions of the method that differ from the same
    named: float  # batches in which exactly what is damaged was flagged
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
    """What the method would do under generic damage; print it for a report."""

    trials: tuple[Trial, ...] = ()
    clean: float = 0.0  # share of clean batches in which something was flagged
    samples: int = 0

    @property
    def warning(self) -> str | None:
        """Return why the method should not be trusted on this model, or None."""
        if not self.trials:
            return (
                "there are no clean samples to damage. Before fit() no probability is given, and "
                "whatever is flagged cannot be tested; a loaded state has what fit() learned, not "
                "its samples. Call fit() with 128 to 512 clean samples (32: few)."
            )
        alone = [trial for trial in self.trials if trial.modality != ALL]
        costly = [trial for trial in alone if trial.changed >= COSTLY]
        missed = [trial for trial in costly if trial.verdict == "missed"]
        mistaken = [trial for trial in self.trials if trial.verdict == "mistaken"]
        if self.clean > MOST_CLEAN:
            return f"{self.clean:.0%} of clean batches are flagged: give more clean samples."
        if mistaken:
            return f"another modality is blamed for {_listed(mistaken)}."
        harmed = [trial for trial in self.trials if trial.treated > trial.changed + MOST_HARMED]
        if harmed:
            return f"its treatment makes things worse under {_listed(harmed)}: use 'source'."
        if len(missed) > MOST_MISSED * len(costly):
            return f"it misses {len(missed)} of {len(costly)} damages: {_listed(missed)}."
        for kind in dict.fromkeys((trial.modality, trial.space) for trial in missed):
            own, all_of = (
                [trial for trial in some if (trial.modality, trial.space) == kind]
                for some in (missed, costly)
            )
            if len(own) >= 2 and len(own) > MOST_BLIND * len(all_of):
                return f"it misses {len(own)} of {len(all_of)} damages of {kind[0]} ({kind[1]})."
        unnamed = {(trial.space, trial.damage) for trial in alone if trial.verdict != "named"}
        together = [trial for trial in self.trials if trial.modality == ALL]
        named_alone = [t for t in together if (t.space, t.damage) not in unnamed]
        hidden = [trial for trial in named_alone if trial.verdict == "missed"]
        if len(hidden) > MOST_HIDDEN:
            return f"one damage hides another: it misses {_listed(hidden)}."
        if not costly:
            return "no damage changed a prediction: are these real inputs of this model?"
        return None

    @property
    def trusted(self) -> bool:
        """Return whether there is nothing to warn of."""
        return self.warning is None

    def __str__(self) -> str:
        title = f"Self-test with {self.samples} of the clean samples"
        title = f"{title}; {self.clean:.1%} of clean batches flagged"
        lines = [title, LEGEND] if self.trials else []
        for t in self.trials:
            what = f"{t.modality}, {t.damage} ({t.space})"
            cost = f"changes {t.changed:4.0%}, treated {t.treated:4.0%}"
            lines.append(f"  {what:36} {cost}  {t.verdict} ({t.named:.0%})")
        verdict = (
            "trusted for samples like those of fit(); new people or places may look like damage"
            if self.trusted
            else f"do not trust it: {self.warning}"
        )
        return "\n".join([*lines, f"On this model: {verdict}"])


def _listed(trials: Sequence[Trial]) -> str:
    named = [f"{t.modality} {t.damage} ({t.space})" for t in trials]
    more = f" and {len(named) - 4} more" if len(named) > 4 else ""
    return ", ".join(named[:4]) + more


@torch.no_grad()
def selftest(method: Method, clean: Sequence[Inputs], kind: str) -> SelfTest:
    """Test a method on clean batches of raw "inputs" or of "tokens"; leaves it fitted with half."""
    batch = {name: torch.cat([part[name] for part in clean]) for name in clean[0]} if clean else {}
    samples = len(next(iter(batch.values()))) if batch else 0
    if samples < 2 * FEWEST:
        return SelfTest()
    spaces = ("inputs", "tokens") if kind == "inputs" else ("tokens",)
    names = method.model.modalities
    targets = {name: (name,) for name in names} | ({ALL: names} if len(names) > 1 else {})
    kinds = [(target, space, word) for target in targets for space in spaces for word in DAMAGES]
    alarms: list[float] = []
    found: list[list[_Result]] = [[] for _ in kinds]
    for half in range(2):
        own, other = ({n: v[start::2] for n, v in batch.items()} for start in (half, 1 - half))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"fit\(\) got")  # half of them may be few
            method.fit([other if kind == "tokens" else method.encode(other)])
        look = _Half(method, own, kind)
        alarms += [bool(result.flags) for result in look.results({}, kind)]
        for place, (target, space, word) in enumerate(kinds):
            draws = torch.Generator().manual_seed(2 * place + half)
            values = own if space == "inputs" else look.tokens
            damaged = {name: values[name] for name in targets[target]}
            for name, clean_values in damaged.items():
                if clean_values.is_floating_point():
                    damaged[name] = DAMAGES[word](clean_values, draws)
            found[place] += look.results(damaged, space)
    trials = [
        Trial(
            *what,
            changed=fmean(result.changed for result in results),
            treated=fmean(result.treated for result in results),
            named=fmean(result.flags == set(targets[what[0]]) for result in results),
            mistaken=fmean(bool(result.flags - set(targets[what[0]])) for result in results),
        )
        for what, results in zip(kinds, found, strict=True)
    ]
    return SelfTest(tuple(trials), fmean(alarms), samples)


class _Result(NamedTuple):
    """What one batch came to; shares are of predictions that differ from those without damage."""

    flags: frozenset[str]
    changed: float  # of the source model
    treated: float  # of the method


class _Half:
    """Half of the clean samples: what the source model makes of them, and batches drawn of them."""

    def __init__(self, method: Method, batch: Inputs, kind: str) -> None:
        self._method, self._inputs = method, batch if kind == "inputs" else None
        self.tokens = dict(batch) if self._inputs is None else method.encode(batch)
        self._clean = method.fuse(self.tokens).logits.argmax(dim=1)
        count, draws = len(self._clean), torch.Generator().manual_seed(0)
        size = max(count // 2, 1)
        mixed = [torch.randperm(count, generator=draws)[:size] for _ in range(DRAWS // 2)]
        order = self._clean.cpu().argsort(stable=True)  # batches of few classes
        starts = torch.linspace(0, count - size, DRAWS - len(mixed)).long()
        self._rows = [*mixed, *(order[start : start + size] for start in starts.tolist())]

    def results(self, damaged: Inputs, space: str) -> list[_Result]:
        """Return what each batch comes to, with some modalities replaced in "inputs" or "tokens".

        Damage that only tokens have cannot be encoded again.
        """
        inputs = None
        if space == "inputs" and self._inputs is not None:
            inputs = {**self._inputs, **damaged}
            damaged = self._method.encode(damaged) if damaged else {}
        tokens = {**self.tokens, **damaged}
        source, results = self._method.fuse(tokens).logits.argmax(dim=1), []
        for rows in self._rows:
            place = rows.to(source.device)
            self._method.inputs = inputs and {name: own[place] for name, own in inputs.items()}
            answer = self._method.predict({name: own[place] for name, own in tokens.items()})
            self._method.inputs = None
            flags = answer.diagnosis.biased if answer.diagnosis else frozenset()
            differ = [
                float((predicted != self._clean[place]).float().mean())
                for predicted in (source[place], answer.logits.argmax(dim=1))
            ]
            results.append(_Result(flags, *differ))
        return results
