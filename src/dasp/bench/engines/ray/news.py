"""What the tasks of a Ray cluster report, as the queue that the progress bars listen to."""

import time
from collections import deque
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dasp.bench.engines.ray.tasks import PAUSE, Board
from dasp.core.clock import Seconds

Row = tuple[str, int, Seconds]


class News:
    """Reads a board that lies near this process, so that no other node's end takes it away."""

    def __init__(self) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
        self.board: Any = ray.remote(Board).options(**options).remote()
        self._rows: deque[Row] = deque()
        self._last: Row | None = None

    def get(self) -> Row:
        """Return the next row, as soon as there is one."""
        while not self._rows:
            if self._last is not None:
                return self._last
            time.sleep(PAUSE)
            self._read()
        return self._rows.popleft()

    def put(self, row: Row) -> None:
        """End with this row, after all that is on the board."""
        self._read()
        self._last = row

    def _read(self) -> None:
        try:
            self._rows.extend(ray.get(self.board.take.remote()))
        except RayError:  # the bars are no reason to end a run
            return
