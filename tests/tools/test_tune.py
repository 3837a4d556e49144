"""Options are chosen on validation data, by one rule for all methods."""

import sys
from pathlib import Path

import pytest

from dasp.bench.datasets import DataOptions
from dasp.bench.engines import Workspace
from dasp.bench.plan import MethodRow, Plan
from dasp.bench.runner import run_plan

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import tune as tune_module  # noqa: E402
from tune import grid, tune, tuning_plan  # noqa: E402


@pytest.fixture
def plan():
    rows = {name: MethodRow(name) for name in ("source", "tent")}
    rows["dasp"] = MethodRow("dasp", {"delta": 0.0})
    return Plan(
        data=DataOptions(samples=20),
        models=(f"{ROOT}/tests/bench/small.py:build",),
        methods=rows,
        batch_sizes=(8,),
        corruptions=("contrast",),
    )


def test_other_data_and_the_same_rates_for_all(plan):
    wide = tuning_plan(plan, ("interleaved",))
    assert wide.data.split == "validation"
    assert wide.data.seed != plan.data.seed
    rates = [setting["lr"] for setting in grid("dasp")]
    assert [setting["lr"] for setting in grid("tent")] == rates
    assert {setting["lr"] for setting in grid("eata")} == set(rates)
    assert len(grid("eata")) == 2 * len(rates)
    assert grid("source") == [{}]
    assert len(wide.methods) == 1 + 2 * len(rates)


def test_the_setting_with_the_highest_accuracy_is_chosen(plan, tmp_path, monkeypatch):
    workspace = Workspace(tmp_path / "results", tmp_path / "store", workers=0)
    monkeypatch.setattr(tune_module, "LEARNING_RATES", (1e-3, 1.0))
    protocols = ("continual/video", "interleaved")
    found = tune(plan, protocols, workspace, show=False)
    assert list(found) == ["source", "tent", "dasp"]
    runs = run_plan(tuning_plan(plan, protocols), workspace, "tune", show=False)
    for label, chosen in found.items():
        means = {n: sum(r.counts.accuracy for r in runs[n]) / 2 for n in chosen["tried"]}
        assert chosen["tried"] == pytest.approx(means)
        assert chosen["accuracy"] == max(means.values())
        best = max(means, key=means.get)
        assert label == "source" or f"{label}@lr={chosen['options']['lr']:g}" == best
    assert found["dasp"]["options"]["delta"] == 0.0  # what the row says of others stays
