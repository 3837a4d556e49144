"""Run jobs on this machine: features first, then every job, one thread each."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch
from rich.progress import Progress

from dasp.bench.cells import run_job
from dasp.bench.engines import Workspace, fill_store, open_features
from dasp.bench.plan import Job
from dasp.bench.results import claimed, is_done, write_result
from dasp.core.clock import Clock, Seconds, shares
from dasp.core.errors import DataError
from dasp.core.progress import bars
from dasp.data.loading import run_jobs


class Local:
    """Processes of this machine, `Workspace.workers` of them."""

    def run(self, jobs: Sequence[Job], workspace: Workspace, show: bool = True) -> None:
        """Run every job; see `Engine`."""
        news = get_context("fork").SimpleQueue() if show else None
        work = _Work(workspace, news)
        try:
            with bars(show) as progress:
                fill_store(jobs, workspace, progress)
                with _shown(progress, news, jobs):
                    finished = list(run_jobs(work, jobs, workspace.workers))
                    for job, done in zip(jobs, finished, strict=True):
                        while not done:  # another runner has it: wait, and take over if it died
                            with claimed(workspace.results, job.run.key, wait=True):
                                pass
                            done = work(job)
        except BrokenProcessPool as error:
            raise DataError(
                "a worker process was killed: if memory ran out, lower --workers; then run it "
                "again, what is finished is kept."
            ) from error


class _Work:
    """What a worker does; sent to each worker once, which opens models and data itself."""

    def __init__(self, workspace: Workspace, news: Any) -> None:
        self.workspace, self.news = workspace, news

    def __call__(self, job: Job) -> bool:
        """Run a job unless another process has claimed it; tell whether it is done."""
        torch.set_num_threads(1)
        results = self.workspace.results
        with claimed(results, job.run.key) as mine:
            if mine and not is_done(results, job.run):
                features = open_features(job, self.workspace)
                write_result(results, run_job(job, features, self._tick))
        return mine

    def _tick(self, batches: int, seconds: Seconds) -> None:
        if self.news is not None:
            self.news.put((batches, seconds))


@contextmanager
def _shown(progress: Progress, news: Any, jobs: Sequence[Job]) -> Iterator[None]:
    """Show the batches that workers report, and what their time is spent on."""
    if news is None:
        yield
        return
    bar = progress.add_task("adapt", total=sum(job.batches() for job in jobs))
    clock, over = Clock(), threading.Event()

    def listen() -> None:
        while not (over.wait(0.1) and news.empty()):
            while not news.empty():
                batches, seconds = news.get()
                clock.add(seconds)
                line = f"adapt  {shares(clock.seconds)}"
                progress.update(bar, advance=batches, description=line)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        over.set()
        listener.join(timeout=5)  # a worker may have been killed in the midst of a report
