"""Run one job: a method through a protocol on one model, counting batch by batch."""

import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dasp.bench.code import code_of
from dasp.bench.features import FLOAT32, Features, FeatureSpec, drawn_ahead
from dasp.bench.plan import Job
from dasp.bench.references import find_method
from dasp.bench.results import BatchCounts, Counts, DomainCount, Result
from dasp.core.errors import ContractError
from dasp.core.seeding import numpy_generator
from dasp.core.types import Inputs, Outcome
from dasp.core.version import __version__
from dasp.methods import Adaptation, adapt
from dasp.streams.protocols import CLEAN, Visit, sample_order

Answer = tuple[NDArray[np.int64], NDArray[np.bool_], Outcome]
"""The numbers of a batch's samples (see `Features.batches`), which were right, and the outcome."""


def needed_features(job: Job, model: nn.Module) -> list[FeatureSpec]:
    """Return the arrays that a job reads, sorted; of a constant modality the raw one's shape."""
    run = job.run
    conditions = {condition for visit in job.visits() for condition in visit.conditions}
    conditions |= {CLEAN} if run.clean_after else set()
    encoded = not run.cost and not find_method(run.method).reads_inputs(model, **run.options)
    specs = {
        FeatureSpec(name, condition.domain(name), True, run.tokens)
        if encoded and name not in condition.constant
        else FeatureSpec(name, condition.domain(name), False, FLOAT32)
        for condition in conditions
        for name in model.modalities  # type: ignore[union-attr]
        if name not in condition.missing
    }
    return sorted(specs, key=lambda spec: (spec.modality, str(spec.domain), spec.encoded))


def fill_store(job: Job, features: Features) -> None:
    """Compute the arrays that a job reads; jobs side by side begin with different ones."""
    specs = needed_features(job, features.model)
    first = int(job.run.key, 16) % len(specs)
    for spec in (*specs[first:], *specs[:first]):
        features.get(spec)


def run_job(job: Job, features: Features) -> Result:
    """Run a job to its end and return the result."""
    try:
        return _run_job(job, features)
    except SystemExit as error:  # it would end the whole run, as if all were done
        raise ContractError(
            f"{job.name} failed: its method or model calls sys.exit({error.code!r}); raise an "
            "error instead."
        ) from error


def _run_job(job: Job, features: Features) -> Result:
    tta, adapting = start(job, features), 0.0
    stops: list[tuple[Visit, list[Answer]]] = []
    clean: list[Counter[str]] = []
    try:
        if job.run.clean_after:
            clean.append(_clean_right(tta, job, features))
        stream = _stream(features, job, not tta.method.takes_inputs, torch.get_num_threads())
        with drawn_ahead(stream, features.ahead) as drawn:
            for visit, group in groupby(drawn, key=lambda item: item[0]):
                if visit.reset:
                    tta.reset()
                stops.append((visit, []))
                for _, numbers, inputs in group:
                    began = time.perf_counter()
                    outcome = _call(tta, inputs)
                    adapting += time.perf_counter() - began
                    hits = _hits(outcome.logits, features, numbers)
                    stops[-1][1].append((numbers, hits, outcome))
                if job.run.clean_after:
                    clean.append(_clean_right(tta, job, features))
    finally:
        tta.reset()  # the model is shared with the next job
    counts = count(stops, len(features.labels))
    skipped = getattr(features.dataset, "skipped", ())
    counts.skipped.extend({"id": name, "reason": reason} for name, reason in skipped)
    if clean:
        seen = min(job.run.clean_after, len(features.labels))
        right = {name: [after[name] for after in clean] for name in clean[0]}
        counts = replace(counts, clean_after={"seen": seen, **right})
    measured = {
        "seconds": {"adapt": round(adapting, 3)},
        "peak_mib": round(peak_mib(), 1),
        "samples_per_second": round(counts.seen / max(adapting, 1e-9), 1),
    }
    return Result(job.run, counts, measured | provenance(job.run.method, features.device.type))


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
    return longest * int(job.run.options["steps"])


def _source_inputs(features: Features, samples: int) -> Inputs:
    """Return clean training samples as one batch, kept in the store."""
    dataset = features.dataset.source(samples)
    source = Features(dataset, features.model, features.store, features.model_digest)
    everything = np.arange(len(source.labels))
    ((_, inputs),) = source.batches([CLEAN], False, everything, len(everything))
    return inputs


