"""The parts of AEO, 2LTTA and MiDl that the figures of whole runs do not show."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import dasp
from dasp.core.errors import ContractError, OptionError
from dasp.methods.aeo import aeo_loss, relative_entropy
from dasp.methods.lltta import token_entropy
from dasp.methods.midl import view_information
from dasp.models import Toy


def test_entropies_agree_with_the_figures(figures):
    expected = figures("aeo")
    found = relative_entropy(expected["logits0"].softmax(dim=1))
    torch.testing.assert_close(found, expected["entropy0"], atol=1e-6, rtol=0)


def test_aeo_lowers_entropy_below_alpha_and_raises_it_above():
    for scale, sign in ((6.0, -1), (0.1, 1)):  # a sure and an unsure prediction
        logits = (scale * torch.eye(3)).requires_grad_()
        options = {"lambda1": 0.0, "lambda2": 0.0, "alpha": 0.5}
        aeo_loss(logits, [logits], **options).backward()
        after = logits.detach() - 0.1 * logits.grad
        change = relative_entropy(after.softmax(dim=1)) - relative_entropy(logits.softmax(dim=1))
        assert (change.sign() == sign).all()


def test_aeo_averages_over_three_modalities():
    joint, one, two = torch.randn(3, 5, 4)
    same = aeo_loss(joint, [one, one, one])
    assert float(same) == pytest.approx(float(aeo_loss(joint, [one, one])), abs=1e-6)
    assert float(aeo_loss(joint, [one, two])) != pytest.approx(float(same))


def test_aeo_trains_only_the_last_stage():
    names = dasp.adapt(Toy(depth=3), "aeo").memory.weights
    assert {name.split(".")[3] for name in names if name.startswith("model.blocks")} == {"2"}
    assert not any(name.startswith("model.encoders") for name in names)


@given(st.integers(1, 9), st.integers(1, 4))
def test_equal_tokens_have_the_largest_entropy(count, width):
    found = token_entropy(torch.ones(2, count, width))
    torch.testing.assert_close(found, torch.full((2, width), math.log(count)))


def test_lltta_takes_the_entropy_and_the_encoder_it_is_told(batches3):
    def first(**options):
        model = Toy(modalities=("audio", "video", "depth"), depth=2, seed=1)
        return dasp.adapt(model, "lltta", **options)

    losses = {
        first(**options)(batches3[0]).loss
        for options in ({}, {"level": "prediction"}, {"modality": "depth"}, {"diversity": 0.0})
    }
    assert len(losses) == 4
    assert first().method.tuned == "video"
    trained = first(modality="depth", blocks=1).memory.weights
    maps = [name for name in trained if name.endswith("attn.proj.weight")]
    assert maps == ["model.blocks.depth.0.attn.proj.weight", "model.block.attn.proj.weight"]
    with pytest.raises(OptionError, match="modality"):
        first(modality="dept")


def test_lltta_refuses_blocks_without_its_map():
    model = Toy(depth=1)
    model.blocks["video"] = nn.Sequential(nn.Identity())
    with pytest.raises(ContractError, match=r"attn\.proj\.weight"):
        dasp.adapt(model, "lltta")


@given(st.integers(0, 2**31), st.integers(1, 4))
def test_views_that_agree_carry_no_information(seed, views):
    logits = torch.randn(views, 5, 6, generator=torch.Generator().manual_seed(seed))
    assert float(view_information([logits[0]] * views)) == pytest.approx(0, abs=1e-6)
    assert float(view_information(list(logits))) > -1e-6


def test_midl_and_incomplete_samples(batches):
    part = {"video": batches[1]["video"]}
    for option, learns in (("kl", True), ("skip", False)):
        tta = dasp.adapt(Toy(seed=1), "midl", lr=1e-2, incomplete=option)
        tta(batches[0])
        assert tta(part).updated is learns
        assert tta(batches[0]).updated


def test_midl_scales_the_rate_of_small_batches(batches):
    def moved(**options):
        tta = dasp.adapt(Toy(seed=1), "midl", lr=1e-2, **options)
        weight = next(iter(tta.memory.weights.values()))
        before = weight.detach().clone()
        tta(batches[0])
        return weight.detach() - before

    torch.testing.assert_close(moved(scale_lr=True), moved() / 2, atol=1e-6, rtol=0)  # 16 samples
