"""Tokens kept as float16: half the store, runs of their own, batches of float32."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dasp.bench.features import FLOAT16, Features, Part, parts_of
from dasp.bench.plan import Plan
from dasp.bench.references import find_model
from dasp.bench.results import read_result
from dasp.bench.runner import run_plan
from dasp.bench.store import Store
from dasp.core.errors import DataError, OptionError
from dasp.streams import Domain
from dasp.streams.visits import CLEAN, Condition

FOG = Domain("video", "fog", 5)
DEAD = Condition((FOG,), constant=("audio",))


@pytest.fixture
def features(plan, tmp_path):
    return Features(plan.data.open(), find_model(plan.models[0]), Store(tmp_path / "store"))


def batch(features, condition, precision):
    order = np.arange(len(features.labels))
    ((_, inputs),) = features.batches([condition], True, order, len(order), precision)
    return inputs


@pytest.mark.parametrize("condition", [CLEAN, DEAD])
def test_batches_are_float32_rounded_once(features, condition):
    full, half = batch(features, condition, "float32"), batch(features, condition, FLOAT16)
    for name, tokens in half.items():
        assert tokens.dtype == torch.float32
        assert torch.equal(tokens, full[name].half().float())
        assert not torch.equal(tokens, full[name])


def test_half_the_bytes_are_kept_and_nothing_is_shared(features):
    sizes = {}
    for precision in ("float32", FLOAT16):
        part = Part("video", FOG, True, precision)
        sizes[precision] = features.get(part).nbytes
    assert sizes[FLOAT16] * 2 == sizes["float32"]
    kinds = sorted(path.name.split("-")[0] for path in features.store.folder.glob("*.npy"))
    assert kinds == ["inputs", "tokens", "tokens"]  # raw inputs serve both


def test_without_a_store_the_tokens_are_the_same(features):
    bare = Features(features.material, features.model, None)
    kept, made = (batch(own, DEAD, FLOAT16) for own in (features, bare))
    assert all(torch.equal(kept[name], made[name]) for name in kept)


def test_what_float16_cannot_hold_is_refused(features, monkeypatch):
    monkeypatch.setattr(features, "_encoders", lambda inputs: {"video": inputs["video"] * 1e6})
    with pytest.raises(DataError, match="more than float16 holds"):
        features.get(Part("video", FOG, True, FLOAT16))
    assert not list(features.store.folder.glob("tokens-*.npy"))


def test_raw_parts_have_no_precision():
    parts = parts_of([DEAD], ("audio", "video"), True, FLOAT16)
    assert parts == {Part("audio", None, False), Part("video", FOG, True, FLOAT16)}
    assert parts_of([CLEAN], ("audio",), False, FLOAT16) == {Part("audio", None, False)}


def test_runs_on_such_tokens_are_their_own(plan, place):
    half = replace(plan, tokens=FLOAT16)
    keys = {(c.label, c.protocol): c.key for c in plan.cells()}
    for cell in half.cells():
        same = cell.key == keys[cell.label, cell.protocol]
        assert same == (cell.method == "tent")  # it tunes the encoder and never sees them
    chosen = replace(half, methods={"dasp": plan.methods["dasp"]}, protocols=("interleaved",))
    (path,) = run_plan(chosen, place, show=False)
    assert read_result(path)["cell"]["tokens"] == FLOAT16
    (plain,) = run_plan(replace(chosen, tokens="float32"), place, show=False)
    assert "tokens" not in read_result(plain)["cell"]
    scores = [read_result(p)["result"]["batches"]["scores"]["video"] for p in (path, plain)]
    assert scores[0] != scores[1]
    assert scores[0] == pytest.approx(scores[1], rel=0.02)


def test_other_precisions_are_refused():
    with pytest.raises(OptionError, match="float8"):
        Plan(tokens="float8")
