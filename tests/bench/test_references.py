"""Methods and models by what a user writes, and what tells one version of them from another."""

from pathlib import Path

import pytest

from dasp.bench.features import Features, FeatureSpec
from dasp.bench.references import (
    find_method,
    find_model,
    from_file,
    model_digest,
    model_name,
    versions_of,
)
from dasp.core.errors import ContractError, OptionError
from dasp.models import faster

FILE = Path(__file__).with_name("small.py")
SMALL = f"{FILE}:build"


def test_references_are_read_and_unknown_names_have_the_nearest():
    assert model_name("a/mine.py:build:int8") == "mine:int8"
    assert model_name("a/weights.pth") == "weights"
    fast = find_model("sounding_shapes_0:int8")
    assert (fast.faster_encoders, fast.training) == ("int8", False)
    with pytest.raises(OptionError, match="did you mean 'bfloat16'"):
        find_model("sounding_shapes_0:bfloat")
    with pytest.raises(OptionError, match=r"unknown kind of encoders in mine\.py:build:fast"):
        model_name("mine.py:build:fast")
    with pytest.raises(OptionError, match="did you mean 'build'"):
        find_model(f"{FILE}:biuld")
    with pytest.raises(ContractError, match="must return a torch module"):
        find_model(f"{FILE}:_node")


def test_an_edited_file_is_imported_anew_and_a_broken_one_can_be_mended(tmp_path):
    file = tmp_path / "own.py"
    for value in (1, 2):
        file.write_text(f"def number():\n    return {value}\n")
        assert from_file(f"{file}:number")() == value
        assert from_file(f"{file}:number") is from_file(f"{file}:number")
    file.write_text("raise RuntimeError('unfinished')")
    with pytest.raises(RuntimeError, match="unfinished"):
        from_file(f"{file}:number")
    file.write_text("number = int")
    assert from_file(f"{file}:number")() == 0


def test_versions_are_those_of_a_method_and_all_that_it_is_built_on(tmp_path):
    file = tmp_path / "own.py"
    text = "from dasp.methods import Dasp\nclass Mine(Dasp):\n    version = 3\n"
    file.write_text(text)
    reference = f"{file}:Mine"
    (mine, *parents), loop = versions_of(reference).values()
    assert mine.startswith("Mine 3 ")
    assert parents == versions_of("dasp")["method"]
    assert loop == versions_of("tent")["loop"]
    find_method("dasp").version, before = 7, find_method("dasp").version
    try:
        assert versions_of(reference)["method"][1] == "Dasp 7"
    finally:
        find_method("dasp").version = before
    file.write_text(text + "# edited\n")
    assert versions_of(reference)["method"][0] != mine


def test_tokens_of_other_encoders_have_other_keys(plan):
    model, dataset = find_model(SMALL), plan.data.open()
    specs = FeatureSpec("audio", None, encoded=True), FeatureSpec("audio", None, encoded=False)
    models = [model, *(faster(model, kind) for kind in ("bfloat16", "int8")), find_model(SMALL)]
    tokens, inputs = ([Features(dataset, own, None).key(spec) for own in models] for spec in specs)
    assert tokens[0] == tokens[3]
    assert len({str(key) for key in tokens}) == 3
    assert len({str(key) for key in inputs}) == 1
    assert model_digest(faster(model, "int8")) == model_digest(faster(find_model(SMALL), "int8"))
    assert model_digest(model, SMALL) == model_digest(find_model(SMALL), SMALL)
