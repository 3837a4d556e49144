"""Run one job: a method through a protocol on one model, counting batch by batch."""

import platform
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dasp.bench.features import Features, FeatureSpec, specs_of
from dasp.bench.passes import timed_encoders
from dasp.bench.plan import Job
from dasp.bench.references import find_method
from dasp.bench.results import BatchCounts, Counts, DomainCount, Result
from dasp.core.clock import Clock, Seconds, drawn_ahead, timed
from dasp.core.seeding import numpy_generator
from dasp.core.types import Batch, Inputs, Outcome
from dasp.core.version import __version__
from dasp.methods import Adaptation, adapt
from dasp.streams.protocols import CLEAN, Visit, sample_order

Tick = Callable[[int, Seconds], None]
"""Called with the number of batches done since the last call, and the time spent per stage."""


def needed_features(job: Job, modalities: Sequence[str]) -> list[FeatureSpec]:
    """Return the arrays that a job reads, in an order that is the same on every machine."""
    conditions = {condition for visit in job.visits() for condition in visit.conditions}
    conditions |= {CLEAN} if job.run.clean_after else set()
    encoded = not job.run.cost and not find_method(job.run.method).tunes_encoder
    specs = specs_of(conditions, modalities, encoded, job.run.tokens)
    return sorted(specs, key=lambda spec: (spec.modality, str(spec.domain), spec.encoded))


def run_job(job: Job, features: Features, tick: Tick | None = None) -> Result:
    """Run a job to its end and return the result."""
    tta = start(job, features)
    try:
        return _run(job, features, tta, tick)
    finally:
        tta.reset()  # the model is shared with the next job


def _run(job: Job, features: Features, tta: Adaptation, tick: Tick | None) -> Result:
    counter, clock = _Counter(len(features.labels)), Clock()
    clean = _CleanAfter(features, job) if job.run.clean_after else None
    if clean is not None:
        clean.evaluate(tta, clock)
    stream = _stream(features, job, not tta.method.tunes_encoder, torch.get_num_threads())
    with drawn_ahead(stream, features.ahead) as drawn:
        for visit, group in groupby(timed(drawn, clock), key=lambda item: item[0]):
            if visit.reset:
                tta.reset()
            counter.enter(visit)
            for _, numbers, batch in group:
                with clock.on("adapt"), timed_encoders(features.model, clock):
                    outcome = _call(tta, batch)
                counter.add(numbers, batch, outcome)
                if tick is not None:
                    tick(1, clock.news())
            counter.leave()
            if clean is not None:
                clean.evaluate(tta, clock)
    skipped = getattr(features.dataset, "skipped", ())
    counts = counter.counts(skipped, None if clean is None else clean.counts)
    return Result(job.run, counts, _measured(clock.seconds, counts.seen, features))


def start(job: Job, features: Features) -> Adaptation:
    """Adapt the model of a job; give the method the stream's length and source data if needed."""
    options = dict(job.run.options)
    if "stream_length" in options and options["stream_length"] is None:
        options["stream_length"] = stream_length(job)
    tta = adapt(features.model, find_method(job.run.method), seed=job.run.seed, **options)
    if job.run.source:
        tta.fit([_source_inputs(features, job.run.source["samples"])])
    return tta


def stream_length(job: Job) -> int:
    """Return the number of batches until the next reset, times the steps per batch."""
    batches = longest = 0
    for visit in job.visits():
        here = visit.batches(job.run.data["samples"], job.run.batch_size)
        batches = here + (0 if visit.reset else batches)
        longest = max(longest, batches)
    steps: int = job.run.options["steps"]
    return longest * steps


def _source_inputs(features: Features, samples: int) -> Inputs:
    """Return clean training samples as one batch, kept in the store."""
    dataset = features.dataset.source(samples)
    source = Features(dataset, features.model, features.store, features.model_digest)
    count = len(source.labels)
    ((_, inputs),) = source.batches([CLEAN], encoded=False, order=np.arange(count), size=count)
    return inputs


def _stream(
    features: Features, job: Job, encoded: bool, threads: int
) -> Iterator[tuple[Visit, NDArray[np.int64], Batch]]:
    """Yield every batch of a stream with its visit and the numbers of its samples."""
    torch.set_num_threads(threads)  # a new thread has a number of its own
    for visit in job.visits():
        for numbers, batch in batches_of(features, visit, job, encoded):
            yield visit, numbers, batch


