"""The Ray engine on a cluster of two nodes: a store of each, and a node that is lost."""

import os
import signal
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from dasp.bench.engines.ray import Ray
from dasp.bench.runner import run_plan
from dasp.core.errors import OptionError

QUICK_TO_NOTICE = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder of each node, as its own disk."""
    return [tmp_path_factory.mktemp(f"node{number}") for number in range(2)]


@pytest.fixture(scope="module")
def cluster(scratch, patiently):
    """Two nodes of one CPU, whose SCRATCH are different folders."""
    first, second = ({"num_cpus": 1, "env_vars": {"SCRATCH": str(path)}} for path in scratch)
    head = first | {"include_dashboard": False, "_system_config": QUICK_TO_NOTICE}
    cluster = patiently(Cluster, initialize_head=True, head_node_args=head)
    patiently(cluster.add_node, **second)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def engine(cluster):
    return Ray(address=cluster.address)


def test_each_node_fills_a_store_of_its_own(
    watched, place, elsewhere, folder, engine, scratch, said, begun, meanwhile, wait_until
):
    (folder / "hold").touch()
    own = replace(place, store=Path("$SCRATCH/store"), workers=None)

    def let_both_begin():
        wait_until(lambda: len(begun()) == 2)
        (folder / "go").touch()

    with meanwhile(let_both_begin):
        paths = run_plan(watched, own, show=False, engine=engine)
    assert said(paths) == said(run_plan(watched, elsewhere, show=False))
    made = sorted(path.name for path in elsewhere.store.glob("*.npy"))
    for folder in scratch:
        assert sorted(path.name for path in (folder / "store").glob("*.npy")) == made
        assert not list((folder / "store").glob("*.seen"))


def test_cells_of_a_lost_node_are_done_by_another(
    watched, place, elsewhere, folder, engine, cluster, said, begun, meanwhile, wait_until, capsys
):
    (folder / "hold").touch()

    def lose_a_node():
        wait_until(lambda: len(begun()) == 2)
        (lost,) = cluster.worker_nodes
        cluster.remove_node(lost, allow_graceful=False)
        (process,) = (process for _, process, node in begun() if node == lost.node_id)
        with suppress(ProcessLookupError):  # it ends by itself, in a while
            os.kill(process, signal.SIGKILL)
        (folder / "go").touch()

    with meanwhile(lose_a_node):
        paths = run_plan(watched, replace(place, workers=None), show=False, engine=engine)
    seeds = [seed for seed, *_ in begun()]
    assert set(seeds) == {0, 1, 2, 3}
    assert len(seeds) == 5
    assert said(paths) == said(run_plan(watched, elsewhere, show=False))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}"])
def test_an_address_where_nobody_answers_is_named(watched, place, address):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else will
        address = address.format(port=free.getsockname()[1])
        with pytest.raises(OptionError, match=f"the Ray cluster at {address} cannot be used"):
            run_plan(watched, replace(place, workers=None), show=False, engine=Ray(address))
