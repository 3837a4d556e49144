import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dasp.methods.losses import entropy, entropy_of_mean, kl_divergence, read_balance

rows = st.lists(st.lists(st.floats(-20, 20), min_size=4, max_size=4), min_size=1, max_size=6)


@given(rows)
def test_entropy_lies_between_zero_and_log_c(values):
    value = entropy(torch.tensor(values))
    assert (value >= -1e-6).all()
    assert (value <= math.log(4) + 1e-5).all()


@given(rows)
def test_the_mean_is_at_least_as_uncertain_as_its_parts(values):
    logits = torch.tensor(values)
    assert entropy_of_mean(logits) >= entropy(logits).mean() - 1e-4


@given(rows, st.floats(-5, 5))
def test_kl_is_zero_for_equal_and_never_negative(values, shift):
    logits = torch.tensor(values)
    assert float(kl_divergence(logits, logits + shift)) == pytest.approx(0, abs=1e-4)
    assert kl_divergence(logits, logits.flip(1)) >= -1e-5


def test_kl_by_hand():
    p, q = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.5, 0.5]])
    expected = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert float(kl_divergence(p.log(), q.log())) == pytest.approx(expected, abs=1e-6)


def test_reads_balance_takes_a_second_softmax_of_the_sum():
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2]])
    sums = torch.tensor([1.7, 0.3])
    q = sums.softmax(dim=0)
    assert float(read_balance(p.log())) == pytest.approx(float(-(q * q.log()).sum()), abs=1e-6)


def test_certain_predictions_have_no_nan():
    logits = torch.tensor([[1000.0, 0.0, 0.0]])
    assert float(entropy(logits)) == 0
    assert float(entropy_of_mean(logits)) == 0