def batches_of(
    features: Features, visit: Visit, job: Job, encoded: bool
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Yield a visit's batches and the numbers of their samples, in the order of (seed, visit)."""
    run = job.run
    rng = numpy_generator(run.seed, "order", *visit.purpose)
    labels = features.labels.repeat(len(visit.conditions))
    order = sample_order(visit.order, labels.numpy(), run.batch_size, rng)
    stream = features.batches(visit.conditions, encoded, order, run.batch_size, run.tokens)
    for numbers, inputs in stream:
        yield numbers, Batch(inputs, labels[numbers], domain=visit.name)


class _Counter:
    """Counts hits, updates and diagnoses of `samples` samples under each condition."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.domains: list[DomainCount] = []
        self.outcomes: list[Outcome] = []
        self.right: list[int] = []
        self.seen: list[int] = []

    def enter(self, visit: Visit) -> None:
        """Begin a visit."""
        self._names = [condition.name for condition in visit.conditions]
        self._first = len(self.seen)
        self._hits = np.zeros((len(self._names), self.samples), dtype=bool)
        self._seen = np.zeros(len(self._names), dtype=int)

    def add(self, numbers: NDArray[np.int64], batch: Batch, outcome: Outcome) -> None:
        """Count one batch of these samples, numbered as in `Features.batches`."""
        hits = outcome.logits.argmax(dim=1).cpu() == batch.labels
        self._hits.reshape(-1)[numbers] = hits.numpy()
        self._seen += np.bincount(numbers // self.samples, minlength=len(self._seen))
        self.right.append(int(hits.sum()))
        self.seen.append(len(batch.labels))
        self.outcomes.append(outcome)

    def leave(self) -> None:
        """End a visit."""
        # A batch of several domains belongs to none of them.
        batches = len(self.seen) - self._first if len(self._names) == 1 else 0
        for name, hits, seen in zip(self._names, self._hits, self._seen, strict=True):
            packed = np.packbits(hits).tobytes().hex()
            right = int(hits.sum())
            count = DomainCount(name, right, int(seen), self._first, batches, packed)
            self.domains.append(count)

    def counts(
        self, skipped: tuple[tuple[str, str], ...], clean_after: dict[str, Any] | None
    ) -> Counts:
        """Return all that was counted."""
        right, seen = sum(self.right), sum(self.seen)
        found = [o.diagnosis for o in self.outcomes if o.diagnosis is not None]
        diagnosed = len(found) == len(self.outcomes)
        names = dict.fromkeys(name for d in found for name in d.scores)
        rollbacks = [(i, o.rollback) for i, o in enumerate(self.outcomes) if o.rollback is not None]
        return Counts(
            accuracy=round(100 * right / seen, 4),
            right=right,
            seen=seen,
            domains=self.domains,
            batches=BatchCounts(
                right=self.right,
                seen=self.seen,
                updated=[outcome.updated for outcome in self.outcomes],
                rejected=[outcome.rejected for outcome in self.outcomes],
                scores={n: [d.scores.get(n) for d in found] for n in names} if diagnosed else None,
                biased=[sorted(d.biased) for d in found] if diagnosed else None,
            ),
            updates=sum(outcome.updated for outcome in self.outcomes),
            rejections=sum(outcome.rejected is not None for outcome in self.outcomes),
            skipped=[{"id": name, "reason": reason} for name, reason in skipped],
            rollbacks=[{"batch": batch, "reason": reason} for batch, reason in rollbacks],
            clean_after=clean_after,
        )


class _CleanAfter:
    """Counts the clean samples that are right, jointly and by each modality alone."""

    def __init__(self, features: Features, job: Job) -> None:
        self.features, self.run = features, job.run
        self.rows = np.arange(min(job.run.clean_after, len(features.labels)))
        self.counts: dict[str, Any] = {"seen": len(self.rows), "joint": []}

    def evaluate(self, tta: Adaptation, clock: Clock) -> None:
        """Evaluate the present state without changing it."""
        encoded = not tta.method.tunes_encoder
        right: Counter[str] = Counter()
        with tta.frozen(), clock.on("evaluate"):
            for rows, inputs in self.features.batches(
                [CLEAN], encoded, self.rows, self.run.batch_size, self.run.tokens
            ):
                labels = self.features.labels[rows]
                alone = tta.alone_on_tokens(inputs) if encoded else tta.alone(inputs)
                joint = _call(tta, Batch(inputs, labels)).logits
                for name, logits in {"joint": joint, **alone}.items():
                    right[name] += int((logits.argmax(dim=1).cpu() == labels).sum())
        for name, value in right.items():
            self.counts.setdefault(name, []).append(value)


def _call(tta: Adaptation, batch: Batch) -> Outcome:
    return tta(batch.inputs) if tta.method.tunes_encoder else tta.on_tokens(batch.inputs)


def _measured(seconds: Seconds, samples: int, features: Features) -> dict[str, Any]:
    adapting = seconds["adapt"] + seconds.get("encode", 0.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "peak_mib": round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1),
        "samples_per_second": round(samples / max(adapting, 1e-9), 1),
        **provenance(features.device.type),
    }


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Return when, where and with which versions a result was made."""
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": platform.machine(),
            "threads": torch.get_num_threads(),
            "device": device,
        },
        "versions": {
            "dasp": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
