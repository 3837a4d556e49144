import json
from io import BytesIO

import numpy as np
import pytest
import safetensors.torch
import torch

import dasp
from dasp.core.errors import InputError, OptionError
from dasp.core.types import Batch
from dasp.models.toy import Toy
from dasp.page.session import WINDOW, Session, explain
from dasp.page.streams import SHOWN, UserStream
from dasp.streams.synthetic import SyntheticWorld


@pytest.fixture
def batches():
    return list(SyntheticWorld().stream(["clean", "audio", "video"], batches=5, size=32))


def session(batches, method="dasp", **options):
    lanes = {
        "Source": dasp.adapt(Toy(seed=1), "source"),
        "DASP": dasp.adapt(Toy(seed=1), method, lr=3e-3, **options),
    }
    return Session(UserStream(batches), lanes, "two lanes")


def points(made, count):
    return [made.next().point for _ in range(count)]


def test_it_shows_what_the_adaptations_alone_would_give_and_a_reset_the_same_again(batches):
    made, first = session(batches), []
    alone = dasp.adapt(Toy(seed=1), "dasp", lr=3e-3)
    correct = []
    for batch in batches:
        out, point = alone(batch.inputs), made.next().point
        first.append(point)
        correct.append(int((out.logits.argmax(1) == batch.labels).sum()) / 32)
        assert point["biased"] == sorted(out.diagnosis.biased)
        assert point["scores"] == pytest.approx(dict(out.diagnosis.scores), rel=1e-4)
        limit = pytest.approx(min(out.diagnosis.scores.values()) + 0.05, rel=1e-4)
        assert point["limits"] == {"audio": limit, "video": limit}
        recent = correct[-WINDOW:]
        assert point["accuracy"]["DASP"] == pytest.approx(sum(recent) / len(recent), rel=1e-4)
        assert point["overall"]["DASP"] == pytest.approx(sum(correct) / len(correct), rel=1e-4)
    assert made.next() is None
    audio = next(point for point in first if point["biased"] == ["audio"])
    moved = {part for part, norm in audio["norms"].items() if norm}
    assert moved == {"audio plastic", "video stable"}
    made.reset()
    source = dasp.adapt(Toy(seed=1), "dasp", lr=3e-3)
    for name, weight in source.memory.weights.items():
        assert torch.equal(weight, made.lanes["DASP"].memory.weights[name])
    assert points(made, 15) == first


def test_a_batch_of_nan_is_json_and_says_why(batches):
    broken = {name: value.clone() for name, value in batches[0].inputs.items()}
    broken["audio"][0] = torch.nan
    made = session([Batch(broken, batches[0].labels), *batches])
    update = made.next()
    json.dumps([update.point, update.samples], allow_nan=False)
    assert "audio" in update.point["note"]
    assert update.samples[0]["predictions"]["DASP"]["share"] is None
    after = made.next().point
    assert after["note"] is None
    assert after["skipped"] in (None, "no modality is flagged")


def test_batches_come_in_three_forms_and_others_are_refused(batches):
    inputs, labels = batches[0].inputs, batches[0].labels
    made = session([inputs, (inputs, labels), Batch(inputs, labels, domain="rain"), 5])
    bare, pair, batch = points(made, 3)
    assert bare["accuracy"]["DASP"] is None
    assert pair["accuracy"]["DASP"] is not None
    assert (pair["truth"], batch["truth"]) == (None, {"": "rain"})
    with pytest.raises(InputError, match="not int"):
        made.next()
    assert session([{"video": inputs["video"]}]).next().point["missing"] == ["audio"]
    with pytest.raises(InputError, match="not tuple"):
        session([(labels, labels)]).next()
    with pytest.raises(InputError, match="'audio' must be a tensor, not int"):
        session([{"audio": 3}]).next()
    for malformed in ({}, {"audio": torch.tensor(1.0)}):  # refused by the adaptation itself
        with pytest.raises(InputError):
            session([malformed]).next()
    with pytest.raises(InputError, match="another iterable: 'int'"):
        session(5)
    with pytest.raises(OptionError, match="at least one"):
        Session(UserStream([]), {}, "none")


