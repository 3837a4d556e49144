"""What the store saved is counted use by use."""

from dataclasses import replace

import pytest

from dasp.bench.features import Features, parts_of
from dasp.bench.references import find_model
from dasp.bench.savings import savings
from dasp.bench.store import Store


@pytest.fixture
def features(plan, tmp_path):
    return Features(plan.data.open(), find_model(plan.models[0]), Store(tmp_path / "store"))


def test_every_use_would_cost_what_making_it_once_did(plan, features, monkeypatch):
    costs = {
        "clean": {"decode": 1.0},
        "video/contrast/5": {"decode": 1.0, "corrupt": 2.0},
        "video/brightness/5": {"decode": 1.0, "corrupt": 3.0},
    }

    def about(key):
        return {"seconds": {"encode": 5.0} if key["kind"] == "tokens" else costs[key["domain"]]}

    monkeypatch.setattr(features.store, "about", about)
    cells = replace(plan, protocols=("continual/video",)).cells()  # source, tent, dasp
    by_kind = {(saving.kind, saving.modality): saving for saving in savings(features, cells)}
    sound, frames = by_kind["tokens", "audio"], by_kind["tokens", "video"]
    assert (sound.arrays, sound.uses) == (1, 4)  # two methods in two domains, the sound is clean
    assert sound.once == {"decode": 1.0, "corrupt": 0.0, "encode": 5.0}
    assert sound.each_time == {"decode": 4.0, "corrupt": 0.0, "encode": 20.0}
    assert (frames.arrays, frames.uses) == (2, 4)
    assert frames.each_time == {"decode": 4.0, "corrupt": 10.0, "encode": 20.0}
    assert frames.saved == 34.0 - 17.0
    raw = by_kind["inputs", "video"]  # tent tunes the encoders
    assert (raw.arrays, raw.uses) == (2, 2)
    assert raw.saved == 0


def test_it_is_read_off_the_store(plan, features):
    cells = [cell for cell in plan.cells() if cell.method == "dasp"]
    assert all(saving.saved == 0 for saving in savings(features, cells))  # nothing is there yet
    conditions = [condition for visit in cells[0].visits() for condition in visit.conditions]
    for part in parts_of(conditions, ("audio", "video"), encoded=True):
        features.get(part)
    sound, frames = savings(features, cells)
    assert (sound.kind, sound.modality, frames.modality) == ("tokens", "audio", "video")
    assert min(frames.once.values()) > 0
    assert sound.saved > 0
