"""What a method costs: passes are exact, to the sample; what is timed is only asked to be there."""

import dataclasses
from dataclasses import replace
from itertools import product

import pytest
import torch

import dasp
from dasp.bench.cost import counted_passes, measure, measure_costs
from dasp.bench.plan import MethodRow
from dasp.bench.results import finished
from dasp.bench.runner import run_plan
from dasp.core.errors import DataError
from dasp.methods import Dasp
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld

BOTH = ("audio", "video")


class Told(Dasp):
    """DASP that does all its work and then is told what the diagnosis was."""

    flagged: frozenset[str] = frozenset()

    def _diagnose(self, batch, remember):
        alone, diagnosis = super()._diagnose(batch, remember)
        return alone, dataclasses.replace(diagnosis, biased=self.flagged)


def inputs(samples=16, seed=0, modalities=BOTH):
    return SyntheticWorld(modalities).draw(samples, seed=seed).inputs


def passes(tta, *batches):
    """Return {(call, modalities, gradient): (forward, backward)} in samples."""
    with counted_passes(tta.model) as found:
        for batch in batches:
            tta(batch)
    return {
        (r["call"], "+".join(r["modalities"]), r["gradient"]): (r["forward"], r["backward"])
        for r in found.rows()
    }


def encoded(gradient, forward=16, backward=0, call="encode"):
    return {(call, name, gradient): (forward, backward) for name in BOTH}


def own_norms(gradient, backward):
    return encoded(gradient, 16, backward, "fuse_own_norm")


def fused(call="fuse", modalities="audio+video", gradient=True, forward=16, backward=16):
    return {(call, modalities, gradient): (forward, backward if gradient else 0)}


FROZEN, TUNED, IDLE = encoded(False), encoded(True, 16, 16), encoded(True, 16, 0)
NO_GRADIENT = fused(gradient=False)
ALONE = FROZEN | fused("fuse", "audio", False) | fused("fuse", "video", False)
SUMI = {"share": 0.0, "alone_floor": 0.0, "stream_length": 4}


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("source", {}, FROZEN | NO_GRADIENT),
        ("tent", {}, TUNED | fused()),
        ("eata", {"margin": 10.0}, TUNED | fused()),
        ("eata", {"margin": 1e-9}, IDLE | fused(backward=0)),
        ("sar", {"margin": 10.0}, encoded(True, 32, 32) | fused(forward=32, backward=32)),
        ("sar", {"margin": 1e-9}, IDLE | fused(backward=0)),
        ("read", {}, FROZEN | fused()),
        ("read", {"predict": "after"}, FROZEN | fused() | NO_GRADIENT),
        ("abpem", {}, FROZEN | fused("fuse_with_attention")),
        ("pta", {}, FROZEN | fused("fuse_with_attention")),
        ("tsa", {}, FROZEN | fused(gradient=False, forward=32) | fused()),
        ("sumi", SUMI | {"alone_floor": 99.0}, IDLE | fused(backward=0) | own_norms(True, 0)),
    ],
)
def test_passes_of_each_method(method, options, expected):
    assert passes(dasp.adapt(Toy(), method, lr=1e-4, **options), inputs()) == expected


def test_passes_of_sumi_change_half_way():
    tta = dasp.adapt(Toy(), "sumi", **SUMI)
    for place in range(4):
        early = place < 2
        expected = TUNED | fused() | own_norms(early, 16 * early) | FROZEN | NO_GRADIENT
        assert passes(tta, inputs(seed=place)) == expected


def test_passes_of_brimpr():
    tta = dasp.adapt(Toy(depth=2), "brimpr")
    tta.fit([inputs(8, seed=1)])
    prompted = encoded(True, 32, 32, "encode_prompted")  # whole, and halved
    joint = NO_GRADIENT | fused(forward=32, backward=32)
    alone = fused(modalities="audio") | fused(modalities="video") | own_norms(True, 16)
    assert passes(tta, inputs()) == prompted | joint | alone


@pytest.mark.parametrize(
    ("flagged", "options", "expected"),
    [
        ((), {}, NO_GRADIENT),
        (("audio",), {}, fused() | fused(modalities="video")),
        (("video",), {}, fused() | fused(modalities="audio")),
        (("video",), {"lambda_kl": 0.0}, fused()),
        ((), {"variant": "paper"}, fused() | fused("fuse", "audio") | fused("fuse", "video")),
    ],
)
def test_passes_of_dasp_follow_the_diagnosis(flagged, options, expected):
    tta = dasp.adapt(Toy(), Told, lr=1e-4, **options)
    tta.method.flagged = frozenset(flagged)
    assert passes(tta, inputs()) == ALONE | expected


