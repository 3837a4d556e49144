import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study():
    sys.path.insert(0, str(ROOT / "studies" / "indicators"))
    import study

    return study


def test_committed_measurements_give_the_figures_of_the_docs(tmp_path):
    script = ROOT / "studies" / "indicators" / "study.py"
    words = [sys.executable, str(script), "--plan", "indicators", "flags", "--out", str(tmp_path)]
    subprocess.run(words, check=True, capture_output=True)
    table = pd.read_csv(
        tmp_path / "indicators" / "indicators-correlation.csv", index_col="modality"
    )
    assert table.loc["all", "released"] == pytest.approx(-0.90, abs=0.005)
    table = pd.read_csv(tmp_path / "flags" / "flags-batch64-shuffled.csv", index_col="indicator")
    assert table["all hits"].idxmax() == "mean distance"
    assert table.loc["profile", "threshold"] == 5.0
    assert table.loc["profile", "all hits"] == pytest.approx(60, abs=0.5)


def test_a_model_is_measured(study, tmp_path):
    plan = {"models": ["sounding_shapes_0"], "severities": [5], "batch_sizes": [8]}
    plan["data"] = {"samples": 8}
    pointing = study.measured(plan | {"kind": "indicators"}, tmp_path)
    assert (
        dict(study.pointing_tables(pointing))["indicators-naming-by-damaged"].damaged.iloc[-1]
        == "any"
    )
    flags = study.measured(plan | {"kind": "flags"}, tmp_path)["flags"]
    assert (flags[study.LIMITS].max(axis=1) <= flags.batches).all()
    assert (flags[study.LIMITS].diff(axis=1).iloc[:, 1:] <= 0).all(axis=None)
