import re

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import dasp
from dasp.models import Toy
from dasp.service.metrics import BY_MODALITY, TOTALS, Counters, exposition

GAUGES = ("dasp_score", "dasp_other", "dasp_index")


def test_the_text_is_what_prometheus_reads():
    counters = Counters(["audio", 'a "strange"\\\nname'])
    counters.add(batches=3)
    counters.add_each("flags", ["audio"])
    gauges = {
        "score": ("Score", {"audio": float("nan"), 'a "strange"\\\nname': float("inf")}),
        "other": ("None yet", {}),
        "index": ("A number", 1e-300),
    }
    found = {}
    for family in text_string_to_metric_families(exposition(counters, **gauges)):
        assert family.type == ("gauge" if family.name in GAUGES else "counter")
        found |= {(s.name, s.labels.get("modality")): s.value for s in family.samples}
    assert found["dasp_batches_total", None] == 3
    assert found["dasp_flags_total", "audio"] == 1
    assert found["dasp_score", 'a "strange"\\\nname'] == float("inf")
    assert found["dasp_index", None] == 1e-300
    assert {name for name, _ in found if name.endswith("_total")} == {
        f"dasp_{name}_total" for name in (*TOTALS, *BY_MODALITY)
    }


def test_a_copy_can_be_continued_from_and_an_odd_one_does_not_fit():
    counters = Counters(["audio", "video"])
    counters.add(batches=4)
    counters.add_each("missing", ["video"])
    copy = counters.as_dict()
    twin = Counters(["audio", "video"])
    assert twin.fits(copy)
    twin.take(copy)
    assert twin.as_dict() == copy
    for odd in ({}, None, copy | {"batches": -1}, copy | {"batches": True}, copy | {"flags": {}}):
        assert not twin.fits(odd)


def test_an_adaptation_counts_what_happens(batches, tmp_path):
    tta = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    assert "dasp_score{" not in tta.metrics()
    outcomes = [tta(batch) for batch in batches]
    tta({"video": batches[0]["video"]})
    tta({name: value * float("nan") for name, value in batches[0].items()})
    with tta.frozen():
        tta(batches[0])
    for bad in ({}, {"audio": 1}):
        with pytest.raises(dasp.DaspError):
            tta(bad)
    tta.save(tmp_path / "state.safetensors")
    tta.load(tmp_path / "state.safetensors")
    tta.load_state(tta.state())
    tta.reset()
    flagged = [outcome.diagnosis.biased for outcome in outcomes]
    assert tta.counters == {
        "batches": 7, "samples": 80, "updates": sum(o.updated for o in outcomes),
        "rejections": 1, "errors": 2, "rollbacks": 0, "frozen": 1, "resets": 1, "saves": 1,
        "loads": 2, "write_errors": 0,
        "flags": {name: sum(name in own for own in flagged) for name in ("audio", "video")},
        "missing": {"audio": 1, "video": 0},
    }  # fmt: skip
    assert sum(tta.counters["flags"].values()) >= 2
    assert "dasp_confidence NaN\n" in dasp.adapt(Toy(seed=1), "dasp").metrics()
    sure = tta(batches[1]).logits.softmax(1).amax(1).mean()
    text = tta.metrics()
    assert float(re.search(r"^dasp_confidence (\S+)", text, re.MULTILINE)[1]) == pytest.approx(
        float(sure)
    )
    assert "dasp_batches_total 8.0\n" in text
    assert "dasp_batch_index 1.0\n" in text
    assert re.search(r'dasp_score\{modality="video"\} 0\.\d+', text)
    assert re.search(r'dasp_adapter_norm\{modality="audio"\} 0?\.?\d', text)
    assert "dasp_batches_total 0.0" in dasp.adapt(Toy(seed=1), "dasp").metrics()
    assert b"dasp_" not in generate_latest()  # the global registry is left alone


def test_the_norms_are_distances_from_the_source(batches):
    def norms(tta):
        lines = [line for line in tta.metrics().splitlines() if line.startswith("dasp_adapter_")]
        return {line.split('"')[1]: float(line.split()[1]) for line in lines}

    tta = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    assert norms(tta) == {"audio": 0.0, "video": 0.0}
    tta(batches[1])
    squares = dict.fromkeys(("audio", "video"), 0.0)
    for path, weight in tta.memory.weights.items():
        change = weight.detach() - tta.source.tensors[f"weight/{path}"]
        squares[path.split(".")[1]] += float(change.square().sum())
    assert norms(tta) == pytest.approx({name: total**0.5 for name, total in squares.items()})
    assert max(squares.values()) > 1e-4
    shared = dasp.adapt(Toy(seed=1), "tent", lr=1e-2)
    shared(batches[1])
    assert norms(shared)["shared"] > 0
