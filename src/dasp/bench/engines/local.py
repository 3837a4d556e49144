"""Do the items of a plan on this machine: arrays first, then every item, one thread each."""

from collections.abc import Sequence
from multiprocessing import get_context
from typing import Any

import torch

from dasp.bench.features import Part
from dasp.bench.prepare import Place, claim, fill_store, open_features
from dasp.bench.progress import Bars
from dasp.bench.work import Item, Work
from dasp.core.clock import Seconds
from dasp.data.parallel import cores, run_jobs


class Local:
    """Processes of this machine, `Place.workers` of them."""

    def processes(self, place: Place) -> int:
        """Return how many there are; none means that this one does everything."""
        return cores() if place.workers is None else place.workers

    def run(
        self, work: Work, items: Sequence[Item], place: Place, done: int, show: bool = True
    ) -> None:
        """Do every item; see `Engine`."""
        needed: dict[str, set[Part]] = {}
        for item in items:
            needed.setdefault(item.model, set()).update(work.arrays(item))
        total = sum(map(work.steps, items))
        news = get_context("fork").SimpleQueue() if show else None
        with Bars(show) as bars:
            fill_store(needed, work.data, place, bars)
            with bars.listening(news, total, done, done + len(items), work.title):
                _run_all(_Job(work, place, news), items, place)


LOCAL = Local()


class _Job:
    """What a worker does; it goes to each worker once, models and data are opened there."""

    def __init__(self, work: Work, place: Place, news: Any) -> None:
        self.work, self.place, self.news = work, place, news

    def __call__(self, item: Item) -> bool:
        """Do one item unless it is done or another process has it; tell whether it is done."""
        torch.set_num_threads(1)
        with claim(self.place.results, item.key) as mine:
            if not mine:
                return False
            rest = self.work.rest(item, self.place.results)
            if rest is not None:
                self._do(rest)
        return True

    def _do(self, item: Item) -> None:
        name = self.work.name(item)

        def tick(steps: int, seconds: Seconds) -> None:
            if self.news is not None:
                self.news.put((name, steps, seconds))

        features = open_features(item.model, self.work.data, self.place)
        self.work.write(self.place.results, item, self.work.outcomes(item, features, tick))


def _run_all(job: _Job, items: Sequence[Item], place: Place) -> None:
    finished = list(run_jobs(job, items, place.workers))
    elsewhere = [item for item, done in zip(items, finished, strict=True) if not done]
    for item in elsewhere:  # another runner has them: wait, and take over if it died
        while not job(item):
            with claim(place.results, item.key, wait=True):
                pass