def test_parts_of_a_batch_other_modalities_and_calls_inside_calls():
    found = passes(dasp.adapt(Toy(), "read", lr=1e-4), inputs(16), inputs(5))
    assert found == encoded(False, 21) | fused(forward=21, backward=21)
    names = (*BOTH, "depth")
    found = passes(dasp.adapt(Toy(modalities=names), "read", lr=1e-4), inputs(4, 0, names))
    assert found["fuse", "audio+video+depth", True] == (4, 4)

    class Nested(Toy):
        def fuse_with_attention(self, tokens):
            self.fuse(tokens)
            return super().fuse_with_attention(tokens)

    tta = dasp.adapt(Nested(), "abpem", lr=1e-4)
    assert passes(tta, inputs()) == FROZEN | fused("fuse_with_attention")


def test_counting_changes_nothing():
    model, batch = Toy(), inputs()
    mine = model.fuse = lambda tokens: Toy.fuse(model, tokens)
    plain = dasp.adapt(Toy(), "dasp", lr=1e-4, delta=0.0)
    tta = dasp.adapt(model, "dasp", lr=1e-4, delta=0.0)
    with counted_passes(model):
        assert model.fuse is not mine
        counted = [tta(batch).logits for _ in range(3)]
    assert model.fuse is mine
    assert not {"encode", "fuse_with_attention"} & set(vars(model))
    assert all(torch.equal(logits, plain(batch).logits) for logits in counted)


@pytest.fixture
def costs(plan):
    """Twenty samples in batches of eight: 8, 8, 4; two domains per stream."""
    return replace(plan, kind="efficiency", protocols=("interleaved",))


def test_streams_and_parameters_are_counted_and_rounds_take_turns(costs, features):
    found = {}
    for label, job in costs.jobs():
        run = replace(job.run, cost={"rounds": 2, "threads": 1})
        found[label] = measure(replace(job, run=run), features)
    tent, source, own = (found[label] for label in ("tent", "source", "dasp"))
    assert (tent["samples"], tent["batches"], tent["updates"]) == (40, 6, 6)
    assert [row["call"] for row in tent["passes"]] == ["encode", "encode", "fuse"]
    for row in tent["passes"]:
        assert (row["gradient"], row["forward"], row["backward"]) == (True, 40, 40)
    assert len(tent["rounds"]) == len(tent["source"]) == 2
    for seconds in tent["rounds"] + tent["source"]:
        assert set(seconds) == {"load", "adapt", "processor"}
        assert seconds["adapt"] > 0
    total = sum(parameter.numel() for parameter in features.model.parameters())
    assert (source["trainable"], source["total"], source["updates"]) == (0, total, 0)
    adapters = 2 * (16 * 16 + 2 * 32 * 16)  # width 16: a plastic map, a stable one of rank 32
    assert (own["trainable"], own["total"]) == (adapters, total + adapters)


def test_each_method_has_a_new_process_and_is_measured_once(costs, workspace, monkeypatch):
    chosen = replace(costs, methods={"dasp": costs.methods["dasp"]})
    jobs = [job for _, job in chosen.jobs()]
    (result,) = run_plan(chosen, workspace, show=False)["dasp"]
    assert (result.run.kind, result.counts) == ("cost", None)
    assert result.run.cost["threads"] == result.measured["machine"]["threads"] == 1
    assert len(result.measured["rounds"]) == result.run.cost["rounds"]
    calls = [(row["call"], "+".join(row["modalities"])) for row in result.measured["passes"]]
    assert set(calls) == {*product(["encode", "fuse"], BOTH), ("fuse", "audio+video")}
    memory = result.measured["memory"]
    assert memory["peak_mib"] > memory["before_mib"] > 0
    monkeypatch.setattr("dasp.bench.cost._measured_in_new_process", None)
    assert run_plan(chosen, workspace, show=False)["dasp"] == [result]
    measure_costs(jobs, workspace, show=False)  # a second runner that began before it was packed


def test_a_process_that_dies_is_an_error_here(costs, workspace, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import os\nimport dasp\nfrom dasp.methods import Source\n"
        "class Lost(Source):\n    def step(self, batch):\n        os._exit(3)\n"
    )
    chosen = replace(costs, methods={"lost": MethodRow(f"{broken}:Lost")})
    with pytest.raises(DataError, match="Lost small ended early with exit code 3"):
        run_plan(chosen, workspace, show=False)
    assert set(finished(workspace.results)) == set()
