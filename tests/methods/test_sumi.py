"""SuMi: its selection and loss by hand and against the reference."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dasp
from dasp.bench.checks import trial, trial_model
from dasp.core.errors import OptionError
from dasp.methods.losses import entropy, read_balance
from dasp.methods.sumi import mutual_information, pad_to, within_range
from dasp.models import Toy

times = st.floats(0, 1)
seeds = st.integers(0, 10_000)


def features(seed, rows=9, columns=7):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).double()


@given(seeds, times, st.floats(0.1, 50), st.floats(-20, 20))
def test_the_range_rule_does_not_see_the_scale_or_the_origin_of_a_feature(seed, time, scale, shift):
    values = features(seed)
    scales = scale * (1 + torch.arange(7, dtype=torch.float64))
    signs = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0]).double()
    # a value on the border of the range may fall on either side once it is rounded
    kept = within_range(values, time * 0.999)
    assert torch.equal(kept, within_range(values * scales * signs + shift, time * 0.999))


@given(seeds)
def test_at_the_end_of_the_stream_everything_is_within(seed):
    assert within_range(features(seed), 1.0).all()


def test_the_range_rule_by_hand():
    # ranges 0…8: the middle half is 2…6 at time 0, 0…8 at 1/3 (reach 1.5, IQR 4: 2 more a side)
    values = torch.tensor([[0.0, 0.0], [8.0, 8.0], [3.0, 7.0], [2.0, 6.0], [1.0, 1.0]])
    assert within_range(values, 0.0).tolist() == [False, False, False, True, False]
    assert within_range(values, 0.0, share=0.5).tolist() == [False, False, True, True, False]
    assert within_range(values, 1 / 3 + 1e-6).all()
    assert within_range(torch.ones(1, 4), 0.0).all()  # one sample has no range to be out of


def test_mutual_information_by_hand():
    first, second, joint = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))
    p, q, r = (logits.softmax(dim=1) for logits in (first, second, joint))
    one, two = (q + r) / 2, (p + r) / 2
    expected = (one * (one / p).log()).sum(1) + (two * (two / q).log()).sum(1)
    torch.testing.assert_close(mutual_information(first, second, joint), expected)
    assert mutual_information(joint, joint, joint).abs().max() < 1e-6
    sure = torch.tensor([[200.0, 0.0]])
    assert torch.isfinite(mutual_information(sure, sure.flip(1), sure)).all()


def test_the_kept_samples_agree_with_the_reference(
    reference_model, reference_batches, reference_config, figures, monkeypatch
):
    tta = dasp.adapt(reference_model, "sumi", lr=reference_config["lr"], stream_length=8)
    kept, keep = [], tta.method._keep
    monkeypatch.setattr(tta.method, "_keep", lambda *given: kept.append(keep(*given)) or kept[-1])
    updated = [tta(batch).updated for batch in reference_batches]
    assert [int(rows.sum()) for rows in kept] == figures("sumi")["kept"].tolist()
    assert updated == [bool(rows.any()) for rows in kept]
    assert not updated[0]


def test_modalities_alone_are_learnt_from_in_the_first_half_only(batches):
    tta = trial("sumi", lr=1e-2, stream_length=4, share=0.0, alone_floor=0.0, joint_limit=9.0)
    moved, norms = [], [p for name, p in tta.memory.weights.items() if "own_norm" in name]
    for batch in (batches * 2)[:5]:
        before = [norm.detach().clone() for norm in norms]
        tta(batch)
        moved.append(any(not torch.equal(*pair) for pair in zip(before, norms, strict=True)))
    assert moved == [True, True, False, False, False]


@pytest.mark.parametrize("seen", [0, 3, 20])
def test_the_loss_by_hand(seen, batches):
    method = trial("sumi", stream_length=4, share=0.0, alone_floor=0.0, joint_limit=9.0).method
    method.seen.fill_(seen)
    loss = method.step(batches[1]).loss
    assert int(method.seen) == seen + 1
    tokens = method.model.encode(batches[1])
    joint = method.model.fuse(tokens).logits
    alone = [
        method.model.fuse_own_norm({name: pad_to(tokens[name], 5, name == "video")}).logits
        for name in ("audio", "video")
    ]
    value = entropy(joint)
    weight = torch.exp(9.0 - value)
    part = value + 5 * mutual_information(*alone, joint) if seen < 2 else value.mean()
    torch.testing.assert_close(loss, (weight * part).mean() - read_balance(joint))


def test_nothing_kept_learns_nothing_but_counts(batches):
    tta = trial("sumi", alone_floor=100.0)
    before = tta.memory.capture()
    outcome = tta(batches[0])
    assert (outcome.updated, outcome.rejected) == (False, None)
    after = tta.memory.capture()
    moved = [n for n, v in before.tensors.items() if not torch.equal(v, after.tensors[n])]
    assert moved == ["buffer/seen"]


def test_the_length_is_asked_for_before_the_first_batch():
    with pytest.raises(OptionError, match=r"the number of batches until .*stream_length=100"):
        dasp.adapt(trial_model(), "sumi")


@pytest.mark.parametrize(
    "wrong",
    [{"stream_length": 0}, {"stream_length": 2.5}, {"share": 1.1}, {"share": -1.0}, {"reach": -1.0},
     {"joint_limit": 0.0}, {"mutual_weight": math.nan}],
)  # fmt: skip
def test_impossible_settings(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        dasp.adapt(Toy(), "sumi", **({"stream_length": 4} | wrong))
