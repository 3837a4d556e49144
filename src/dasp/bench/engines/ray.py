"""Run jobs as tasks of a Ray cluster; the extra `[ray]`.

Each job is one task, tried again if its worker or its node is lost. Workers compute the features
they need in the store of their node, where processes wait for each other; this process writes the
results, so that a run which is interrupted goes on where it stopped, with any engine.
"""

import logging
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from dasp.bench.cells import fill_store, run_job
from dasp.bench.code import code_of
from dasp.bench.engines import Workspace, open_features
from dasp.bench.plan import Job
from dasp.bench.references import absolute
from dasp.bench.results import Result, claimed, digest, is_done, write_result
from dasp.core.errors import DaspError, DataError, OptionError
from dasp.core.progress import with_bar
from dasp.core.version import __version__
from dasp.data.loading import cores

RETRIES = 3  # of a task whose worker or node was lost; an error of its own is not tried again
SUBMITTED = 256  # jobs at once: each holds a thread and a lock, which is an open file
OBJECTS = 100 * 2**20  # bytes for what passes between processes: results, not features


def run(
    jobs: Sequence[Job],
    workspace: Workspace,
    show: bool = True,
    address: str | None = None,
    cpus_per_run: float = 1.0,
    gpus_per_run: float = 0.0,
) -> None:
    """Run every job on the cluster at an address, or on one of this machine; see `Engine`."""
    if cpus_per_run <= 0 or gpus_per_run < 0:
        raise OptionError(
            "--cpus-per-run must be above 0 and --gpus-per-run not negative: "
            f"{cpus_per_run:g}, {gpus_per_run:g}."
        )
    if workspace.workers == 0 or (workspace.workers and address):
        raise OptionError(
            "--workers is the number of CPUs of a Ray cluster that is started here, 1 or more: "
            "leave it out if --address names a cluster."
        )
    with connected(address, workspace.workers or cores()):
        _check_fit({"CPU": cpus_per_run, "GPU": gpus_per_run})
        needs = {"num_cpus": cpus_per_run, "num_gpus": gpus_per_run}
        task = ray.remote(_do).options(max_retries=RETRIES, **needs)
        device = "cuda" if gpus_per_run else workspace.device
        given = sent_workspace(replace(workspace, device=device))
        submitted: list[Any] = []

        def run_one(job: Job, wait: bool = False) -> bool:
            """Run a job unless it is done; tell whether no other runner has it."""
            with claimed(workspace.results, job.run.key, wait) as mine:
                if mine and not is_done(workspace.results, job.run):
                    run = task.remote(portable(job), given, software(job.run.method))
                    submitted.append(run)
                    result = replace(_result(run, job), run=job.run)  # paths as they were given
                    write_result(workspace.results, result)
            return mine

        pool = ThreadPoolExecutor(SUBMITTED)
        runs = {pool.submit(run_one, job): job for job in jobs}
        try:
            for run in with_bar(as_completed(runs), len(runs), "run on the cluster", show):
                run.result()
            # Another runner has the others: wait, and take over if it died. Nothing is held
            # meanwhile: two runners that wait for each other would wait for ever.
            for run, job in runs.items():
                if not run.result():
                    run_one(job, wait=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            with suppress(RayError):
                _cancel(submitted, runs)
            raise
        pool.shutdown()


def _cancel(submitted: list[Any], runs: Iterable[Future[bool]]) -> None:
    """Cancel all tasks, also one that a thread submits just now."""
    running = True
    while running:
        running = any(run.running() for run in runs)
        for task in tuple(submitted):
            ray.cancel(task, force=True)
        time.sleep(0.1)


def _check_fit(wanted: dict[str, float]) -> None:
    """Refuse a cluster on which no node has room for a run, which would wait for ever."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    have = [{n: node["Resources"].get(n, 0.0) for n in wanted} for node in nodes if node["Alive"]]
    if not any(all(own[name] >= wanted[name] for name in wanted) for own in have):
        there = "; ".join(", ".join(f"{own[name]:g} {name}" for name in wanted) for own in have)
        raise OptionError(
            f"no node of the cluster has {wanted['CPU']:g} CPU and {wanted['GPU']:g} GPU for a "
            f"run (there are: {there}): lower --cpus-per-run or --gpus-per-run."
        )


def _result(task: Any, job: Job) -> Result:
    try:
        return ray.get(task)  # type: ignore[no-any-return]
    except RayTaskError as error:
        cause: Any = error
        while isinstance(cause, RayTaskError):
            cause = cause.cause
        raise cause from (None if isinstance(cause, DaspError) else error)
    except TaskCancelledError:
        raise KeyboardInterrupt from None
    except RayError as error:
        raise DataError(
            f"{job.name} lost its worker {RETRIES + 1} times: {_first_line(error)} If memory ran "
            "out, raise --cpus-per-run so that fewer run side by side; then run it again, what is "
            "finished is kept."
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[None]:
    """Connect to the cluster at an address, or start one here; leave it at the end.

    A program that is connected already stays connected.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would go over the network
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        options |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECTS}
    try:
        host, colon, port = (address or "").rpartition("://")[2].rpartition(":")
        if colon and port.isdigit():  # fail at once: Ray would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address or "local", **options)
    except Exception as error:  # Ray has no class of its own for what may go wrong here
        why = _first_line(error).rstrip(".")
        raise OptionError(
            f"Ray could not be started on this machine: {why}. Try again when it is less busy, or "
            "use --engine local."
            if address is None
            else f"the Ray cluster at {address} cannot be used: {why}. `ray start --head` starts "
            "one and `ray status` shows it; if it asks for a token, set RAY_AUTH_MODE=token."
        ) from error
    # Ray prints a page of its log about a lost node to standard output, where the report goes.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            yield
        finally:
            ray.shutdown()


def sent_workspace(workspace: Workspace) -> Workspace:
    """Return the workspace for all nodes: the store's path absolute, or read by each node."""
    if str(workspace.store)[:1] in ("~", "$"):
        return workspace
    return replace(workspace, store=workspace.store.resolve())


def portable(job: Job) -> Job:
    """Return a job whose files are found from any directory."""
    paths = {name: getattr(job.data, name) for name in ("root", "frost_dir", "noise_dir")}
    paths = {name: path and path.absolute() for name, path in paths.items()}
    data = replace(job.data, name=absolute(job.data.name), **paths)
    run = replace(job.run, method=absolute(job.run.method))
    return replace(job, run=run, model=absolute(job.model), data=data)


def software(method: str) -> str:
    """Return what must be the same on all nodes; of this package, the code itself."""
    torch_version = torch.__version__.partition("+")[0]
    code = digest(code_of(method))[:8]
    return f"dasp {__version__} (code {code}) with torch {torch_version}"


def _do(job: Job, workspace: Workspace, wanted: str) -> Result:
    """Run one job in a worker, if its node has the same software."""
    if (here := software(job.run.method)) != wanted:
        raise OptionError(
            f"a node of the cluster has {here}, but the run was started with {wanted}: install the "
            "same on all nodes."
        )
    torch.set_num_threads(1)
    features = open_features(job, workspace)
    fill_store(job, features)
    return run_job(job, features)
