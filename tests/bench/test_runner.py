"""Plans run to their end: whatever stops them, however many run at once, never twice."""

import multiprocessing
import os
import shutil
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dasp.bench.cells import run_job
from dasp.bench.engines import local, open_engine
from dasp.bench.features import Features
from dasp.bench.plan import MethodRow, with_methods
from dasp.bench.references import find_model
from dasp.bench.results import claimed, is_done, read_folder, read_plans
from dasp.bench.runner import run_plan, survey
from dasp.core.errors import ContractError, DataError, OptionError

SMALL = Path(__file__).with_name("small.py")


def test_a_second_run_does_nothing_and_other_settings_stand_beside(plan, workspace, monkeypatch):
    first = run_plan(plan, workspace, "mine", "dasp bench mine", show=False)
    packed = (workspace.results / "runs.jsonl.gz").read_bytes()
    other = replace(plan, batch_sizes=(16,))
    run_plan(other, workspace, "mine", "dasp bench mine --batch-sizes 16", show=False)
    assert len(read_folder(workspace.results).results) == 12
    monkeypatch.setattr("dasp.bench.engines.local.run_job", None)
    assert run_plan(plan, workspace, "mine", show=False) == first
    (record,) = read_plans(workspace.results)  # the last settings, and no run of the others
    assert record.rows == [(label, job.run.key) for label, job in plan.jobs()]
    assert survey(other.jobs(), workspace.results)[0] == []
    assert len(packed) < (workspace.results / "runs.jsonl.gz").stat().st_size


def test_workers_and_the_store_do_not_change_a_bit(plan, workspace, elsewhere, counted):
    plan = replace(plan, protocols=("interleaved",))
    alone = counted(run_plan(plan, workspace, show=False))
    assert counted(run_plan(plan, replace(elsewhere, workers=2), show=True)) == alone
    torch.set_num_threads(1)
    for _, job in plan.jobs():
        bare = run_job(job, Features(plan.data.open(), find_model(job.model), None))
        assert counted({"": [bare]}).items() <= alone.items()


def test_rows_that_are_the_same_run_are_run_once(one_run, workspace):
    twice = replace(one_run, methods={"a": one_run.methods["dasp"], "b": one_run.methods["dasp"]})
    assert len(survey(twice.jobs(), workspace.results)[0]) == 1
    rows = run_plan(twice, workspace, show=False)
    assert rows["a"] == rows["b"]


def test_methods_and_models_of_the_users_own(plan, workspace):
    rows = run_plan(with_methods(plan, ["source", f"{SMALL}:Mine"]), workspace, show=False)
    assert set(rows) == {"source", "mine"}
    assert {result.run.model["name"] for result in rows["mine"]} == {"small"}
    example = SMALL.parents[2] / "examples" / "own_method.py"
    chosen = with_methods(plan, [f"{example}:LastBlockTent"])
    chosen = replace(chosen, models=(f"{example}:build",), protocols=("continual/video",))
    ((result,),) = run_plan(chosen, workspace, show=False).values()
    assert result.counts.updates == 6


def test_what_another_runner_has_finished_and_packed_is_not_run_again(watched, workspace, begun):
    todo = survey(watched.jobs(), workspace.results)[0]
    run_plan(watched, workspace, show=False)
    local.run(todo, workspace, show=False)  # a runner that began with the same list
    assert len(begun()) == 4


def test_a_run_of_a_runner_that_died_is_taken_over(watched, workspace, begun, folder, wait_until):
    (folder / "hold").touch()
    process = fork(run_plan, watched, workspace)
    wait_until(begun)
    runs = [job.run for _, job in watched.jobs()]
    other = fork(run_plan, watched, workspace)
    wait_until(lambda: len(begun()) == 2)  # the second has begun another run
    with claimed(workspace.results, runs[0].key) as mine:
        assert not mine
    kill(process)
    (folder / "go").touch()
    other.join()
    assert other.exitcode == 0
    seeds = [seed for seed, *_ in begun()]
    assert sorted(seeds) == [0, 0, 1, 2, 3]
    assert len(read_folder(workspace.results).results) == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interruption_ends_at_once_and_keeps_what_is_done(
    watched, workspace, folder, begun, wait_until, counted, elsewhere, workers
):
    (folder / "hold").touch()
    (folder / "go-0").touch()
    process = fork(run_plan, watched, replace(workspace, workers=workers))
    runs = [job.run for _, job in watched.jobs()]
    others = max(1, workers)  # held
    wait_until(lambda: is_done(workspace.results, runs[0]) and len(begun()) == 1 + others)
    os.kill(process.pid, signal.SIGINT)
    process.join(timeout=3)
    stopped = process.exitcode
    kill(process)
    assert stopped == 1
    for _, worker, _ in begun():
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
    assert len(read_folder(workspace.results).results) == 1
    (folder / "go").touch()
    found = run_plan(watched, workspace, show=False)
    seeds = [seed for seed, *_ in begun()]
    assert sorted(seeds) == sorted([0, 1, 2, 3, *range(1, 1 + others)])
    assert counted(found) == counted(run_plan(watched, elsewhere, show=False))


