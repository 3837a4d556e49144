"""ABPEM and PTA: their equations against numpy and by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dasp
from dasp.core.types import Attention
from dasp.methods.abpem import attention_gap, principal_entropy
from dasp.methods.pta import average_ranks, mmd, prediction_bias
from dasp.models import Toy


def test_principal_entropy_takes_the_top_classes_with_its_epsilon():
    p = torch.tensor([[0.5, 0.3, 0.2]])
    expected = -sum(x * math.log(x + 1e-6) for x in (0.5, 0.3))
    assert float(principal_entropy(p.log(), top=2)) == pytest.approx(expected, abs=1e-7)
    everything = -sum(x * math.log(x + 1e-6) for x in (0.5, 0.3, 0.2))
    assert float(principal_entropy(p.log(), top=28)) == pytest.approx(everything, abs=1e-7)
    certain = torch.tensor([[200.0, 0.0, 0.0]])
    assert float(principal_entropy(certain, 2)) == pytest.approx(-math.log(1 + 1e-6), abs=1e-7)


def test_attention_gap_by_hand_and_its_constants():
    weights = torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    spans = {"audio": slice(0, 3), "video": slice(3, 5)}
    gap = attention_gap(Attention(weights, spans))
    w = weights.detach().numpy().mean(axis=1)
    a, v = slice(0, 3), slice(3, 5)

    def moments(block):
        flat = block.reshape(2, -1)
        return flat.mean(1), flat.std(1, ddof=1)

    def kl(p, q):
        (mp, sp), (mq, sq) = moments(p), moments(q)
        return (np.log(sq / sp) + (sp**2 + (mp - mq) ** 2) / (2 * sq**2) - 0.5).mean()

    expected = kl(w[:, v, a], w[:, a, a]) + kl(w[:, a, v], w[:, v, v])
    assert float(gap.detach()) == pytest.approx(expected, abs=1e-5)
    gap.backward()
    assert not weights.grad[:, :, a, a].any()
    assert not weights.grad[:, :, v, v].any()
    assert weights.grad[:, :, a, v].any()
    assert weights.grad[:, :, v, a].any()


def test_bias_by_hand():
    labels = torch.tensor([4, 4, 4, 7, 9, 9])
    z = prediction_bias(labels)
    expected = [math.tanh(1 / 3 - f) for f in (0.5, 0.5, 0.5, 1 / 6, 1 / 3, 1 / 3)]
    np.testing.assert_allclose(z.numpy(), expected, atol=1e-7)
    assert z[4] == 0  # exactly at its fair share: in neither half


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_ranks_with_ties(values):
    ranks = average_ranks(torch.tensor(values, dtype=torch.float32)).tolist()
    order = sorted(values)
    for value, rank in zip(values, ranks, strict=True):
        places = [i + 1 for i, other in enumerate(order) if other == value]
        assert rank == pytest.approx(sum(places) / len(places))
    assert sum(ranks) == pytest.approx(len(values) * (len(values) + 1) / 2)


def test_mmd_by_hand():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 4)), rng.normal(1.0, 1.0, (2, 4))
    rows = np.concatenate([a, b])
    d = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    upper = np.sort(d[np.triu_indices(5, 1)])
    sigma = upper[(len(upper) - 1) // 2] / 2
    k = np.exp(-d / sigma)
    expected = k[:3, :3].mean() + k[3:, 3:].mean() - 2 * k[:3, 3:].mean()
    ours = mmd(torch.from_numpy(a), torch.from_numpy(b))
    assert float(ours) == pytest.approx(expected, abs=1e-9)


def test_mmd_of_equal_rows_has_a_finite_gradient():
    rows = torch.randn(4, 3, requires_grad=True)
    mmd(rows[:2], rows[2:]).backward()
    assert torch.isfinite(rows.grad).all()


def test_pta_does_not_update_when_a_half_is_empty(batches):
    model = Toy(seed=1)
    with torch.no_grad():
        model.head.bias[3] += 100  # everything is class 3: frequency equals 1/U
    outcome = dasp.adapt(model, "pta")(batches[0])
    assert not outcome.updated
    assert outcome.loss is None


@pytest.mark.parametrize("name", ["abpem", "pta"])
def test_one_sample_is_stated_behaviour(name, batches):
    one = {key: value[:1] for key, value in batches[0].items()}
    outcome = dasp.adapt(Toy(seed=1), name)(one)
    assert torch.isfinite(outcome.logits).all()
    assert outcome.updated == (name == "abpem")
