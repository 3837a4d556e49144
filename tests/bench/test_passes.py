"""Passes through a model are those that each method's docstring tells of, to the sample."""

import dataclasses

import pytest
import torch

import dasp
from dasp.bench.passes import counted_passes
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


def inputs(samples=16, seed=0):
    return SyntheticWorld(BOTH).draw(samples, seed=seed).inputs


def passes(tta, *batches):
    """Return {(call, modalities, gradient): (forward, backward)} in samples."""
    with counted_passes(tta.model) as found:
        for batch in batches:
            tta(batch)
    return {
        (row["call"], "+".join(row["modalities"]), row["gradient"]): (
            row["forward"],
            row["backward"],
        )
        for row in found.rows()
    }


def encoded(gradient, forward=16, backward=0):
    return {("encode", name, gradient): (forward, backward) for name in BOTH}


def fused(call="fuse", modalities="audio+video", gradient=True, forward=16, backward=16):
    return {(call, modalities, gradient): (forward, backward)}


SOURCE = encoded(False) | fused(gradient=False, backward=0)


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("source", {}, SOURCE),
        ("tent", {}, encoded(True, 16, 16) | fused()),
        ("eata", {"margin": 10.0}, encoded(True, 16, 16) | fused()),
        ("eata", {"margin": 1e-9}, encoded(True, 16, 0) | fused(backward=0)),
        ("sar", {"margin": 10.0}, encoded(True, 32, 32) | fused(forward=32, backward=32)),
        ("sar", {"margin": 1e-9}, encoded(True, 16, 0) | fused(backward=0)),
        ("read", {}, encoded(False) | fused()),
        ("abpem", {}, encoded(False) | fused("fuse_with_attention")),
        ("pta", {}, encoded(False) | fused("fuse_with_attention")),
        (
            "tsa",
            {},
            encoded(False) | fused(gradient=False, forward=32, backward=0) | fused(),
        ),
    ],
)
def test_passes_of_each_method(method, options, expected):
    assert passes(dasp.adapt(Toy(), method, **options), inputs()) == expected


AFTER = encoded(False) | fused(gradient=False, backward=0)
ALL_KEPT = {"share": 0.0, "alone_floor": 0.0, "stream_length": 4}


def own_norms(gradient, backward):
    return {("fuse_own_norm", name, gradient): (16, backward) for name in BOTH}


def test_passes_of_sumi_change_half_way():
    tta = dasp.adapt(Toy(), "sumi", **ALL_KEPT)
    tuned = encoded(True, 16, 16) | fused()
    for place in range(4):
        early = place < 2
        alone = own_norms(early, 16 * early)
        assert passes(tta, inputs(seed=place)) == tuned | alone | AFTER


def test_a_sumi_step_that_keeps_nothing_goes_no_further():
    tta = dasp.adapt(Toy(), "sumi", **ALL_KEPT | {"alone_floor": 99.0})
    expected = encoded(True, 16, 0) | fused(backward=0) | own_norms(True, 0)
    assert passes(tta, inputs()) == expected


def test_passes_of_brimpr():
    tta = dasp.adapt(Toy(depth=2), "brimpr")
    tta.fit([inputs(8, seed=1)])
    prompted = {("encode_prompted", name, True): (32, 32) for name in BOTH}  # whole, and halved
    joint = fused(gradient=False, backward=0) | fused(forward=32, backward=32)
    alone = fused(modalities="audio") | fused(modalities="video") | own_norms(True, 16)
    assert passes(tta, inputs()) == prompted | joint | alone


ALONE = encoded(False) | {
    key: value
    for name in BOTH
    for key, value in fused(modalities=name, gradient=False, backward=0).items()
}


@pytest.mark.parametrize(
    ("flagged", "options", "expected"),
    [
        ((), {}, ALONE | fused(gradient=False, backward=0)),
        (("audio",), {}, ALONE | fused() | fused(modalities="video")),
        (("video",), {}, ALONE | fused() | fused(modalities="audio")),
        (("video",), {"lambda_kl": 0.0}, ALONE | fused()),
        (
            (),
            {"variant": "paper"},
            ALONE | fused() | fused(modalities="audio") | fused(modalities="video"),
        ),
    ],
)
def test_passes_of_dasp_follow_the_diagnosis(flagged, options, expected):
    tta = dasp.adapt(Toy(), Told, **options)
    tta.method.flagged = frozenset(flagged)
    assert passes(tta, inputs()) == expected


def test_a_part_of_a_batch_counts_as_its_samples():
    found = passes(dasp.adapt(Toy(), "read"), inputs(16), inputs(5))
    assert found == encoded(False, 21) | fused(forward=21, backward=21)


def test_a_prediction_after_the_update_is_one_more_pass():
    found = passes(dasp.adapt(Toy(), "read", predict="after"), inputs())
    assert found == encoded(False) | fused() | fused(gradient=False, backward=0)


def test_three_modalities():
    names = ("audio", "video", "depth")
    batch = SyntheticWorld(names).draw(4, seed=0).inputs
    found = passes(dasp.adapt(Toy(modalities=names), "read"), batch)
    assert found["fuse", "audio+video+depth", True] == (4, 4)


def test_a_call_inside_a_call_is_one_pass():
    class Nested(Toy):
        def fuse_with_attention(self, tokens):
            self.fuse(tokens)
            return super().fuse_with_attention(tokens)

    found = passes(dasp.adapt(Nested(), "abpem"), inputs())
    assert found == encoded(False) | fused("fuse_with_attention")


def test_counting_changes_nothing():
    model, batch = Toy(), inputs()
    plain = dasp.adapt(Toy(), "dasp", delta=0.0)
    tta = dasp.adapt(model, "dasp", delta=0.0)
    with counted_passes(model):
        counted = [tta(batch).logits for _ in range(3)]
    assert not {"encode", "fuse", "fuse_with_attention"} & set(vars(model))
    for logits in counted:
        assert torch.equal(logits, plain(batch).logits)


def test_an_own_wrapper_is_put_back():
    model = Toy()
    mine = model.fuse = lambda tokens: Toy.fuse(model, tokens)
    with counted_passes(model):
        assert model.fuse is not mine
    assert model.fuse is mine
