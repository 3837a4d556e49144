"""One command for all benchmarks: what is kept, what fails, what is a goal."""

import json
from dataclasses import replace

import pytest
import run
from measuring import code_digest, command
from suite import GOALS, SUITE, Benchmark, Goal, judged


def test_every_benchmark_has_a_script_and_every_goal_a_benchmark():
    names = [one.name for one in SUITE]
    assert len(set(names)) == len(names)
    assert [one.name for one in SUITE if not one.path.exists()] == []
    assert {goal.result for goal in GOALS} <= set(names)


def test_the_worst_of_several_counts():
    figures = {"cases": {"a": {"ratio": 1.1}, "b": {"ratio": 1.4}, "c": {"other": 9}}}
    dear = Goal("x", "cases/*/ratio", "", at_most=1.25)
    assert (dear.measured(figures), dear.met(1.4), dear.bound) == (1.4, False, "≤ 1.25")
    fast = Goal("x", "cases/*/ratio", "", at_least=1.1)
    assert (fast.measured(figures), fast.met(1.1), fast.bound) == (1.1, True, "≥ 1.1")
    assert fast.measured({"nothing": 1}) is None


def test_goals_without_a_file_are_not_measured(tmp_path):
    assert all(value is None for _, value in judged(tmp_path))
    (tmp_path / "grid.json").write_text('{"seconds": {}}')  # of an earlier version
    assert all(value is None for _, value in judged(tmp_path))


@pytest.mark.parametrize(
    ("change", "done"),
    [
        ({}, True),
        ({"code": "of another time"}, False),
        ({"command": "python benchmarks/samples.py --calls 9"}, False),
    ],
)
def test_figures_of_the_same_code_and_settings_are_kept(tmp_path, change, done):
    one = Benchmark("samples", 1.0, ("--calls", "3"))
    path = tmp_path / "samples.json"
    assert not one.is_done(path, quick=False)
    words = [str(one.path), "--calls", "3"]
    path.write_text(
        json.dumps({"command": command(words), "code": code_digest("samples")} | change)
    )
    assert one.is_done(path, quick=False) is done
    assert not one.is_done(path, quick=True)
    assert not replace(one, reckons=True).is_done(path, quick=False)


@pytest.mark.parametrize("code", [0, 3])
def test_a_benchmark_that_fails_is_told(tmp_path, monkeypatch, code):
    script = tmp_path / "one.py"
    script.write_text(f"import sys; print('said', sys.argv[2]); sys.exit({code})")
    monkeypatch.setattr(Benchmark, "path", script)
    monkeypatch.setattr(run, "OUT", tmp_path)
    monkeypatch.setattr(run, "POLL", 0.01)
    assert run.run_one(Benchmark("one", 1.0), tmp_path, False, lambda _: None) is (code == 0)
    assert (tmp_path / "one.txt").read_text().strip() == f"said {tmp_path / 'one.json'}"
