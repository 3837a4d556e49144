"""Do the items of a plan as tasks of a Ray cluster: arrays as tasks that the items wait for."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from dasp.bench.engines.local import LOCAL
from dasp.bench.engines.ray.cluster import Needs, connected, fitting_nodes, same_store
from dasp.bench.engines.ray.news import News
from dasp.bench.engines.ray.shipment import pack, portable
from dasp.bench.engines.ray.tasks import Box, do_item, make_array
from dasp.bench.features import Part
from dasp.bench.prepare import Place, claim
from dasp.bench.progress import Bars
from dasp.bench.work import Item, Work
from dasp.core.errors import DaspError, DataError, OptionError

RETRIES = 3  # of a task whose worker or node was lost; an error of its own is not tried again
PATIENCE = 5.0  # seconds that cancelled tasks are given to end
FLYING = 256  # items submitted at once: of each a lock is held, which is an open file


class Ray:
    """A Ray cluster: that of an address, or one of this machine for as long as a run lasts."""

    def __init__(
        self, address: str | None = None, cpus_per_cell: float = 1.0, gpus_per_cell: float = 0.0
    ) -> None:
        self.address, self.needs = address, Needs(cpus_per_cell, gpus_per_cell)

    def processes(self, place: Place) -> int | None:
        """Return the CPUs of a cluster that is started here."""
        return None if self.address else LOCAL.processes(place)

    def run(
        self, work: Work, items: Sequence[Item], place: Place, done: int, show: bool = True
    ) -> None:
        """Do every item; see `Engine`. This process writes the files."""
        if place.workers == 0 or (place.workers and self.address):
            raise OptionError(
                "--workers is the number of CPUs of a Ray cluster that is started here, 1 or more: "
                "leave it out where --address names a cluster."
            )
        items = [portable(item) for item in items]
        needs = self.needs if work.on_gpu else replace(self.needs, gpus=0.0)
        with connected(self.address, self.processes(place)), Bars(show) as bars:
            nodes = fitting_nodes(needs)
            box = (ray.put(pack(work, items, place, "cuda" if needs.gpus else "cpu")),)
            shared = same_store(box, nodes)
            news = News() if show else None
            flight = _Flight(work, place, box, needs, news and news.board)
            if shared:
                flight.make_arrays(items)
            total = sum(map(work.steps, items)) + len(flight.arrays)
            with bars.listening(news, total, done, done + len(items), work.title):
                flight.finish(items)


class _Flight:
    """The tasks of one run that are under way."""

    def __init__(self, work: Work, place: Place, box: Box, needs: Needs, board: Any) -> None:
        self.work, self.place, self.box, self.board = work, place, box, board
        options = needs.options() | {"max_retries": RETRIES}
        self._make = ray.remote(make_array).options(**options)
        self._do = ray.remote(do_item).options(**options)
        self.arrays: dict[tuple[str, Part], Any] = {}
        self._flying: dict[Any, tuple[Item, ExitStack]] = {}

    def make_arrays(self, items: Sequence[Item]) -> None:
        """Have the arrays made that items need, first those of the first items."""
        for item in items:
            for part in self.work.arrays(item):
                self._array(item, part)

    def finish(self, items: Sequence[Item]) -> None:
        """Do the items; wait for those that another runner has, and take over if it died."""
        try:
            elsewhere = [item for item in items if not self._start(item, wait=False)]
            self._land_all()
            for item in elsewhere:
                self._start(item, wait=True)
            self._land_all()
        except BaseException:
            self._cancel()
            raise
        finally:
            for _, held in self._flying.values():
                held.close()

    def _cancel(self) -> None:
        """End what is under way, and wait until it has ended: the workers may be used again."""
        tasks = [*self._flying, *self.arrays.values()]
        with suppress(RayError):
            for task in tasks:
                ray.cancel(task)
            if tasks:
                ray.wait(tasks, num_returns=len(tasks), timeout=PATIENCE)

    def _array(self, item: Item, part: Part) -> Any:
        """Return the task that makes an array; tokens wait for their raw inputs."""
        key = _key(item, part)
        if key not in self.arrays:
            raw = Part(part.modality, part.domain, encoded=False)
            after = [self._array(item, raw)] if part.encoded else []
            self.arrays[key] = self._make.remote(self.box, item, part, self.board, *after)
        return self.arrays[key]

    def _start(self, item: Item, wait: bool) -> bool:
        """Submit an item unless it is done; tell whether no other runner has it."""
        while len(self._flying) >= FLYING:
            self._land()
        with ExitStack() as stack:
            if not stack.enter_context(claim(self.place.results, item.key, wait)):
                return False
            rest = self.work.rest(item, self.place.results)
            if rest is not None:
                parts = self.work.arrays(rest)
                after = [self.arrays[_key(rest, part)] for part in parts] if self.arrays else []
                task = self._do.remote(self.box, rest, parts, self.board, *after)
                self._flying[task] = rest, stack.pop_all()
        return True

    def _land_all(self) -> None:
        while self._flying:
            self._land()

    def _land(self) -> None:
        """Wait for an item that is done, and write its files."""
        (task,), _ = ray.wait(list(self._flying))
        item, held = self._flying.pop(task)
        with held:
            self.work.write(self.place.results, item, self._outcomes(task, item))

    def _outcomes(self, task: Any, item: Item) -> Any:
        try:
            return ray.get(task)
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
                f"{self.work.name(item)} lost its worker {RETRIES + 1} times: {why} If memory ran "
                "out, give a cell more of --cpus-per-cell so that fewer run side by side; then "
                "run it again, what is finished is kept."
            ) from error


def _key(item: Item, part: Part) -> tuple[str, Part]:
    """Return what tells arrays apart: raw inputs serve every model."""
    return item.model if part.encoded else "", part