def test_a_worker_that_is_killed_is_told(watched, workspace, folder, begun, meanwhile, wait_until):
    (folder / "hold").touch()

    def kill_one():
        wait_until(begun)
        os.kill(begun()[0][1], signal.SIGKILL)

    with meanwhile(kill_one), pytest.raises(DataError, match="a worker process was killed"):
        run_plan(watched, replace(workspace, workers=2), show=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_method_that_ends_the_program_is_a_failed_run(plan, workspace, tmp_path, workers):
    file = tmp_path / "quits.py"
    text = SMALL.read_text().replace("logits = self.forward(batch)", "sys.exit(0)\n        x")
    file.write_text(text)
    chosen = replace(with_methods(plan, [f"{file}:Mine"]), protocols=("interleaved",))
    with pytest.raises(ContractError, match=r"interleaved .*quits.py:Mine small failed.*sys.exit"):
        run_plan(chosen, replace(workspace, workers=workers), show=False)
    file.write_text("import sys\nsys.exit()")
    with pytest.raises(OptionError, match=r"quits.py calls sys.exit"):
        chosen.jobs()


def fork(function, *given):
    """Start a runner in a process group of its own."""

    def target():
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        function(*given, show=False)

    process = multiprocessing.get_context("fork").Process(target=target)
    process.start()
    return process


def kill(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()


def test_killed_at_any_moment_it_ends_with_the_same_results(
    plan, workspace, elsewhere, counted, wait_until
):
    rows = {name: MethodRow(name, {"lr": 1e-3}) for name in ("source", "tent", "read", "dasp")}
    longer = replace(plan, methods=rows)
    expected = counted(run_plan(longer, elsewhere, show=False))
    assert len(expected) == 8
    both = replace(workspace, workers=2)
    runs = workspace.results / "runs"
    moments = [
        lambda: any(workspace.store.glob(".inputs-*.npy")),
        lambda: any(workspace.store.glob("tokens-*.npy")),
        lambda: any(runs.glob("*.json")),
        lambda: len(list(runs.glob("*.json"))) >= 3,
    ]
    for moment in moments:
        process = fork(run_plan, longer, both)
        wait_until(lambda moment=moment, process=process: moment() or not process.is_alive())
        kill(process)
    assert counted(run_plan(longer, both, show=False)) == expected
    for path in elsewhere.store.glob("*.npy"):
        assert np.array_equal(np.load(path), np.load(workspace.store / path.name))


def test_a_run_survives_the_removal_of_its_store(plan, workspace, elsewhere, counted):
    expected = counted(run_plan(plan, elsewhere, show=False))
    process = fork(run_plan, plan, replace(workspace, workers=2))
    removed = 0
    while process.is_alive():
        if removed < 5 and any(workspace.store.glob("*.npy")):
            shutil.rmtree(workspace.store, ignore_errors=True)
            removed += 1
        process.join(0.05)
    assert process.exitcode == 0
    assert removed > 0
    assert counted(run_plan(plan, workspace, show=False)) == expected


def test_two_runners_share_a_folder_without_double_work(watched, workspace, begun):
    many = replace(watched, seeds=tuple(range(12)))
    runners = [fork(run_plan, many, replace(workspace, workers=workers)) for workers in (2, 0)]
    for runner in runners:
        runner.join()
    assert [runner.exitcode for runner in runners] == [0, 0]
    assert sorted(seed for seed, *_ in begun()) == list(range(12))
    assert len(read_folder(workspace.results).results) == 12
    assert not list((workspace.results / "runs").glob("*"))


def test_engines_by_name(monkeypatch):
    assert open_engine("local", address=None).func is local.run
    with pytest.raises(OptionError, match="--cpus-per-run is for clusters: give --engine ray"):
        open_engine("local", cpus_per_run=2.0)
    monkeypatch.setattr("dasp.bench.engines.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'dasp-tta\[ray\]'"):
        open_engine("ray")


def test_costs_are_measured_here_whatever_the_engine(plan, workspace, monkeypatch):
    def measure_costs(jobs, *_):
        raise RuntimeError(f"{len(jobs)} are measured here")

    monkeypatch.setattr("dasp.bench.runner.measure_costs", measure_costs)
    with pytest.raises(RuntimeError, match="6 are measured here"):
        run_plan(replace(plan, kind="efficiency"), workspace, engine=object(), show=False)
