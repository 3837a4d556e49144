"""Connecting to a Ray cluster, and what its nodes are like."""

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dasp.bench.engines.ray.tasks import Box, look
from dasp.core.errors import DaspError, OptionError

OBJECTS = 100 * 2**20  # bytes for what passes between processes: results, not arrays


@dataclass(frozen=True)
class Needs:
    """What a task is given of a node."""

    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.cpus <= 0 or self.gpus < 0:
            raise OptionError(
                f"--cpus-per-cell is more than 0 and --gpus-per-cell is not negative: "
                f"{self.cpus:g}, {self.gpus:g}."
            )

    def options(self) -> dict[str, float]:
        """Return them as options of a task."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}


@contextmanager
def connected(address: str | None, cpus: int | None) -> Iterator[None]:
    """Connect to the cluster at an address, or start one here with some CPUs; leave it at the end.

    A program that is connected already stays so.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would go over the network
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if address is None:
            ray.init(
                "local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=OBJECTS,
                **quiet,
            )
        else:
            _reach(address)
            ray.init(address, **quiet)
    except Exception as error:  # Ray has no class of its own for what may go wrong here
        raise OptionError(_unreachable(address, error)) from error
    # Of a lost node Ray prints a page of its log to standard output, where the report goes.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            yield
        finally:
            ray.shutdown()


def _reach(address: str) -> None:
    """Raise at once where nothing answers at HOST:PORT: Ray would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


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


def fitting_nodes(needs: Needs) -> list[dict[str, Any]]:
    """Return the nodes that a cell fits on; none is an error, for it would wait for ever."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    alive = [node for node in nodes if node["Alive"]]
    wanted = {"CPU": needs.cpus, "GPU": needs.gpus}
    found = [
        node
        for node in alive
        if all(node["Resources"].get(name, 0.0) >= count for name, count in wanted.items())
    ]
    if not found:
        have = "; ".join(
            ", ".join(f"{node['Resources'].get(name, 0.0):g} {name}" for name in wanted)
            for node in alive
        )
        raise OptionError(
            f"no node of the cluster has the {needs.cpus:g} CPU and {needs.gpus:g} GPU that a cell "
            f"is to be given (there are: {have}): lower --cpus-per-cell or --gpus-per-cell."
        )
    return found


def same_store(box: Box, nodes: list[dict[str, Any]]) -> bool:
    """Tell whether all nodes see one store: whether a file left by the first is found by all.

    Every node is asked, so that one that cannot run anything is found before anything starts.
    """
    name = f".{secrets.token_hex(8)}.seen"
    first, *others = nodes
    _answers(box, name, True, [first])
    found = _answers(box, name, True, others)
    _answers(box, name, False, nodes)
    return all(found)


def _answers(box: Box, name: str, leave: bool, nodes: list[dict[str, Any]]) -> list[bool]:
    tasks = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ask = ray.remote(look).options(num_cpus=0, scheduling_strategy=there)
        tasks.append((node, ask.remote(box, name, leave)))
    return [_answer(node, task) for node, task in tasks]


def _answer(node: dict[str, Any], task: Any) -> bool:
    try:
        found: bool = ray.get(task)
    except RayError as error:
        cause = getattr(error, "cause", error)
        if isinstance(cause, DaspError):
            raise cause from None
        raise OptionError(
            f"node {node['NodeManagerAddress']} of the cluster cannot run dasp: {cause}. Install "
            "the same version there as here, with the extra [ray]."
        ) from error
    return found
