"""What a cell's time goes by on, and batches gathered ahead of it."""

import copy
import threading
from dataclasses import replace

import pytest
import torch

from dasp.bench.cell import run_cell
from dasp.bench.features import AHEAD, Features
from dasp.bench.passes import timed_encoders
from dasp.bench.references import find_method, find_model
from dasp.bench.store import Store
from dasp.core.clock import Clock


@pytest.fixture
def features(plan, tmp_path):
    return Features(plan.data.open(), find_model(plan.models[0]), Store(tmp_path / "store"))


def run(cell, features, tick=None):
    return run_cell(cell, find_method(cell.method), features, tick)


def test_gathering_ahead_changes_no_bit(plan, features):
    assert features.ahead == AHEAD
    cells = replace(plan, protocols=("mixed",), clean_after=5).cells()[1:]
    for cell in cells:
        features.ahead = AHEAD
        ahead, _ = run(cell, features)
        features.ahead = 0
        assert run(cell, features)[0] == ahead
    assert Features(features.material, features.model, None).ahead == 0


def test_ticks_add_up_to_what_is_measured(plan, features):
    for cell in replace(plan, protocols=("interleaved",), clean_after=5).cells():
        told, batches = Clock(), []

        def tick(count, seconds, told=told, batches=batches):
            batches.append(count)
            told.add(seconds)

        _, measured = run(cell, features, tick)
        assert sum(batches) == 6
        tuned = find_method(cell.method).tunes_encoder
        names = {"load", "adapt", "judge"} | ({"encode"} if tuned else set())
        assert set(measured["seconds"]) == names
        assert told.seconds["adapt"] == pytest.approx(measured["seconds"]["adapt"], abs=1e-3)
        assert min(told.seconds.values()) >= 0


def test_an_array_that_cannot_be_read_is_the_callers_error(plan, features, monkeypatch):
    def gone(*_):
        raise OSError("disk gone")

    monkeypatch.setattr("dasp.bench.features.gather", gone)
    with pytest.raises(OSError, match="disk gone"):
        run(plan.cells()[0], features)
    assert not [thread for thread in threading.enumerate() if thread.name == "drawn ahead"]


def test_a_copy_of_a_timed_model_runs_its_own_encoders(plan):
    model, clock = find_model(plan.models[0]), Clock()
    inputs = {"video": torch.ones(1, 3, 64, 64)}
    with timed_encoders(model, clock), torch.no_grad():
        model.encode(inputs)
        counted = clock.seconds["encode"]
        other = copy.deepcopy(model)
        for weight in other.parameters():
            weight.zero_()
        assert not other.encode(inputs)["video"].any()
        assert model.encode(inputs)["video"].any()
        assert clock.seconds["encode"] > counted > 0
    assert "encode" not in vars(model)
