"""Run jobs in processes of this machine, one thread each."""

from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import torch

from dasp.bench.cells import fill_store, run_job
from dasp.bench.engines import Workspace, open_features
from dasp.bench.plan import Job
from dasp.bench.results import claimed, done_keys, is_done, write_result
from dasp.core.clock import Clock, Seconds, shares
from dasp.core.errors import DataError
from dasp.core.progress import bars
from dasp.data.loading import run_jobs


def run(jobs: Sequence[Job], workspace: Workspace, show: bool = True) -> None:
    """Run every job, see `Engine`; a bar shows the time spent per stage."""
    clock = Clock()
    try:
        with bars(show) as progress:
            bar = progress.add_task("run", total=len(jobs))
            for seconds in run_jobs(partial(_work, workspace), jobs, workspace.workers):
                clock.add(seconds)
                progress.update(bar, advance=1, description=f"run  {shares(clock.seconds)}")
    except BrokenProcessPool as error:
        raise DataError(
            "a worker process was killed: if memory ran out, lower --workers; then run it again, "
            "what is finished is kept."
        ) from error
    done = done_keys(workspace.results)
    for job in jobs:
        if job.run.key not in done:  # another runner has it: wait, and take over if it died
            _work(workspace, job, wait=True)


def _work(workspace: Workspace, job: Job, wait: bool = False) -> Seconds:
    """Run a job unless it is done or another process has claimed it; return the time spent."""
    torch.set_num_threads(1)
    clock = Clock()
    with claimed(workspace.results, job.run.key, wait) as mine:
        if mine and not is_done(workspace.results, job.run):
            features = open_features(job, workspace)
            fill_store(job, features)
            result = run_job(job, features)
            write_result(workspace.results, result)
            clock.add(result.measured["seconds"])
            clock.add(features.store.clock.news() if features.store else {})
    return clock.seconds
