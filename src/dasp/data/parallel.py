"""One job after another on several processes, with a bar that shows the time left."""

import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

import torch

from dasp.core.errors import OptionError
from dasp.core.progress import bars

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 8  # results that may wait, a worker: enough to keep it busy, little enough to hold

_job: tuple[Callable[[Any], Any], Sequence[Any]]  # in a worker: what it does, and to what


def run_jobs(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int | None = None,
    ahead: int = 0,
) -> Iterator[Result]:
    """Yield `function(item)` in order, computed by `workers` processes (by default one a core).

    With workers 0 everything runs here, and gives the same bits. The function goes to each
    worker once; results should be small or arrays. Workers end when this process is killed.
    They work on while the caller is busy, until `ahead` results wait (8 a worker, if that is more).
    """
    if workers is not None and workers < 0:
        raise OptionError(f"workers is 0 (no other process) or more, not {workers}.")
    return _results(function, items, workers, ahead)


def _results(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None, ahead: int
) -> Iterator[Result]:
    count = min(len(items), cores() if workers is None else workers)
    if count == 0:
        for item in items:
            with _one_thread():
                result = function(item)
            yield result
        return
    pool = ProcessPoolExecutor(count, _context(), _start_worker, (function, items))
    waiting: deque[Future[Result]] = deque()
    try:
        with warnings.catch_warnings():  # forking with threads: the workers use none of them
            warnings.simplefilter("ignore", DeprecationWarning)
            waiting.append(pool.submit(_do, 0))
        for index in range(1, len(items)):
            waiting.append(pool.submit(_do, index))
            if len(waiting) >= max(AHEAD * count, ahead):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _context() -> BaseContext:
    """Return the way to start workers: on Linux a fork, which knows a user's own corruptions."""
    return get_context("fork" if sys.platform == "linux" else None)


def _start_worker(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    global _job
    _job = (function, items)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(index: int) -> Any:
    function, items = _job
    return function(items[index])


def cores() -> int:
    """Return the cores that this process may use: fewer than the machine's in a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute as a worker does: with several threads, sums may round differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def with_bar(results: Iterable[Result], total: int, what: str, show: bool) -> Iterator[Result]:
    """Pass `results` on, showing how many of `total` are done and how long the rest will take."""
    with bars(show) as bar:
        yield from bar.track(results, total=total, description=what)
