"""The study of `dasp.wrap` on late fusion, small enough to run here."""

import runpy
from pathlib import Path

import pytest
import torch

STUDY = Path(__file__).parents[2] / "studies/wrap/late_fusion.py"


@pytest.fixture(scope="module")
def study():
    names = runpy.run_path(str(STUDY))
    names["run"].__globals__["BATCHES"] = 2
    return names


@pytest.mark.parametrize("fusion", ["concat", "sum", "attention"])
def test_both_forms_of_a_model_predict_the_same(study, fusion):
    world = study["World"](0)
    model = study["trained"](fusion, world, seed=0, steps=2)
    inputs = world.draw(1)[0]
    for form in (study["Contract"](model), study["wrapped"](model, world)):
        torch.testing.assert_close(form.fuse(form.encode(inputs)).logits, model(**inputs))


def test_the_tables_are_filled(study):
    world = study["World"](0)
    model = study["trained"]("sum", world, seed=0, steps=20)
    told = study["diagnoses"](model, world)
    assert set(told) == {
        (way, kind) for way in study["WAYS"] for kind in ("contract", *study["STAND_INS"])
    }
    assert told["dasp", "contract"] == told["dasp", "zeros"]  # a sum without the absent one
    assert told["dasp", "zeros"] != told["dasp", "mean"]
    gains = study["gains"](model, world)
    assert gains["wrap"] == gains["contract"]
    assert gains["source"] < 100


def test_auroc_counts_ties_as_half(study):
    assert study["auroc"]([2.0, 1.0], [0.0, 1.0]) == 87.5
