"""A third sensor through the whole bench: plan, store, runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dasp.bench.features import Features, Part
from dasp.bench.plan_files import load_plan
from dasp.bench.references import find_method, find_model
from dasp.bench.results import read_result
from dasp.bench.runner import run_plan
from dasp.core.errors import OptionError
from dasp.methods import METHODS
from dasp.streams import Domain

SMALL = Path(__file__).with_name("small.py")


@pytest.fixture
def three(plan):
    return replace(
        plan,
        models=(f"{SMALL}:build_three",),
        protocols=("per_domain/depth", "interleaved/depth"),
        corruptions=("dropout", "fog"),
    )


def test_depth_is_damaged_diagnosed_and_counted(three, plan, place):
    three = replace(three, protocols=("per_domain/depth",))
    for path in run_plan(three, place, show=False):
        result = read_result(path)["result"]
        assert [d["name"] for d in result["domains"]] == ["depth/dropout/5", "depth/fog/5"]
        if read_result(path)["cell"]["method"] == "dasp":
            assert list(result["batches"]["scores"]) == ["audio", "video", "depth"]


def test_three_sensors_take_turns(three, place):
    three = replace(
        three, protocols=("interleaved/depth",), methods={"dasp": three.methods["dasp"]}
    )
    (path,) = run_plan(replace(three, clean_after=8), place, show=False)
    result = read_result(path)["result"]
    names = [domain["name"] for domain in result["domains"]]
    assert names == ["depth/dropout/5", "depth/fog/5", "video/fog/5"]
    assert set(result["clean_after"]) == {"seen", "joint", "audio", "video", "depth"}


def test_the_store_keeps_depth_by_its_own_domain(three, place):
    features = Features(three.data.open(), find_model(three.models[0]), place.open_store())
    fog = Domain("depth", "fog", 5)
    keys = [features.key(Part("depth", domain, encoded=True)) for domain in (None, fog)]
    assert keys[0]["damage"] == "" != keys[1]["damage"]
    video = Domain("video", "fog", 5)
    assert features.key(Part("depth", video, encoded=True)) == keys[0]
    clean, damaged = (features.get(Part("depth", d, encoded=False)) for d in (None, fog))
    assert clean.shape == damaged.shape == (20, 3, 32, 32)
    assert not np.array_equal(clean, damaged)


def test_a_model_without_the_sensor_is_refused_before_anything_runs(plan, three):
    with pytest.raises(OptionError, match=r"'continual/depth' damages depth, which .* not take"):
        replace(plan, protocols=("continual/depth",)).cells()
    assert replace(three, protocols=("interleaved",), corruptions=()).cells()


def test_the_plan_has_every_method_that_takes_three_modalities():
    plan = load_plan("robust/three")
    able = {name for name in METHODS if not find_method(name).exactly_two_modalities}
    assert {entry.method for entry in plan.methods.values()} == able
    assert {find_model(model).modalities for model in plan.models} == {("audio", "video", "depth")}
