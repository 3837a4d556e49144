"""Run jobs as tasks of a Ray cluster; the extra `[ray]`.

Each job is one task, tried again if its worker or its node is lost. Workers compute the features
they need in the store of their node, where processes wait for each other; this process writes the
results, so that a run which is interrupted goes on where it stopped, with any engine.
"""

import hashlib
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from dasp.bench.cells import needed_features, run_job
from dasp.bench.datasets import DataOptions, Dataset
from dasp.bench.engines import Workspace
from dasp.bench.features import Features
from dasp.bench.plan import Job
from dasp.bench.references import absolute, find_model, model_digest, move_file, own_file
from dasp.bench.results import Result, claimed, digest, is_done, write_result
from dasp.core.errors import DaspError, DataError, OptionError
from dasp.core.progress import bars
from dasp.core.version import __version__
from dasp.data.loading import cores

RETRIES = 3  # of a task whose worker or node was lost; an error of its own is not tried again
PATIENCE = 5.0  # seconds that cancelled tasks are given to end
SUBMITTED = 256  # jobs at once: each holds a lock, which is an open file
OBJECTS = 100 * 2**20  # bytes for what passes between processes: results, not features


class Ray:
    """A Ray cluster at an address, or one of this machine for as long as a run lasts."""

    def __init__(
        self, address: str | None = None, cpus_per_run: float = 1.0, gpus_per_run: float = 0.0
    ) -> None:
        if cpus_per_run <= 0 or gpus_per_run < 0:
            raise OptionError(
                "--cpus-per-run must be above 0 and --gpus-per-run not negative: "
                f"{cpus_per_run:g}, {gpus_per_run:g}."
            )
        self.address = address
        self.needs = {"num_cpus": cpus_per_run, "num_gpus": gpus_per_run}

    def run(self, jobs: Sequence[Job], workspace: Workspace, show: bool = True) -> None:
        """Run every job; see `Engine`."""
        if workspace.workers == 0 or (workspace.workers and self.address):
            raise OptionError(
                "--workers is the number of CPUs of a Ray cluster that is started here, 1 or more: "
                "leave it out if --address names a cluster."
            )
        with connected(self.address, workspace.workers or cores()), bars(show) as progress:
            self._check_fit()
            device = "cuda" if self.needs["num_gpus"] else "cpu"
            shipment = ray.put(pack_shipment(jobs, workspace, device))
            task = ray.remote(_do).options(max_retries=RETRIES, **self.needs)
            bar = progress.add_task("run on the cluster", total=len(jobs))
            with _Submitted(workspace.results, lambda: progress.advance(bar)) as submitted:
                elsewhere = []
                for job in jobs:
                    submitted.collect(SUBMITTED - 1)
                    if not submitted.add(job, task, (shipment,), wait=False):
                        elsewhere.append(job)
                # Another runner has the others: wait, and take over if it died. Nothing is held
                # meanwhile: two runners that wait for each other would wait for ever.
                submitted.collect(0)
                for job in elsewhere:
                    submitted.add(job, task, (shipment,), wait=True)
                    submitted.collect(0)

    def _check_fit(self) -> None:
        """Refuse a cluster on which no node has room for a run, which would wait for ever."""
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        wanted = {"CPU": self.needs["num_cpus"], "GPU": self.needs["num_gpus"]}
        have = [node["Resources"] for node in nodes if node["Alive"]]
        if not any(all(own.get(n, 0.0) >= c for n, c in wanted.items()) for own in have):
            there = "; ".join(", ".join(f"{own.get(n, 0.0):g} {n}" for n in wanted) for own in have)
            raise OptionError(
                f"no node of the cluster has {wanted['CPU']:g} CPU and {wanted['GPU']:g} GPU for a "
                f"run (there are: {there}): lower --cpus-per-run or --gpus-per-run."
            )


class _Submitted:
    """The tasks under way, each with the lock of its run; cancelled if the block fails."""

    def __init__(self, results: Path, tick: Callable[[], None]) -> None:
        self.results, self.tick = results, tick
        self._tasks: dict[Any, tuple[Job, ExitStack]] = {}

    def __enter__(self) -> "_Submitted":
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            with suppress(RayError):
                for task in self._tasks:
                    ray.cancel(task)
                ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=PATIENCE)
        for _, lock in self._tasks.values():
            lock.close()

    def add(self, job: Job, task: Any, shipment: tuple[Any], wait: bool) -> bool:
        """Submit a job unless it is done; tell whether no other runner has it."""
        with ExitStack() as stack:
            if not stack.enter_context(claimed(self.results, job.run.key, wait)):
                return False
            if not is_done(self.results, job.run):
                self._tasks[task.remote(shipment, portable(job))] = job, stack.pop_all()
        return True

    def collect(self, left: int) -> None:
        """Write the results of tasks as they are done, until so many are left."""
        while len(self._tasks) > left:
            (task,), _ = ray.wait(list(self._tasks))
            job, lock = self._tasks.pop(task)
            with lock:
                write_result(self.results, _result(task, job))
            self.tick()


def _result(task: Any, job: Job) -> Result:
    try:
        result: Result = ray.get(task)
    except RayTaskError as error:
        cause: Any = error
        while isinstance(cause, RayTaskError):
            cause = cause.cause
        raise cause from (None if isinstance(cause, DaspError) else error)
    except TaskCancelledError:
        raise KeyboardInterrupt from None
    except RayError as error:
        why = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{job.name} lost its worker {RETRIES + 1} times: {why} If memory ran out, raise "
            "--cpus-per-run so that fewer run side by side; then run it again, what is finished is "
            "kept."
        ) from error
    return result