def _stream(
    features: Features, job: Job, encoded: bool, threads: int
) -> Generator[tuple[Visit, NDArray[np.int64], Inputs], None, None]:
    """Yield every batch of a stream with its visit and the numbers of its samples."""
    torch.set_num_threads(threads)  # a new thread has a number of its own
    for visit in job.visits():
        for numbers, inputs in batches_of(features, visit, job, encoded):
            yield visit, numbers, inputs


def batches_of(
    features: Features, visit: Visit, job: Job, encoded: bool
) -> Iterator[tuple[NDArray[np.int64], Inputs]]:
    """Yield a visit's batches and the numbers of their samples, in the order of (seed, visit)."""
    run = job.run
    rng = numpy_generator(run.seed, "order", *visit.purpose)
    samples = len(features.labels)
    numbers = visit.numbers(samples, run.seed)
    labels = features.labels.numpy()[numbers % samples]
    order = numbers[sample_order(visit.order, labels, run.batch_size, rng)]
    return features.batches(visit.conditions, encoded, order, run.batch_size, run.tokens)


def _hits(logits: Tensor, features: Features, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    labels = features.labels[numbers % len(features.labels)]
    return (logits.argmax(dim=1).cpu() == labels).numpy()


def _call(tta: Adaptation, inputs: Inputs) -> Outcome:
    return tta(inputs) if tta.method.takes_inputs else tta.on_tokens(inputs)


def _clean_right(tta: Adaptation, job: Job, features: Features) -> Counter[str]:
    """Count the clean samples that the present state gets right, jointly and by each modality."""
    run, encoded = job.run, not tta.method.takes_inputs
    rows = np.arange(min(run.clean_after, len(features.labels)))
    right: Counter[str] = Counter()
    with tta.frozen():
        for numbers, inputs in features.batches([CLEAN], encoded, rows, run.batch_size, run.tokens):
            alone = tta.alone_on_tokens(inputs) if encoded else tta.alone(inputs)
            for name, logits in {"joint": _call(tta, inputs).logits, **alone}.items():
                right[name] += int(_hits(logits, features, numbers).sum())
    return right


def count(stops: Sequence[tuple[Visit, Sequence[Answer]]], samples: int) -> Counts:
    """Count the answers of each visit of a data set with so many samples."""
    domains: list[DomainCount] = []
    answers: list[Answer] = []
    for visit, own in stops:
        numbers = np.concatenate([numbers for numbers, _, _ in own])
        right = np.zeros((len(visit.conditions), samples), dtype=bool)
        right.reshape(-1)[numbers] = np.concatenate([hits for _, hits, _ in own])
        seen = np.bincount(numbers // samples, minlength=len(right)).tolist()
        # A batch of several domains belongs to none of them.
        place = len(answers), len(own) if len(right) == 1 else 0
        for condition, hits, shown in zip(visit.conditions, right, seen, strict=True):
            packed = np.packbits(hits).tobytes().hex()
            domains.append(DomainCount(condition.name, int(hits.sum()), shown, *place, packed))
        answers += own
    batches = _batch_counts(answers)
    backs = {number: answer[2].rollback for number, answer in enumerate(answers)}
    return Counts(
        accuracy=round(100 * sum(batches.right) / sum(batches.seen), 4),
        right=sum(batches.right),
        seen=sum(batches.seen),
        domains=domains,
        batches=batches,
        updates=sum(batches.updated),
        rejections=sum(reason is not None for reason in batches.rejected),
        rollbacks=[{"batch": n, "reason": why} for n, why in backs.items() if why is not None],
    )


def _batch_counts(answers: Sequence[Answer]) -> BatchCounts:
    outcomes = [outcome for _, _, outcome in answers]
    found = [o.diagnosis for o in outcomes if o.diagnosis is not None]
    diagnosed = len(found) == len(outcomes)
    names = dict.fromkeys(name for diagnosis in found for name in diagnosis.scores)
    return BatchCounts(
        right=[int(hits.sum()) for _, hits, _ in answers],
        seen=[len(hits) for _, hits, _ in answers],
        updated=[outcome.updated for outcome in outcomes],
        rejected=[outcome.rejected for outcome in outcomes],
        scores={n: [d.scores.get(n) for d in found] for n in names} if diagnosed else None,
        biased=[sorted(d.biased) for d in found] if diagnosed else None,
    )


def peak_mib() -> float:
    """Return the most memory that this process has held."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def provenance(method: str, device: str = "cpu") -> dict[str, Any]:
    """Return when, where, by which code and with which versions a result was made."""
    threads = torch.get_num_threads()
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"processor": platform.machine(), "threads": threads, "device": device},
        "versions": {
            "dasp": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "code": code_of(method),
    }
