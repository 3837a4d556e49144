"""One result file as a typed run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from dasp.core.errors import InputError
from dasp.report.fields import reading
from dasp.report.hits import unpack_hits

FORMATS = ("dasp-result-1", "dasp-result-2")
CLEAN, ABSENT = "clean", "missing"
ROUNDING = 0.011  # of an accuracy written with two decimals

Result = Mapping[str, Any]
"""What one result file holds, as parsed."""


@dataclass(frozen=True)
class DomainCount:
    """What was counted in one domain of a stream."""

    name: str  # as `dasp.streams.visits` writes it: "clean", or all that is wrong
    right: int
    seen: int
    first_batch: int
    batches: int  # 0 where its samples lie among those of other domains
    hits: str | None = None  # a bit a sample, packed; older files have none

    @property
    def damaged(self) -> str | None:
        """Return the damaged modality, or "audio+video"; None where all that came was clean."""
        found = {part[0] for part in self._parts if part[1] != ABSENT}
        return "+".join(sorted(found)) or None

    @property
    def absent(self) -> set[str]:
        """Return the modalities that did not come."""
        return {part[0] for part in self._parts if part[1] == ABSENT}

    @property
    def short(self) -> str:
        """Return the name of the corruption, fit for an axis."""
        words = [part[1] if len(part) == 3 else " ".join(part) for part in self._parts]
        return " + ".join(words).replace("_", " ") or self.name

    @property
    def _parts(self) -> list[list[str]]:
        """Return what is wrong, each as [modality, corruption, severity] or [modality, silence]."""
        return [] if self.name == CLEAN else [part.split("/") for part in self.name.split("+")]


@dataclass(frozen=True)
class Batches:
    """What happened batch by batch; all lists have the length of the stream."""

    right: Sequence[int]
    seen: Sequence[int]
    updated: Sequence[bool]
    rejected: Sequence[str | None]
    scores: Mapping[str, Sequence[float | None]] | None
    biased: Sequence[Sequence[str] | None] | None


@dataclass(frozen=True)
class CleanAfter:
    """Samples of clean data that were right: before the first domain, then after each."""

    seen: int
    right: Mapping[str, Sequence[int]]  # "joint", and each modality alone

    def lost(self, view: str) -> list[float]:
        """Return the accuracy at the start minus that at each place, in points."""
        counts = self.right[view]
        return [100 * (counts[0] - count) / self.seen for count in counts]


Part = TypeVar("Part", DomainCount, Batches)


@dataclass(frozen=True)
class Run:
    """One method on one stream with one model and one seed."""

    key: str
    label: str
    method: str
    options: Mapping[str, Any]
    protocol: str
    severity: int | None
    seed: int
    model: Mapping[str, Any]
    data: Mapping[str, Any]
    batch_size: int
    corruptions: Sequence[str]  # the only ones kept of the protocol; none: all
    code: str  # hash of the method's file, empty if unknown
    right: int
    seen: int
    domains: Sequence[DomainCount]
    batches: Batches
    updates: int
    rejections: int
    skipped: Sequence[Any]
    measured: Mapping[str, Any]
    clean_after: CleanAfter | None = None  # None where it was not judged
    fitted: int = 0  # clean training samples that it learnt from first
    rollbacks: Sequence[tuple[int, str]] = ()  # after which batches weights went back, and why
    tokens: str = ""  # how they were kept, where that is not float32

    @property
    def accuracy(self) -> float:
        """Return the per cent of all samples that were right."""
        return 100 * self.right / self.seen

    @property
    def variant(self) -> Mapping[str, Any]:
        """Return what replicates must share: the options, the tokens, the code of the method."""
        kept = {"tokens": self.tokens} if self.tokens else {}
        return {**self.options, **kept, **({"code": self.code[:8]} if self.code else {})}

    @property
    def replicate(self) -> tuple[str, str, int]:
        """Return what tells this run from the others of its kind: the model and the seed."""
        return str(self.model["name"]), str(self.model.get("digest", "")), self.seed

    @property
    def replicate_name(self) -> str:
        """Return the replicate for a reader."""
        return f"{self.model['name']}, seed {self.seed}"


def run_of(result: Result) -> Run:
    """Return the run of one parsed result file, or say what is wrong with it."""
    if not isinstance(result, Mapping) or result.get("format") not in FORMATS:
        raise InputError(f"it is not a result file of format {' or '.join(FORMATS)}.")
    with reading("run this cell again"):
        cell, counts = result["cell"], result["result"]
        run = Run(
            key=str(result["key"]),
            label=str(cell["label"]),
            method=str(cell["method"]),
            options=dict(cell["options"]),
            protocol=str(cell["protocol"]),
            severity=cell["severity"],
            seed=int(cell["seed"]),
            model={"name": cell["model"]["name"], **cell["model"]},
            data=dict(cell["data"]),
            batch_size=int(cell["batch_size"]),
            corruptions=tuple(cell.get("corruptions", ())),
            code=str(cell.get("code", "")),
            right=int(counts["right"]),
            seen=int(counts["seen"]),
            domains=tuple(_pick(DomainCount, domain) for domain in counts["domains"]),
            batches=_pick(Batches, counts["batches"]),
            updates=int(counts["updates"]),
            rejections=int(counts["rejections"]),
            skipped=tuple(counts["skipped"]),
            measured=dict(result["measured"]),
            clean_after=_clean_after(counts.get("clean_after")),
            tokens=str(cell.get("tokens", "")),
            fitted=int(cell.get("source", {}).get("samples", 0)),
            rollbacks=tuple(
                (int(entry["batch"]), str(entry["reason"])) for entry in counts.get("rollbacks", ())
            ),
        )
        _check(run, float(counts["accuracy"]))
    return run


def _pick(kind: type[Part], values: Mapping[str, Any]) -> Part:
    """Make a `kind` from its own fields; newer files may hold more."""
    needed = (f.name for f in fields(kind) if f.name in values or f.default is MISSING)
    return kind(**{name: values[name] for name in needed})


def _clean_after(values: Mapping[str, Any] | None) -> CleanAfter | None:
    if values is None:
        return None
    right = {name: tuple(counts) for name, counts in values.items() if name != "seen"}
    return CleanAfter(int(values["seen"]), right)


def _check(run: Run, accuracy: float) -> None:
    """Refuse counts that contradict each other."""
    batches = run.batches
    lists: list[Sequence[Any]] = [batches.seen, batches.updated, batches.rejected]
    lists += list((batches.scores or {}).values())
    lists += [] if batches.biased is None else [batches.biased]
    length = len(batches.right)
    ends = [domain.first_batch + domain.batches for domain in run.domains]
    sound = (
        0 <= run.right <= run.seen
        and run.seen > 0
        and math.isclose(accuracy, run.accuracy, abs_tol=ROUNDING)
        and sum(batches.right) == sum(domain.right for domain in run.domains) == run.right
        and sum(batches.seen) == sum(domain.seen for domain in run.domains) == run.seen
        and all(len(entries) == length for entries in lists)
        and all(end <= length for end in ends)
        and all(0 <= batch < length for batch, _ in run.rollbacks)
        and (
            run.clean_after is None
            or _sound(run.clean_after, len({domain.first_batch for domain in run.domains}))
        )
    )
    if not sound:
        raise InputError("its counts contradict each other; run this cell again.")
    for domain in run.domains:
        if domain.hits is not None:
            unpack_hits(domain.hits, domain.seen, domain.right)


def _sound(clean: CleanAfter, stops: int) -> bool:
    return all(
        len(counts) == stops + 1 and all(0 <= count <= clean.seen for count in counts)
        for counts in clean.right.values()
    )