@contextmanager
def connected(address: str | None, cpus: int | None) -> Iterator[None]:
    """Connect to the cluster at an address, or start one here; leave it at the end.

    A program that is connected already stays connected.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would go over the network
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if address is None:
            quiet |= {"include_dashboard": False, "object_store_memory": OBJECTS}
            ray.init("local", num_cpus=cpus, **quiet)
        else:
            host, colon, port = address.rpartition("://")[2].rpartition(":")
            if colon and port.isdigit():  # fail at once: Ray would try for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address, **quiet)
    except Exception as error:  # Ray has no class of its own for what may go wrong here
        raise OptionError(_unreachable(address, error)) from error
    # Ray prints a page of its log about a lost node to standard output, where the report goes.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            yield
        finally:
            ray.shutdown()


def _unreachable(address: str | None, error: Exception) -> str:
    why = str(error).strip().partition("\n")[0].rstrip(".")
    if address is None:
        return (
            f"Ray could not be started on this machine: {why}. Try again when it is less busy, or "
            "use --engine local."
        )
    return (
        f"the Ray cluster at {address} cannot be used: {why}. `ray start --head` starts one and "
        "`ray status` shows it; if it asks for a token, set RAY_AUTH_MODE=token."
    )


@dataclass(frozen=True)
class Shipment:
    """What workers are sent once: data, paths, a user's own files, and versions to compare."""

    datasets: dict[DataOptions, Dataset]
    """Opened once for all, but those of a user's own files, which a worker must import first."""
    workspace: Workspace
    files: dict[str, bytes]
    """A user's own files, by the names that references give them."""
    folder: Path
    """From which these names are seen."""
    device: str
    versions: dict[str, str]

    def unpack(self) -> None:
        """Prepare this process to run jobs, after checking that it has the same software."""
        here = versions()
        for name, version in self.versions.items():
            if here[name] != version:
                raise OptionError(
                    f"a node of the cluster has {name} {here[name]}, but the run was started with "
                    f"{version}: install the same on all nodes."
                )
        for name, content in self.files.items():
            path = self.folder / name
            if not (path.is_file() and path.read_bytes() == content):
                path = Path(_own_folder().name) / hashlib.sha256(content).hexdigest() / path.name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
            move_file(name, path)

    def features(self, reference: str, data: DataOptions, weights: str, samples: str) -> Features:
        """Open a model and data; they must have the digests that the run was planned with."""
        model = find_model(reference).to(self.device)
        if model_digest(model, reference) != weights:
            raise DataError(
                f"{reference} has other weights on a node than where the run was started: copy the "
                "same file to all nodes, or put it on a path that they share."
            )
        dataset = self.datasets[data] if data in self.datasets else data.open()
        if digest(dataset.identity) != samples:
            raise DataError(
                f"{data.name} gives other data on a node than where the run was started: copy the "
                "same data to all nodes, or put them on a path that they share."
            )
        return Features(dataset, model, self.workspace.open_store(), weights)


def pack_shipment(jobs: Sequence[Job], workspace: Workspace, device: str = "cpu") -> Shipment:
    """Collect what workers need; paths that must be the same on all nodes are made absolute."""
    references = {job.model for job in jobs} | {job.run.method for job in jobs}
    references |= {job.data.name for job in jobs}
    opened = {portable(job).data for job in jobs if own_file(job.data.name) is None}
    names = {name for name in map(own_file, references) if name is not None}
    store = workspace.store
    if str(store)[:1] not in ("~", "$"):  # which each node reads in its own way
        store = store.resolve()
    return Shipment(
        {data: data.open() for data in opened},
        replace(workspace, store=store),
        {name: Path(name).read_bytes() for name in names},
        Path.cwd(),
        device,
        versions(),
    )


def portable(job: Job) -> Job:
    """Return a job whose paths are found from any directory; own files are sent by their names."""
    paths = {name: getattr(job.data, name) for name in ("root", "frost_dir", "noise_dir")}
    data = replace(job.data, **{name: path and path.absolute() for name, path in paths.items()})
    return replace(job, data=data, model=job.model if own_file(job.model) else absolute(job.model))


@cache
def versions() -> dict[str, str]:
    """Return what must be the same on all nodes; of this package, the code itself."""
    code, root = hashlib.sha256(), Path(__file__).parents[2]
    for path in sorted(root.rglob("*.py")):
        code.update(path.relative_to(root).as_posix().encode())
        code.update(path.read_bytes())
    return {
        "dasp": f"{__version__} (code {code.hexdigest()[:8]})",
        "torch": torch.__version__.partition("+")[0],
    }


@cache
def _own_folder() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder of this process alone, for files that are not on this machine."""
    return tempfile.TemporaryDirectory(prefix="dasp-own-")


def _do(reference: tuple[Any], job: Job) -> Result:
    """Run one job in a worker."""
    torch.set_num_threads(1)
    known = (job.run.model["digest"], digest(job.run.data))
    features = _features(reference, job.model, job.data, known)
    specs = needed_features(job, features.modalities)
    first = int(job.run.key, 16) % len(specs)
    for spec in (*specs[first:], *specs[:first]):  # jobs side by side compute different arrays
        features.get(spec)
    return run_job(job, features)


@lru_cache(maxsize=1)
def _unpacked(reference: tuple[Any]) -> Shipment:
    """Return the shipment, fetched and unpacked once per process and run."""
    shipment: Any = ray.get(reference[0])
    assert isinstance(shipment, Shipment)
    shipment.unpack()
    return shipment


@lru_cache(maxsize=4)
def _features(
    shipment: tuple[Any], model: str, data: DataOptions, known: tuple[str, str]
) -> Features:
    return _unpacked(shipment).features(model, data, *known)
