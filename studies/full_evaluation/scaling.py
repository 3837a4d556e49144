"""What the full evaluation takes on 1, 8 and 64 GPUs, from counted and measured costs.

    python studies/full_evaluation/scaling.py            # half a minute; fills docs/scaling.md

Runs, streams and arrays are those that the bench itself would make on both published test lists,
without their files; arithmetic is counted (`arithmetic.py`), reading and corrupting is measured on
one core (`benchmarks/samples.py`). Assumed, and changed by flags: TFLOP/s of a GPU in float32 (19.5
is an A100), the part of it that a transformer reaches (`--efficiency`), cores per GPU, GPUs per
node, and GB/s that a node reads from its own disks (`--disk`).
"""

import heapq
import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dasp.bench.cells import needed_features
from dasp.bench.datasets import DataOptions
from dasp.bench.features import FeatureSpec, own_domain
from dasp.bench.plan import MAIN_PROTOCOLS, Job, load_plan
from dasp.bench.references import find_method
from dasp.data import SPECS, Sample
from dasp.models import CavMae, Toy
from dasp.streams.domains import SEVERITIES, Domain, DomainDamage
from dasp.streams.protocols import visits

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from measuring import RESULTS, finish, parse

MAIN = "robust/paper"  # every method, with and without clean samples where it can use them
ABLATIONS = ("paper/ablation", "paper/differences", "paper/sensitivity")  # at severity 5
TOKENS = {"audio": 512 * 768, "video": 196 * 768}
INPUTS = {"audio": 1024 * 128, "video": 3 * 224 * 224}
FLOAT = 4  # bytes
TB = 1e12
Work = tuple[str, Job]  # label of the row, and a run


@dataclass(frozen=True)
class Sized:
    """A data set of which only the size is known."""

    name: str
    clips: int

    @property
    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "samples": self.clips}

    def damage(self, domain: Domain) -> DomainDamage:
        return DomainDamage(domain)

    def samples(self, modality: str, domain: Domain | None) -> list[Sample]:
        shape = {"audio": (16, 128), "video": (3, 16, 16)}[modality]  # of `stand_in`
        return [Sample({modality: torch.zeros(shape)}, 0, "")]

    def source(self, count: int) -> "Sized":
        return replace(self, clips=count)


@dataclass(frozen=True)
class Listed(DataOptions):
    """A published data set, opened without its files."""

    def open(self) -> Sized:  # type: ignore[override]
        return Sized(self.name, SPECS[self.name].clips)


