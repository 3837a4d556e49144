"""One job after another on several processes, with a bar that shows the time left."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.data import DataLoader, Dataset

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Jobs(Dataset[Result], Generic[Item, Result]):
    def __init__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self.function, self.items = function, items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Result:
        return self.function(self.items[index])


def run_jobs(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None
) -> Iterator[Result]:
    """Yield `function(item)` in order, computed by `workers` processes (by default one a core).

    With workers 0 everything runs here, and gives the same bits. The processes are those of
    a data loader: they end by themselves when this one is killed.
    """
    wanted = _cores() if workers is None else workers
    count = min(len(items), wanted)
    if count == 0:
        for item in items:
            with _one_thread():
                result = function(item)
            yield result
        return
    with warnings.catch_warnings():  # more workers than cores: the user said so
        warnings.filterwarnings("ignore", "This DataLoader will create")
        loader: DataLoader[Result] = DataLoader(
            _Jobs(function, items),
            batch_size=None,
            num_workers=count,
            prefetch_factor=8,
            collate_fn=_as_it_is,
        )
        results = iter(loader)
    yield from results


def _cores() -> int:
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


def _as_it_is(result: Result) -> Result:
    return result


def with_bar(results: Iterable[Result], total: int, what: str, show: bool) -> Iterator[Result]:
    """Pass `results` on, showing how many of `total` are done and how long the rest will take."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        disable=not show,
    )
    with bar:
        yield from bar.track(results, total=total, description=what)
