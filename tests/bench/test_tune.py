"""Options are chosen on validation data, by one rule for all methods."""

import pytest

from dasp.bench import tune as tune_module
from dasp.bench.runner import run_plan
from dasp.bench.tune import grid, tune, tuning_plan


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


def test_the_setting_with_the_highest_accuracy_is_chosen(plan, workspace, monkeypatch):
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