def stand_in() -> CavMae:
    """Return a model of the right modalities: a plan does not depend on its size."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the same one for every plan, so that equal runs are equal
        return CavMae(embed_dim=12, depth=1, audio_length=16, image_size=16, num_classes=2)


def full_evaluation(data: str) -> list[Work]:
    """Return every run on one data set, each once: all severities and seeds, then the ablations."""
    shared: dict[str, Any] = {
        "data": Listed(data),
        "models": (f"{Path(__file__)}:stand_in",),
        "seeds": tuple(range(10)),
        "clean_after": 0,
    }
    main = replace(load_plan(MAIN), **shared, protocols=MAIN_PROTOCOLS, severities=SEVERITIES)
    found = {job.run.key: (label, job) for label, job in main.jobs()}
    for name in ABLATIONS:
        plan = load_plan(name)
        kept = tuple(protocol for protocol in plan.protocols if protocol in MAIN_PROTOCOLS)
        jobs = replace(plan, **shared, protocols=kept).jobs()
        found |= {job.run.key: (label, job) for label, job in jobs}
    return list(found.values())


def samples_of(job: Job) -> int:
    """Return how many samples a run sees."""
    return conditions_of(job.run.protocol, job.run.severity) * int(job.run.data["samples"])


def batches_of(job: Job) -> int:
    """Return the number of batches of a run."""
    samples, size = job.run.data["samples"], job.run.batch_size
    return sum(visit.batches(samples, size) for visit in job.visits())


@cache
def conditions_of(protocol: str, severity: int) -> int:
    return sum(len(visit.conditions) for visit in visits(protocol, severity))


def on_tokens(job: Job) -> bool:
    """Tell whether a run reads tokens; else it reads inputs and encodes them itself."""
    return not find_method(job.run.method).tunes_encoder


def arrays(work: list[Work]) -> set[FeatureSpec]:
    """Return the distinct arrays of the store, each under the domain that it has itself."""
    streams = {(job.run.protocol, job.run.severity, on_tokens(job)): job for _, job in work}
    model = Toy()  # like CAV-MAE, it has two sensors and no BatchNorm
    specs = {spec for job in streams.values() for spec in needed_features(job, model)}
    return {replace(spec, domain=own_domain(spec)) for spec in specs}


def size(spec: FeatureSpec, clips: int, float16: bool = False) -> float:
    """Return the bytes of an array; only tokens may be kept in half precision."""
    numbers = (TOKENS if spec.encoded else INPUTS)[spec.modality]
    return clips * numbers * (FLOAT / 2 if float16 and spec.encoded else FLOAT)


def traffic(job: Job) -> float:
    """Return the bytes that a run reads."""
    return samples_of(job) * FLOAT * sum((TOKENS if on_tokens(job) else INPUTS).values())


@dataclass(frozen=True)
class Costs:
    """Seconds of each kind of work on what is assumed of a machine."""

    gflop: Mapping[str, Mapping[str, float]]
    milliseconds: Mapping[str, Mapping[str, float]]
    machine: Namespace

    def gpu(self, gflop: float) -> float:
        return gflop / (1000 * self.machine.tflops * self.machine.efficiency)

    def encode(self, spec: FeatureSpec, clips: int) -> float:
        return clips * self.gpu(self.gflop["stages"][f"encode {spec.modality}"])

    def load(self, spec: FeatureSpec, clips: int) -> float:
        """Return the seconds of one core to read, damage and prepare an array's inputs."""
        kind = "read" if spec.domain is None else "read and damaged"
        return clips * self.milliseconds[f"{spec.modality}, {kind}"]["median_ms"] / 1000

    def step(self, job: Job) -> float:
        """Return the GPU seconds of a run, if nothing keeps it waiting."""
        return samples_of(job) * self.gpu(self.gflop["steps"][job.run.method])

    def run(self, job: Job) -> float:
        """Return the seconds of a run that reads ahead from its share of the node's disk."""
        rate = 1e9 * self.machine.disk / self.machine.gpus_a_node
        return max(self.step(job), traffic(job) / rate)


def schedule(lengths: Iterable[float], places: int) -> float:
    """Return when the last of these ends, the longest first, each where it can begin soonest.

    >>> schedule([3, 3, 2, 2, 2], 2)
    7
    """
    free: list[float] = [0] * places
    for length in sorted(lengths, reverse=True):
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def reckon(costs: Costs) -> dict[str, Any]:
    work = {name: full_evaluation(name) for name in SPECS}
    jobs = [job for own in work.values() for _, job in own]
    specs = [(spec, SPECS[name].clips) for name in SPECS for spec in ordered(work[name])]
    runs = [costs.run(job) for job in jobs]
    encodings = [costs.encode(spec, count) for spec, count in specs if spec.encoded]
    loading = sum(costs.load(spec, count) for spec, count in specs if not spec.encoded)
    both = costs.gflop["stages"]["encode audio"] + costs.gflop["stages"]["encode video"]
    each_time = sum(samples_of(job) * costs.gpu(both) for job in jobs if on_tokens(job))
    hours: Counter[str] = Counter()
    for own in work.values():
        for label, job in own:
            plain = label == job.run.method != "triage"
            hours[label if plain else "ablations and triage"] += costs.step(job) / 3600
    stored = sum(size(spec, clips) for spec, clips in specs)
    reads = sum(map(traffic, jobs))
    return {
        "plan": {name: counts(work[name], SPECS[name].clips, costs) for name in SPECS},
        "work": {
            "core_hours_reading_and_corrupting": loading / 3600,
            "gpu_hours_encoding_once": sum(encodings) / 3600,
            "gpu_hours_encoding_in_every_run": each_time / 3600,
            "gpu_hours_of_runs": sum(map(costs.step, jobs)) / 3600,
            "gpus_beyond_which_the_longest_run_decides": int(sum(runs) / max(runs)),
        },
        "by_method_gpu_hours": dict(hours),
        "gpus": {
            str(count): on_gpus(count, runs, encodings, loading, reads, stored, costs.machine)
            for count in (1, 8, 64)
        },
    }


