"""The study of lr="auto", small enough to run here."""

import runpy
from pathlib import Path

import pytest

from dasp.bench.engines import Workspace

STUDY = Path(__file__).parents[2] / "studies/rate/auto_rate.py"


@pytest.fixture
def study():
    return runpy.run_path(str(STUDY))


def test_each_method_with_a_rate_has_a_row(study, tmp_path, capsys):
    workspace = Workspace(tmp_path / "results", tmp_path / "store", workers=1)
    methods = ("source", "tsa", "pta", "dasp")  # without a rate; of two modalities; keeps its rate
    study["main"](("sounding_shapes_depth_0",), methods, ("clean",), 8, None, workspace)
    lines = capsys.readouterr().out.strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:4]]
    assert [row[2] for row in rows] == ["pta", "dasp"]
    for _, _, _, _, default, tuned, auto, over_default, over_tuned in rows:
        auto = float(auto.removesuffix(" (kept)"))
        assert auto - float(default) == pytest.approx(float(over_default), abs=0.11)
        assert auto - float(tuned) == pytest.approx(float(over_tuned), abs=0.11)
    assert "(kept)" in rows[0][6]
    assert "(kept)" not in rows[1][6]
    assert "of 2 rows lose more than 0.3 points" in lines[-1]


def test_only_the_rate_differs_between_the_rows(study):
    assert study["rates"]("eata", "dsa") == {"default": 1e-4, "tuned": 0.01, "auto": "auto"}
    assert study["rates"]("tsa", "grid") == {"default": 1e-4, "tuned": 3e-4, "auto": 1e-4}
    assert study["data_of"]("grid_1", None).split == "validation"
    assert study["data_of"]("sounding_shapes_sound_0", None).flavour == "sound"
    assert study["streams_of"]("sounding_shapes_sound_0") == ("interleaved", "continual/audio")
    assert study["streams_of"]("sounding_shapes_depth_0") == (
        "interleaved/depth",
        "continual/depth",
    )
