"""Engines: where the jobs of a plan run.

`local` uses processes of this machine; `ray` uses a Ray cluster, or starts one here. Both run the
same jobs and write the same results.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from dasp.bench.datasets import DataOptions
from dasp.bench.features import Features, digest_on
from dasp.bench.plan import Job
from dasp.bench.references import find_model, versions_of
from dasp.bench.results import digest
from dasp.bench.store import Store
from dasp.core.devices import find_device
from dasp.core.errors import DataError, OptionError


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
    device: str = "cpu"
    """Where models run: auto, cpu, cuda, cuda:1 or mps. Committed results are of the processor."""

    def open_store(self) -> Store:
        """Return the feature store; `~` and `$NAME` in its path are those of this machine."""
        folder = Path(os.path.expandvars(self.store)).expanduser()
        return Store(folder, self.store_gib * 2**30)


Engine = Callable[[Sequence[Job], Workspace, bool], None]
"""Runs every job, writes its result and, if the last argument is true, shows the progress.

A job that another runner of the same folder has claimed is left to it, and waited for."""


def open_engine(name: str, **options: str | float | None) -> Engine:
    """Return an engine by name; `options` are those of `ray`, None for its defaults."""
    given = {option: value for option, value in options.items() if value is not None}
    if name == "local" and given:
        flag = next(iter(given)).replace("_", "-")
        raise OptionError(f"--{flag} is for clusters: give --engine ray with it.")
    if name == "ray" and find_spec("ray") is None:
        raise OptionError("the engine ray needs an extra: pip install 'dasp-tta[ray]'.")
    return partial(import_module(f"{__name__}.{name}").run, **given)


def open_features(job: Job, workspace: Workspace) -> Features:
    """Return the inputs and tokens of a job, if files are those that it was planned with."""
    run = job.run
    planned = run.model["digest"], digest(run.data)
    features = _features(job.model, job.data, workspace, *planned)
    for what, same in (
        (f"{job.model} has other weights", features.model_digest == run.model["digest"]),
        (f"{job.data.name} gives other data", features.identity == run.data),
        (f"{run.method} is another method", versions_of(run.method) == run.versions),
    ):
        if not same:
            raise DataError(
                f"{what} here than when the run was planned: if files were changed meanwhile, run "
                "it again; on a cluster, copy the same files to all nodes or to a shared path."
            )
    return features


@lru_cache(maxsize=4)
def _features(model: str, data: DataOptions, workspace: Workspace, *_planned: str) -> Features:
    """Open a data set and a model once per process; the model is hashed on the processor."""
    dataset, found = data.open(), find_model(model)
    known = digest_on(dataset, found, model)
    device = find_device(workspace.device)
    return Features(dataset, found.to(device), workspace.open_store(), known)