def test_samples_have_pictures_names_and_sounds():
    class Waves(Toy):
        def encode(self, inputs):
            return super().encode({n: v.reshape(len(v), -1, 12)[:, :6] for n, v in inputs.items()})

    inputs = {"audio": torch.rand(3, 1200), "video": torch.rand(3, 6, 12)}
    stream = UserStream([(inputs, torch.tensor([0, 1, 7]))], rate=8000)
    names = [f"thing {i}" for i in range(7)]
    tta = dasp.adapt(Waves(seed=1), "source")
    update = Session(stream, {"Source": tta}, "waves", classes=names).next()
    assert [sample["class"] for sample in update.samples] == ["thing 0", "thing 1", "class 7"]
    assert update.samples[0]["pictures"]["video"].startswith("data:image/png;base64,")
    assert "audio" not in update.samples[0]["pictures"]
    assert update.sounds[2][:4] == b"RIFF"
    assert int.from_bytes(update.sounds[2][24:28], "little") == 8000
    assert len(update.samples) <= SHOWN


def test_a_wrong_diagnosis_is_explained():
    def said(truth, biased, compares=True, scores=(0.5, 0.2)):
        scores = dict(zip(("audio", "video"), scores, strict=True))
        limits = dict.fromkeys(scores, 0.25)
        point = {"truth": truth, "scores": scores, "limits": limits, "biased": biased}
        return explain(point, "DASP", compares)

    assert said({"audio": "rain 5"}, ["audio"]) is None
    assert said({}, []) is None
    assert said(None, ["audio"]) is None
    assert said({"": "rain"}, []) is None
    assert "False alarm: audio is clean, but its score 0.50 is above" in said({}, ["audio"])
    both = {"audio": "rain 5", "video": "fog 5"}
    assert "compares them with each other" in said(both, ["audio"])
    assert "that of clean samples" in said(both, ["audio"], compares=False)
    assert said({"video": "fog 1"}, []).startswith("Missed: video. Although it is damaged")


def test_a_dropped_sample_is_predicted_with_and_without_adaptation_and_teaches_nothing(batches):
    tta = dasp.adapt(Toy(seed=1), "tent", lr=0.05)  # it trains the model itself
    made = Session(UserStream(batches), {"Tent": tta}, "one lane", classes=["a", "b"])
    one = {name: value[3] for name, value in batches[0].inputs.items()}
    file = BytesIO()
    np.savez(file, **{name: value.numpy() for name, value in one.items()})
    files = {"sample.npz": file.getvalue()}
    with pytest.raises(OptionError, match="after the first batch"):
        made.predict(files)
    for _ in range(8):
        made.next()
    before, counted = tta.state()["tensors"], tta.counters["batches"]
    shown = made.predict(files)
    source = dasp.adapt(Toy(seed=1), "source")
    alone = {name: value[None] for name, value in one.items()}
    for name, logits in (("without adaptation", source(alone).logits), ("Tent", None)):
        if logits is None:
            with tta.frozen():
                logits = tta(alone).logits
        share = float(logits.softmax(1).max())
        assert shown["predictions"][name]["share"] == pytest.approx(share, rel=1e-4)
    assert shown["files"] == ["sample.npz"]
    after = tta.state()["tensors"]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert tta.counters["batches"] == counted
    tensors = safetensors.torch.save({"audio": one["audio"]})  # one sensor, another format
    assert "Tent" in made.predict({"x.safetensors": tensors})["predictions"]
    for wrong, words in (
        ({"a.mp3": b"x"}, "read="),
        ({"a.npz": b"x"}, "cannot read a.npz"),
        ({"smell.npy": npy(np.zeros(3))}, "not a modality"),
        ({"audio.npy": npy(np.zeros(3))}, "samples of the stream have"),
        ({"audio.npy": npy(np.array([{}]))}, "cannot read"),  # a pickle is never opened
        ({}, "no arrays"),
    ):
        with pytest.raises(InputError, match=words):
            made.predict(wrong)


def npy(array):
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()