def ordered(work: list[Work]) -> list[FeatureSpec]:
    return sorted(arrays(work), key=lambda spec: (spec.modality, str(spec.domain), spec.encoded))


def counts(work: list[Work], clips: int, costs: Costs) -> dict[str, Any]:
    specs, jobs = arrays(work), [job for _, job in work]
    one = [spec for spec in specs if spec.domain is None or spec.domain.severity == 5]
    label, longest = max(work, key=lambda item: costs.run(item[1]))
    return {
        "clips": clips,
        "runs": len(work),
        "batches": sum(map(batches_of, jobs)),
        "samples_seen": sum(map(samples_of, jobs)),
        "arrays_of_inputs": sum(not spec.encoded for spec in specs),
        "encodings": sum(spec.encoded for spec in specs),
        "encodings_without_store": sum(
            samples_of(job) // clips * len(TOKENS) for job in jobs if on_tokens(job)
        ),
        "store_tb": sum(size(spec, clips) for spec in specs) / TB,
        "store_float16_tb": sum(size(spec, clips, float16=True) for spec in specs) / TB,
        "store_one_severity_tb": sum(size(spec, clips) for spec in one) / TB,
        "read_by_runs_tb": sum(map(traffic, jobs)) / TB,
        "longest_run": f"{label}, {longest.run.protocol}",
        "longest_run_hours": costs.run(longest) / 3600,
    }


def on_gpus(count, runs, encodings, loading, reads, stored, machine) -> dict[str, float]:
    """Return the hours of each phase on so many GPUs, and what goes over the network."""
    nodes = -(-count // machine.gpus_a_node)
    phases = {
        "loading": loading / (machine.cores * count),
        "encoding": schedule(encodings, count),
        "running": schedule(runs, count),
    }
    return {
        **{f"hours_{name}": value / 3600 for name, value in phases.items()},
        "days": sum(phases.values()) / 86400,
        "utilisation_running": sum(runs) / (count * phases["running"]),
        "nodes": nodes,
        # One node has its disk for itself. Of several, all but the one that made it fetch an array.
        "shared_store_tb": reads / TB if nodes > 1 else 0.0,
        "shared_store_gbit_per_node": 8e-9 * reads / phases["running"] / nodes
        if nodes > 1
        else 0.0,
        "store_per_node_tb": (nodes - 1) * stored / TB,
    }


def rounded(figures: Any) -> Any:
    """Keep four digits of every number that is not a count."""
    if isinstance(figures, dict):
        return {name: rounded(value) for name, value in figures.items()}
    return float(f"{figures:.4g}") if isinstance(figures, float) else figures


def main() -> None:
    options = parse(__doc__, tflops=19.5, efficiency=0.5, cores=8, gpus_a_node=8, disk=6.0)
    arithmetic, samples = (
        json.loads((RESULTS / f"{name}.json").read_text())["figures"]
        for name in ("arithmetic", "samples")
    )
    figures = rounded(reckon(Costs(arithmetic, samples["clips"], options)))
    finish(options, "The full evaluation", figures)


if __name__ == "__main__":
    main()
