"""Inputs and tokens of every condition: from the store, in either precision, for any sensors."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dasp.bench.datasets import DataOptions
from dasp.bench.features import FLOAT16, Features, FeatureSpec, drawn_ahead
from dasp.bench.references import find_model
from dasp.bench.runner import run_plan
from dasp.core.errors import DataError
from dasp.streams.domains import Domain
from dasp.streams.protocols import CLEAN, Condition

SMALL = Path(__file__).with_name("small.py")
FOG, RAIN = Domain("video", "fog", 5), Domain("audio", "rain", 5)
PAIR = Condition((FOG, RAIN))
DEAD = Condition((FOG,), constant=("audio",))
BOTH = ("audio", "video")


def only(features, condition, encoded=False, rows=(3, 1), precision="float32"):
    """Return the one batch of some rows under a condition."""
    ((_, inputs),) = features.batches([condition], encoded, np.array(rows), len(rows), precision)
    return inputs


def test_a_pair_is_both_damages_at_once(features):
    inputs = only(features, PAIR)
    for name, domain in (("video", FOG), ("audio", RAIN)):
        assert torch.equal(inputs[name], only(features, Condition((domain,)))[name])
        assert not torch.equal(inputs[name], only(features, CLEAN)[name])


@pytest.mark.parametrize("modality", BOTH)
def test_a_missing_modality_is_absent_and_a_constant_one_is_zeros_encoded(features, modality):
    (other,) = set(BOTH) - {modality}
    assert set(only(features, Condition((FOG, RAIN), missing=(modality,)))) == {other}
    dead = Condition(constant=(modality,))
    inputs, tokens = only(features, dead), only(features, dead, encoded=True)
    assert inputs[modality].shape == only(features, CLEAN)[modality].shape
    assert not inputs[modality].any()
    with torch.no_grad():
        expected = features.model.encode({modality: inputs[modality]})[modality]
    torch.testing.assert_close(tokens[modality], expected)
    assert torch.equal(tokens[other], only(features, CLEAN, encoded=True)[other])


def test_audio_is_encoded_once_under_damaged_video(plan, workspace):
    run_plan(plan, workspace, show=False)
    kinds = sorted(path.name.split("-")[0] for path in workspace.store.glob("*.npy"))
    assert kinds == ["inputs"] * 3 + ["tokens"] * 3  # clean audio, two domains of video


def test_raw_inputs_that_were_removed_are_not_made_again_for_tokens(one_run, workspace):
    run_plan(one_run, workspace, show=False)
    for path in workspace.store.glob("inputs-*.npy"):
        path.unlink()
    run_plan(replace(one_run, seeds=(1,)), workspace, show=False)
    assert not list(workspace.store.glob("inputs-*.npy"))


@pytest.mark.parametrize("condition", [CLEAN, DEAD])
def test_float16_tokens_are_rounded_once_and_given_as_float32(features, condition):
    rows = range(20)
    full = only(features, condition, True, rows)
    half = only(features, condition, True, rows, FLOAT16)
    bare = Features(features.dataset, features.model, None)
    made = only(bare, condition, True, rows, FLOAT16)
    for name, tokens in half.items():
        assert tokens.dtype == torch.float32
        assert torch.equal(tokens, full[name].half().float())
        assert torch.equal(tokens, made[name])
        assert not torch.equal(tokens, full[name])
    arrays = [np.load(path) for path in features.store.folder.glob("tokens-*.npy")]
    assert {array.dtype for array in arrays} == {np.dtype("float32"), np.dtype("float16")}


def test_what_float16_cannot_hold_is_refused(features, monkeypatch):
    monkeypatch.setattr(features, "_encoders", lambda inputs: {"video": inputs["video"] * 1e6})
    with pytest.raises(DataError, match="more than float16 holds"):
        features.get(FeatureSpec("video", FOG, True, FLOAT16))
    assert not list(features.store.folder.glob("tokens-*.npy"))


def test_runs_on_float16_tokens_are_nearly_the_same(one_run, workspace):
    scores = []
    for tokens in ("float32", FLOAT16):
        (result,) = run_plan(replace(one_run, tokens=tokens), workspace, show=False)["dasp"]
        assert result.run.tokens == tokens
        scores.append(result.counts.batches.scores["video"])
    assert scores[0] != scores[1]
    assert scores[0] == pytest.approx(scores[1], rel=0.02)


def test_a_third_sensor_goes_along_under_its_own_domain(workspace):
    dataset = DataOptions(f"{SMALL}:Levels").open()
    model = find_model(f"{SMALL}:build_three")
    features = Features(dataset, model, workspace.open_store())
    fog = Domain("depth", "fog", 5)
    keys = [features.key(FeatureSpec("depth", domain, True)) for domain in (None, fog, FOG)]
    assert keys[0]["damage"] == "" != keys[1]["damage"]
    assert keys[2] == keys[0]  # fog in the video leaves the depth clean
    names = (*BOTH, "depth")
    for encoded in (False, True):
        assert tuple(only(features, PAIR, encoded)) == names
        assert tuple(only(features, Condition(missing=("audio",)), encoded)) == names[1:]
    dead = only(features, Condition((FOG,), constant=("depth",)), rows=(2, 2))
    assert [float(dead[name].mean()) for name in names] == [2.0, 2.5, 0.0]


def drawing():
    return [thread for thread in threading.enumerate() if thread.name.startswith("drawn ahead")]


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize("size", [0, 1, 5])
def test_items_drawn_ahead_are_the_same_and_so_many_at_most(size, depth):
    made, taken = [], []
    with drawn_ahead((made.append(i) or i for i in range(size)), depth) as drawn:
        for item in drawn:
            taken.append(item)
            assert len(made) <= len(taken) + depth
    assert made == taken == list(range(size))
    assert not drawing()


@pytest.mark.parametrize("depth", [0, 2])
def test_an_error_or_a_broken_loop_ends_the_thread_and_closes_the_source(depth):
    closed = []

    def numbers(last):
        try:
            yield from range(last)
            raise OSError("disk gone")
        finally:
            closed.append(last)

    with drawn_ahead(numbers(1), depth) as drawn:
        assert next(drawn) == 0
        with pytest.raises(OSError, match="disk gone"):  # where the item is asked for
            next(drawn)
    with drawn_ahead(numbers(10**9), depth) as drawn:
        assert next(drawn) == 0
    assert closed == [1, 10**9]
    assert not drawing()
