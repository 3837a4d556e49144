import json

import pytest
import torch

import dasp
from dasp.core.errors import InputError, OptionError
from dasp.core.types import Batch
from dasp.models.toy import Toy
from dasp.page.own import OwnStream
from dasp.page.session import SHOWN, WINDOW, Session
from dasp.streams.synthetic import SyntheticWorld


@pytest.fixture
def world_batches():
    return list(SyntheticWorld().stream(["clean", "audio", "video"], batches=5, size=32))


def session(batches, **options):
    lanes = {
        "Source": dasp.adapt(Toy(seed=1), "source"),
        "DASP": dasp.adapt(Toy(seed=1), "dasp", lr=3e-3, **options),
    }
    return Session(OwnStream(batches), lanes, "two lanes")


def points(made, count):
    return [made.next().point for _ in range(count)]


def test_it_shows_what_the_handles_alone_would_give(world_batches):
    made = session(world_batches)
    alone = dasp.adapt(Toy(seed=1), "dasp", lr=3e-3)
    right = []
    for batch, point in zip(world_batches, points(made, 15), strict=True):
        out = alone(batch.inputs)
        right.append(int((out.logits.argmax(1) == batch.labels).sum()))
        assert point["biased"] == sorted(out.diagnosis.biased)
        assert point["scores"] == pytest.approx(dict(out.diagnosis.scores), rel=1e-4)
        assert point["updated"] == out.updated
        lowest = min(out.diagnosis.scores.values())
        limit = pytest.approx(lowest + 0.05, rel=1e-4)
        assert point["limits"] == {"audio": limit, "video": limit}
        window = right[-WINDOW:]
        assert point["accuracy"]["DASP"] == pytest.approx(sum(window) / len(window) / 32, rel=1e-4)
        assert point["overall"]["DASP"] == pytest.approx(sum(right) / len(right) / 32, rel=1e-4)
    assert made.next() is None


def test_reset_is_the_source_state_and_the_same_run_again(world_batches):
    made = session(world_batches)
    first = points(made, 15)
    assert any(norm for norm in first[-1]["norms"].values())
    made.reset()
    source = dasp.adapt(Toy(seed=1), "dasp", lr=3e-3)
    now = made.lanes["DASP"].memory.weights
    for name, weight in source.memory.weights.items():
        assert torch.equal(weight, now[name])
    assert points(made, 15) == first


def test_norms_are_of_each_adapter_and_only_of_those_that_learnt(world_batches):
    made = session(world_batches)
    for point in points(made, 15):
        if point["biased"] == ["audio"]:
            break
    moved = {part for part, norm in point["norms"].items() if norm}
    assert moved == {"audio plastic", "video stable"}


def test_the_robust_variant_has_a_limit_of_its_own(world_batches):
    made = session(world_batches, variant="robust")
    made.lanes["DASP"].fit([batch.inputs for batch in world_batches[:4]])
    assert made.about()["log_score"]
    point = points(made, 1)[0]
    limit = pytest.approx(made.lanes["DASP"].method.diagnoser.rules.limit, rel=1e-3)
    assert point["limits"] == {"audio": limit, "video": limit}


def test_a_batch_of_nan_is_json_and_says_why(world_batches):
    broken = {name: value.clone() for name, value in world_batches[0].inputs.items()}
    broken["audio"][0] = torch.nan
    made = session([Batch(broken, world_batches[0].labels), *world_batches])
    update = made.next()
    json.dumps([update.point, update.samples], allow_nan=False)
    assert "audio" in update.point["note"]
    assert update.samples[0]["predictions"]["DASP"]["share"] is None
    assert made.next().point["note"] is None


def test_streams_come_in_three_forms_and_a_fourth_is_refused(world_batches):
    inputs, labels = world_batches[0].inputs, world_batches[0].labels
    made = session([inputs, (inputs, labels), Batch(inputs, labels, domain="rain"), 5])
    bare, pair, batch = points(made, 3)
    assert bare["accuracy"]["DASP"] is None
    assert pair["accuracy"]["DASP"] is not None
    assert (pair["truth"], batch["truth"]) == (None, {"": "rain"})
    with pytest.raises(InputError, match="not int"):
        made.next()
    with pytest.raises(InputError, match="'audio' must be a tensor, not int"):
        session([{"audio": 3}]).next()
    with pytest.raises(InputError, match="another iterable: 'int'"):
        session(5)


def test_a_missing_modality_is_shown_as_missing(world_batches):
    made = session([{"video": world_batches[0].inputs["video"]}])
    assert made.next().point["missing"] == ["audio"]


def test_samples_have_pictures_names_and_sounds(toy):
    class Waves(Toy):
        def encode(self, inputs):
            return super().encode({n: v.reshape(len(v), -1, 12)[:, :6] for n, v in inputs.items()})

    stream = [
        ({"audio": torch.rand(3, 1200), "video": torch.rand(3, 6, 12)}, torch.tensor([0, 1, 7]))
    ]
    names = [f"thing {i}" for i in range(7)]
    tta = dasp.adapt(Waves(seed=1), "source")
    made = Session(OwnStream(stream, rate=8000), {"Source": tta}, "waves", classes=names)
    update = made.next()
    assert [sample["class"] for sample in update.samples] == ["thing 0", "thing 1", "class 7"]
    assert update.samples[0]["pictures"]["video"].startswith("data:image/png;base64,")
    assert "audio" not in update.samples[0]["pictures"]
    assert update.sounds[2][:4] == b"RIFF"
    assert int.from_bytes(update.sounds[2][24:28], "little") == 8000
    assert len(update.samples) <= SHOWN


def test_nothing_to_show_and_nothing_to_control_is_said(world_batches):
    with pytest.raises(OptionError, match="at least one"):
        Session(OwnStream([]), {}, "none")
    with pytest.raises(OptionError, match="comes as it is"):
        session(world_batches).obey({"do": "corrupt"})
