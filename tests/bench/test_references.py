from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dasp.bench.features import Features, Part, model_digest
from dasp.bench.plan import Entry
from dasp.bench.references import find_model, model_name, split_kind
from dasp.bench.results import read_result
from dasp.bench.runner import run_plan
from dasp.core.errors import ContractError, OptionError
from dasp.models import faster

SMALL = f"{Path(__file__).with_name('small.py')}:build"


def test_a_kind_of_encoders_follows_any_reference():
    assert split_kind("a/weights.pth:bfloat16") == ("a/weights.pth", "bfloat16")
    assert split_kind("mine.py:build:int8") == ("mine.py:build", "int8")
    assert split_kind("mine.py:build") == ("mine.py:build", None)
    assert model_name("mine.py:build:int8") == "mine:int8"
    assert model_name("a/weights.pth") == "weights"
    fast = find_model("sounding_shapes_0:int8")
    assert fast.faster_encoders == "int8"
    assert not fast.training


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(OptionError, match="did you mean 'bfloat16'"):
        find_model("sounding_shapes_0:bfloat")
    with pytest.raises(OptionError, match=r"unknown kind of encoders in mine\.py:build:fast"):
        model_name("mine.py:build:fast")


def test_tokens_of_other_encoders_have_other_keys(plan):
    model, material = find_model(SMALL), plan.data.open()
    parts = Part("audio", None, encoded=True), Part("audio", None, encoded=False)
    models = [model, *(faster(model, kind) for kind in ("bfloat16", "int8")), find_model(SMALL)]
    tokens, inputs = ([Features(material, own, None).key(part) for own in models] for part in parts)
    assert tokens[0] == tokens[3]
    assert len({str(key) for key in tokens}) == 3
    assert len({str(key) for key in inputs}) == 1
    assert model_digest(faster(model, "int8")) == model_digest(faster(find_model(SMALL), "int8"))


def test_runs_with_other_encoders_stand_beside_each_other(one_run, place):
    both = replace(one_run, models=(SMALL, f"{SMALL}:int8"))
    files = [read_result(path) for path in run_plan(both, place, show=False)]
    names = [file["cell"]["model"]["name"] for file in files]
    scores = [torch.tensor(file["result"]["batches"]["scores"]["audio"]) for file in files]
    assert names == ["small", "small:int8"]
    assert not torch.equal(*scores)
    torch.testing.assert_close(*scores, atol=0.02, rtol=0)


def test_a_method_that_tunes_encoders_is_refused_before_anything_runs(plan):
    wrong = replace(plan, models=(f"{SMALL}:int8",), methods={"tent": Entry("tent")})
    with pytest.raises(ContractError, match="Tent tunes the encoders"):
        wrong.cells()
