"""Engines: where the jobs of a plan run.

`local` uses processes of this machine; `ray` uses a Ray cluster, or starts one here. Both run the
same jobs and write the same results.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import torch
from rich.progress import Progress

from dasp.bench.cells import needed_features
from dasp.bench.datasets import DataOptions
from dasp.bench.features import Features, FeatureSpec
from dasp.bench.plan import Job
from dasp.bench.references import find_model
from dasp.bench.store import Store
from dasp.core.clock import Clock, Seconds, shares
from dasp.core.errors import OptionError
from dasp.data.loading import run_jobs


@dataclass(frozen=True)
class Workspace:
    """Where a benchmark keeps its results and its features, and how many processes it uses."""

    results: Path = Path("out/results")
    """Folder of results, report.html, tables/ and figures/."""
    store: Path = Path("out/store")
    """Folder of encoded data; it may be removed at any time."""
    store_gib: float = 50.0
    """Size that the store may reach; the least recently used arrays are removed first."""
    workers: int | None = None
    """Processes, one thread each; by default one per core."""

    def open_store(self) -> Store:
        """Return the feature store; `~` and `$NAME` in its path are those of this machine."""
        folder = Path(os.path.expandvars(self.store)).expanduser()
        return Store(folder, self.store_gib * 2**30)


class Engine(Protocol):
    """Where jobs run: on this machine, or on many."""

    def run(self, jobs: Sequence[Job], workspace: Workspace, show: bool = True) -> None:
        """Run every job and write its result.

        A job that another runner of the same folder has claimed is left to it, and waited for.
        """


def open_engine(name: str, **options: str | float | None) -> Engine:
    """Return an engine by name; `options` are those of `ray`, None for its defaults."""
    given = {option: value for option, value in options.items() if value is not None}
    if name == "local":
        for option in given:
            flag = option.replace("_", "-")
            raise OptionError(f"--{flag} is for clusters: give --engine ray with it.")
        from dasp.bench.engines.local import Local

        return Local()
    if find_spec("ray") is None:
        raise OptionError("the engine ray needs an extra: pip install 'dasp-tta[ray]'.")
    from dasp.bench.engines.ray import Ray

    return Ray(**given)  # type: ignore[arg-type]


def open_features(job: Job, workspace: Workspace) -> Features:
    """Return the inputs and tokens of a job's data under its model; a process opens them once."""
    return _features(job.model, job.run.model["digest"], job.data, workspace)


@lru_cache(maxsize=4)
def _features(model: str, digest: str, data: DataOptions, workspace: Workspace) -> Features:
    return Features(data.open(), find_model(model), workspace.open_store(), digest)


class _Make:
    """Computes one array of the store; sent to each worker once, which opens the data itself."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def __call__(self, item: tuple[Job, FeatureSpec]) -> Seconds:
        """Compute an array; return the time spent per stage."""
        torch.set_num_threads(1)
        job, spec = item
        features = open_features(job, self.workspace)
        features.get(spec)
        assert features.store is not None
        return features.store.clock.news()


def _streams_of(job: Job) -> tuple[object, ...]:
    """Return what decides which arrays a job reads."""
    run = job.run
    stream = (run.protocol, run.severity, tuple(run.corruptions), bool(run.clean_after))
    return (job.model, job.data, run.method, run.tokens, bool(run.cost), *stream)


def fill_store(jobs: Sequence[Job], workspace: Workspace, progress: Progress) -> None:
    """Compute the arrays that jobs need and the store lacks: raw inputs, then tokens."""
    raw: dict[str, tuple[Job, FeatureSpec]] = {}
    tokens: dict[str, tuple[Job, FeatureSpec]] = {}
    store = workspace.open_store()
    for job in {_streams_of(job): job for job in jobs}.values():
        features = open_features(job, workspace)
        for spec in needed_features(job, features.modalities):
            inputs = FeatureSpec(spec.modality, spec.domain, encoded=False)
            if not store.has(features.key(spec)) and not store.has(features.key(inputs)):
                raw.setdefault(str(features.key(inputs)), (job, inputs))
            if not store.has(features.key(spec)) and spec.encoded:
                tokens.setdefault(str(features.key(spec)), (job, spec))
    for title, missing in (("corrupt", raw), ("encode", tokens)):
        if missing:
            bar, clock = progress.add_task(title, total=len(missing)), Clock()
            for seconds in run_jobs(_Make(workspace), list(missing.values()), workspace.workers):
                clock.add(seconds)
                line = f"{title}  {shares(clock.seconds)}"
                progress.update(bar, advance=1, description=line)
