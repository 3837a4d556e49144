"""The Ray engine on real clusters of this machine: the same results, whatever happens."""

import os
import shutil
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from dasp.bench.datasets import DataOptions
from dasp.bench.engines import open_engine, open_features
from dasp.bench.engines import ray as ray_module
from dasp.bench.engines.ray import connected, portable, sent_workspace
from dasp.bench.plan import with_methods, with_settings
from dasp.bench.results import finished, is_done, read_folder
from dasp.bench.runner import run_plan
from dasp.core.errors import DataError, OptionError

SMALL = Path(__file__).parents[1] / "small.py"
QUICK_TO_NOTICE = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}


def local(plan, workspace):
    return run_plan(plan, replace(workspace, workers=0), show=False)


def jobs_of(plan):
    return [job for _, job in plan.jobs()]


# Without a cluster, or with one for a single run.


@pytest.mark.parametrize(
    ("workers", "options", "message"),
    [
        (None, {"gpus_per_run": -1.0}, "cpus-per-run must be above 0"),
        (None, {"cpus_per_run": 0.0}, "cpus-per-run must be above 0"),
        (0, {}, "--workers is the number of CPUs"),
        (2, {"address": "auto"}, "--workers is the number of CPUs"),
    ],
)
def test_impossible_options_are_refused(plan, workspace, workers, options, message):
    with pytest.raises(OptionError, match=message):
        open_engine("ray", **options)(jobs_of(plan), replace(workspace, workers=workers), False)


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}"])
def test_an_address_where_nobody_answers_is_named(plan, workspace, address):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else will
        address = address.format(port=free.getsockname()[1])
        with pytest.raises(OptionError, match=f"the Ray cluster at {address} cannot be used"):
            open_engine("ray", address=address)([], replace(workspace, workers=None), False)


