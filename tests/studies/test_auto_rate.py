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
    study["main"](("sounding_shapes_depth_0",), methods, ("clean",), samples=8, workspace=workspace)
    _, _, source, pta, dasp, _, last = capsys.readouterr().out.strip().splitlines()
    assert source.startswith("| source |")
    assert pta.startswith("| pta |")
    assert "kept" in pta
    default, _, auto = (float(share) for share in dasp.split("|")[2].split(" / "))
    assert default <= auto <= 100
    assert last == "0 of 1 lose more than 0.3 points"


def test_only_the_rate_differs_between_the_rows(study):
    assert study["rates"]("dasp", "dsa") == {"default": 1e-4, "tuned": 0.003, "auto": "auto"}
    assert study["rates"]("eata", "dsa") == {"default": 1e-4, "tuned": 0.01, "auto": 1e-4}
    assert study["rates"]("tsa", "grid") == {"default": 1e-4, "tuned": 3e-4, "auto": 1e-4}
    assert study["data_of"]("grid_1", None).split == "validation"
    assert study["data_of"]("dsa_units_0", Path("here")).root == Path("here/dsa")
    assert study["data_of"]("sounding_shapes_sound_0", None).flavour == "sound"
    assert study["streams_of"]("sounding_shapes_sound_0") == ("interleaved", "continual/audio")
    assert study["streams_of"]("sounding_shapes_depth_0") == (
        "interleaved/depth",
        "continual/depth",
    )
