"""Runs in which a modality is missing for stretches, with every method."""

from dataclasses import replace

import pytest

from dasp.bench.plan import Entry
from dasp.bench.results import read_result
from dasp.bench.runner import run_plan
from dasp.methods import METHODS


@pytest.mark.parametrize("modality", ["audio", "video"])
def test_every_method_goes_on_without_a_modality(plan, place, modality):
    methods = {name: Entry(name) for name in METHODS}
    protocol = f"missing/{modality}"
    stream = replace(
        plan, methods=methods, protocols=(protocol,), corruptions=("fog", "rain", "wind")
    )
    for path in run_plan(stream, place, show=False):
        result = read_result(path)["result"]
        names = [domain["name"] for domain in result["domains"]]
        silent = f"{modality}/missing"
        assert names == [
            "audio/rain/5",
            f"video/fog/5+{silent}" if modality == "audio" else silent,
            "audio/wind/5",
        ]
        assert result["seen"] == 60
        assert result["rejections"] == 0
        scores = result["batches"]["scores"]
        assert (scores is not None) == ("-dasp-" in path.name)
        if scores is not None:
            gaps = [score is None for score in scores[modality]]
            assert gaps == [False] * 3 + [True] * 3 + [False] * 3
            (other,) = set(scores) - {modality}
            assert None not in scores[other]