def test_paths_are_found_from_any_directory(plan, workspace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = replace(jobs_of(plan)[0], model="w.pth", data=DataOptions(noise_dir=Path("noise")))
    moved = portable(job)
    assert (moved.model, moved.data.noise_dir) == (str(tmp_path / "w.pth"), tmp_path / "noise")
    own = portable(replace(job, model="mine.py:build", data=DataOptions("data.py:build")))
    assert (own.model, own.data.name) == (f"{tmp_path}/mine.py:build", f"{tmp_path}/data.py:build")
    for store, found in {
        "store": tmp_path / "store",
        "$TMPDIR/store": Path("$TMPDIR/store"),
        "~/store": Path("~/store"),
    }.items():
        assert sent_workspace(replace(workspace, store=Path(store))).store == found


def test_other_files_than_those_planned_with_are_refused(plan, workspace):
    job = portable(jobs_of(plan)[0])
    open_features(job, workspace)
    for change, message in (
        ({"model": job.run.model | {"digest": "0"}}, "other weights here than when"),
        ({"data": job.run.data | {"version": 0}}, "other data here than when"),
        ({"versions": {"method": ["Source 0"], "loop": 0}}, "another method here than when"),
    ):
        with pytest.raises(DataError, match=message):
            open_features(replace(job, run=replace(job.run, **change)), workspace)


# On a cluster that is started here, for all the following tests.


def patiently(function, *given, **more):
    """Start something of Ray's again if it gave up: on a busy machine it takes long."""
    for _ in range(4):
        with suppress(Exception):
            return function(*given, **more)
    return function(*given, **more)


@pytest.fixture(scope="module")
def cluster():
    with ExitStack() as stack:
        patiently(lambda: stack.enter_context(connected(None, 2)))
        yield


@pytest.fixture
def on_ray(cluster, workspace):
    """Run a plan on the cluster."""

    def run(plan, show=False, **needs):
        engine = open_engine("ray", **needs)
        return run_plan(plan, replace(workspace, workers=None), show=show, engine=engine)

    return run


def test_the_results_are_those_of_the_local_engine(plan, workspace, elsewhere, counted, on_ray):
    chosen = with_methods(plan, [*plan.methods, f"{SMALL}:Mine"])
    found = counted(on_ray(chosen, show=True))
    assert len(found) == 8
    assert found == counted(local(chosen, elsewhere))
    stored = {path.name: path.read_bytes() for path in workspace.store.glob("*.npy")}
    assert stored == {path.name: path.read_bytes() for path in elsewhere.store.glob("*.npy")}


def test_what_is_done_is_not_done_again(watched, workspace, begun, on_ray):
    on_ray(replace(watched, seeds=(0, 1, 3)))
    local(replace(watched, seeds=(4,)), workspace)
    assert [seed for seed, *_ in begun()][3:] == [4]
    on_ray(replace(watched, seeds=(0, 1, 2, 3, 4)))
    assert [seed for seed, *_ in begun()][4:] == [2]
    local(watched, workspace)
    assert len(begun()) == 5


def test_own_files_are_found_from_the_folder_of_the_workers(watched, tmp_path, monkeypatch, on_ray):
    """The workers began in another folder, where these relative paths lead nowhere."""
    (tmp_path / "mine.py").write_text(SMALL.read_text())
    monkeypatch.chdir(tmp_path)
    own = replace(with_methods(watched, ["mine.py:Mine"]), models=("mine.py:build",), seeds=(0,))
    ((result,),) = on_ray(replace(own, data=DataOptions("mine.py:Levels"))).values()
    assert (result.run.method, result.run.data["name"]) == ("mine.py:Mine", "levels")


def test_an_error_of_a_run_is_told_and_not_tried_again(watched, begun, on_ray):
    bad = with_settings(replace(watched, seeds=(0,)), ["watched.fails=true"])
    with pytest.raises(DataError, match=r"^this run cannot be done: mend it$"):
        on_ray(bad)
    assert len(begun()) == 1


def test_other_software_on_a_node_is_refused(plan, workspace, monkeypatch, on_ray):
    monkeypatch.setattr(ray_module, "software", lambda method: "dasp 0.0.1")
    with pytest.raises(OptionError, match=r"node .* has dasp .* started with dasp 0\.0\.1"):
        on_ray(plan)
    assert set(finished(workspace.results)) == set()


@pytest.mark.parametrize("needs", [{"gpus_per_run": 1.0}, {"cpus_per_run": 64.0}])
def test_a_run_that_fits_nowhere_is_refused(plan, on_ray, needs):
    with pytest.raises(OptionError, match=r"no node .*there are: 2 CPU, 0 GPU"):
        on_ray(plan, **needs)


@pytest.mark.parametrize("lost", ["worker", "store"])
def test_a_worker_or_a_store_that_is_lost_is_replaced(
    watched, workspace, elsewhere, folder, counted, begun, meanwhile, wait_until, on_ray, lost
):
    (folder / "hold").touch()
    killed = []

    def lose():
        wait_until(lambda: len(begun()) == 2)  # both workers hold: nothing is being written
        seed, process, _ = begun()[0]
        if lost == "worker":
            killed.append(seed)
            os.kill(process, signal.SIGKILL)
        else:
            shutil.rmtree(workspace.store)
        (folder / "go").touch()

    with meanwhile(lose):
        rows = on_ray(watched)
    assert sorted(seed for seed, *_ in begun()) == sorted([0, 1, 2, 3, *killed])
    assert counted(rows) == counted(local(watched, elsewhere))
    assert any(workspace.store.glob("*.npy"))


def test_an_interruption_keeps_what_is_done(
    watched, workspace, folder, elsewhere, counted, begun, meanwhile, wait_until, on_ray
):
    (folder / "hold").touch()
    many = replace(watched, seeds=tuple(range(30)))
    runs = [job.run for job in jobs_of(many)]
    let_go = []

    def interrupt_after_one():
        wait_until(begun)
        seed = begun()[0][0]
        let_go.append(runs[seed].key)
        (folder / f"go-{seed}").touch()
        wait_until(lambda: is_done(workspace.results, runs[seed]))
        os.kill(os.getpid(), signal.SIGINT)

    with meanwhile(interrupt_after_one), pytest.raises(KeyboardInterrupt):
        on_ray(many)
    assert list(read_folder(workspace.results).results) == let_go
    (folder / "go").touch()
    rows = on_ray(watched)
    assert len(begun()) < 30  # what was cancelled does not go on
    assert counted(rows) == counted(local(watched, elsewhere))


def test_two_runners_do_not_wait_for_each_other(watched, workspace, cluster, begun):
    """Each holds a run that the other wants, in threads here: locks know no difference."""
    first, second = jobs_of(replace(watched, seeds=(0, 1)))
    place = replace(workspace, workers=None)
    runners = [
        threading.Thread(target=ray_module.run, args=(jobs, place, False), daemon=True)
        for jobs in ([first, second], [second, first])
    ]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(timeout=100)
    assert not any(runner.is_alive() for runner in runners)
    assert sorted(seed for seed, *_ in begun()) == [0, 1]
    assert set(finished(workspace.results)) == {first.run.key, second.run.key}


def test_two_nodes_have_a_store_each_and_one_does_the_runs_of_the_other_when_it_is_lost(
    watched, workspace, elsewhere, folder, counted, begun, meanwhile, wait_until, tmp_path, capsys
):
    ray.shutdown()  # the cluster of the tests above
    first, second = (
        {"num_cpus": 1, "env_vars": {"SCRATCH": str(tmp_path / name)}} for name in "ab"
    )
    head = first | {"include_dashboard": False, "_system_config": QUICK_TO_NOTICE}
    cluster = patiently(Cluster, initialize_head=True, head_node_args=head)
    lost = patiently(cluster.add_node, **second)
    (folder / "hold").touch()

    def lose_a_node():
        wait_until(lambda: len(begun()) == 2)
        cluster.remove_node(lost, allow_graceful=False)
        (process,) = (process for _, process, node in begun() if node == lost.node_id)
        with suppress(ProcessLookupError):  # it ends by itself, in a while
            os.kill(process, signal.SIGKILL)
        (folder / "go").touch()

    own = replace(workspace, store=Path("$SCRATCH/store"), workers=None)
    try:
        with meanwhile(lose_a_node):
            engine = open_engine("ray", address=cluster.address)
            rows = run_plan(watched, own, show=False, engine=engine)
    finally:
        cluster.shutdown()
    seeds = [seed for seed, *_ in begun()]
    assert set(seeds) == {0, 1, 2, 3}
    assert len(seeds) == 5
    assert counted(rows) == counted(local(watched, elsewhere))
    made = sorted(path.name for path in elsewhere.store.glob("*.npy"))
    for node in "ab":
        assert sorted(path.name for path in (tmp_path / node / "store").glob("*.npy")) == made
    assert capsys.readouterr().out == ""  # Ray's page about a lost node is kept off it
