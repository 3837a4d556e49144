"""Run jobs in processes of this machine, one thread each."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import torch

from dasp.bench.cells import fill_store, run_job
from dasp.bench.engines import Workspace, open_features
from dasp.bench.plan import Job
from dasp.bench.results import claimed, finished, is_done, write_result
from dasp.core.errors import DataError
from dasp.core.progress import with_bar
from dasp.data.loading import run_jobs


def run(jobs: Sequence[Job], workspace: Workspace, show: bool = True) -> None:
    """Run every job, see `Engine`."""
    try:
        done = run_jobs(partial(_work, workspace), jobs, workspace.workers)
        deque(with_bar(done, len(jobs), "run", show), maxlen=0)
    except BrokenProcessPool as error:
        raise DataError(
            "a worker process was killed: if memory ran out, lower --workers; then run it again, "
            "what is finished is kept."
        ) from error
    kept = finished(workspace.results)
    for job in jobs:
        if job.run.key not in kept:  # another runner has it: wait, and take over if it died
            _work(workspace, job, wait=True)


def _work(workspace: Workspace, job: Job, wait: bool = False) -> None:
    """Run a job unless it is done or another process has claimed it."""
    torch.set_num_threads(1)
    with claimed(workspace.results, job.run.key, wait) as mine:
        if mine and not is_done(workspace.results, job.run):
            features = open_features(job, workspace)
            fill_store(job, features)
            write_result(workspace.results, run_job(job, features))
