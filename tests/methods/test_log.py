"""What an adaptation writes into its event log, and what a log must never cost."""

import logging

import pytest
import torch

import dasp
from dasp.core.errors import OptionError
from dasp.models import Toy
from dasp.service import events


@pytest.fixture
def adapt(tmp_path):
    """Adapt a toy that learns from every batch, with a log."""

    def build(method="dasp", **options):
        own = {"delta": 1e-6} if method == "dasp" else {}
        log = tmp_path / "events.jsonl"
        return dasp.adapt(Toy(seed=1), method, lr=1e-2, log=log, **own, **options)

    return build


def test_every_event_has_its_line(adapt, batches, tmp_path):
    tta = adapt()
    first = tta(batches[1])
    tta({"video": batches[2]["video"]})
    tta({name: value * torch.nan for name, value in batches[0].items()})
    with pytest.raises(dasp.DaspError):
        tta({})
    with tta.frozen():
        tta(batches[2])
    tta.reset()
    tta.save(tmp_path / "state.safetensors")
    tta.load(tmp_path / "state.safetensors")
    told = dasp.events.read(tmp_path / "events.jsonl")
    names = ["start", "batch", "batch", "batch", "error", "frozen", "reset", "save", "load"]
    assert [event["event"] for event in told] == names
    assert [event["batch"] for event in told] == [0, 0, 1, 2, 3, 4, 4, 4, 4]
    times = [event["time"] for event in told]
    assert times == sorted(times)
    start, learnt, partial, spoilt, error = told[:5]
    assert (start["method"], start["hyper"]["delta"]) == ("dasp", "1e-06")
    assert start["modalities"] == ["audio", "video"]
    assert learnt["scores"] == first.diagnosis.scores
    assert set(learnt["biased"]) == first.diagnosis.biased
    assert (learnt["updated"], learnt["loss"], learnt["size"]) == (True, first.loss, 16)
    assert learnt["index"] == 1
    assert max(learnt["norms"].values()) > 0
    assert (partial["present"], partial["missing"]) == (["video"], ["audio"])
    assert set(partial["scores"]) == {"video"}
    assert spoilt["rejected"].startswith("NaN or Inf in audio and video")
    assert spoilt["scores"] is spoilt["biased"] is None
    assert (
        error["error"]
        == "InputError: inputs lack audio, video: the model has " + repr(tta.model.modalities) + "."
    )
    assert told[7]["path"].endswith("state.safetensors")


def test_a_rollback_is_said(adapt, batches):
    tta = adapt("sar", margin=1.0, reset_below=100.0)
    outcome = tta(batches[1])
    assert outcome.rollback == "Sar asked to start over from the source state"
    assert tta.counters["rollbacks"] == 1
    assert dasp.events.read(tta._recorder.log.path)[-1]["rollback"] == outcome.rollback


def test_the_log_changes_no_number(adapt, batches):
    tta, plain = adapt(), dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    for batch in batches * 2:
        assert torch.equal(tta(batch).logits, plain(batch).logits)


def test_a_full_disk_costs_lines_and_nothing_else(adapt, batches, tmp_path, monkeypatch, caplog):
    tta, plain = adapt(), dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    tta(batches[0])
    plain(batches[0])
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "dasp"):
        patch.setattr(events.os, "write", lambda handle, data: 0)
        for batch in batches:
            assert torch.equal(tta(batch).logits, plain(batch).logits)
    assert tta.counters["write_errors"] == 3
    (record,) = caplog.records
    assert "events.jsonl and goes on without: [Errno 28] No space left" in record.getMessage()
    tta(batches[0])
    places = [e["batch"] for e in dasp.events.read(tmp_path / "events.jsonl")]
    assert places == [0, 0, 4]


def test_a_log_that_cannot_be_is_refused_before_the_model_is_touched(tmp_path):
    model = Toy(seed=1).train()
    with pytest.raises(OptionError, match="is a folder"):
        dasp.adapt(model, "dasp", log=tmp_path)
    assert model.training


def test_without_a_log_nothing_is_asked_of_the_weights(batches, monkeypatch):
    from dasp.methods.engine import Engine

    tta = dasp.adapt(Toy(seed=1), "dasp")
    monkeypatch.setattr(Engine, "distances", lambda self: pytest.fail("asked"))
    tta(batches[0])
