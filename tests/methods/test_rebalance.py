"""Marginal rebalancing: its equation and laws, short and long streams, its memory."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dasp
from dasp.core.errors import OptionError, StateError
from dasp.methods.rebalance import ITERATIONS, TOLERANCE, Rebalancer, rebalance
from dasp.models import Toy

STRENGTHS = st.floats(0.01, 1.0)


def drawn(seed, rows, classes, spread=2.0, lean=1.0):
    """Logits of a model that favours some classes, by `lean`, alike on all rows."""
    generator = torch.Generator().manual_seed(seed)
    favour = lean * torch.randn(classes, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return spread * noise + favour


def marginal(logits):
    return logits.softmax(dim=1).mean(dim=0)


def bias(logits, memory, strength, **options):
    """What was added to every row, as it acts: up to a constant."""
    added = rebalance(logits, memory, strength, **options) - logits
    torch.testing.assert_close(added, added[:1].expand_as(added), rtol=0, atol=1e-9)
    return added[0] - added[0].mean()


laws = settings(max_examples=25)
sizes = {
    "seed": st.integers(0, 10**6),
    "rows": st.integers(1, 40),
    "past": st.integers(0, 60),
    "classes": st.integers(1, 12),
}


@laws
@given(**sizes, strength=STRENGTHS)
def test_it_solves_its_equation(seed, rows, past, classes, strength):
    """b = λ log(target / m̃(b)), with m and λ written out anew."""
    logits, memory = drawn(seed, rows, classes), drawn(seed + 1, past, classes)
    found = bias(logits, memory, strength)
    count = rows + past
    softness = (1 - strength) / strength + classes / count
    everything = torch.cat([logits, memory])
    smooth = (count * marginal(everything + found) + 1) / (count + classes)
    wanted = (1 / (classes * smooth)).log() / softness
    # What is left is the last step times 1 + λ.
    left = 2 * TOLERANCE * (1 + 1 / softness)
    torch.testing.assert_close(found, wanted - wanted.mean(), rtol=0, atol=left)


@laws
@given(**sizes, strength=STRENGTHS, offset=st.floats(-50, 50))
def test_its_laws(seed, rows, past, classes, strength, offset):
    """Rows stay distributions; order and constants do not matter; the target is a fixed point."""
    logits, memory = drawn(seed, rows, classes), drawn(seed + 1, past, classes)
    result = rebalance(logits, memory, strength)
    assert torch.isfinite(result).all()
    torch.testing.assert_close(result.softmax(dim=1).sum(dim=1), torch.ones(rows).double())
    generator = torch.Generator().manual_seed(seed)
    order, turned, other = (torch.randperm(n, generator=generator) for n in (rows, classes, past))
    again = rebalance(logits[order][:, turned], memory[other][:, turned], strength)
    torch.testing.assert_close(again, result[order][:, turned], rtol=0, atol=1e-9)
    moved = torch.cat([logits[:1] + offset, logits[1:]])
    after = rebalance(moved, memory + offset, strength).softmax(dim=1)
    torch.testing.assert_close(after, result.softmax(dim=1), rtol=0, atol=1e-9)
    target = marginal(torch.cat([logits, memory]))
    assert bias(logits, memory, strength, target=target).abs().max() < 1e-6


@laws
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 8))
def test_the_marginal_nears_the_target_with_strength_and_length(seed, classes):
    logits = drawn(seed, 400, classes, lean=1.5)
    target = torch.linspace(1, 2, classes, dtype=torch.float64)
    target /= target.sum()

    def distance(strength):
        """KL(m̃ ‖ target): of a sum of two terms, the one whose weight grows can only fall."""
        result = rebalance(logits, logits[:0], strength, target)
        smooth = (400 * marginal(result) + classes * target) / (400 + classes)
        return float((smooth * (smooth / target).log()).sum())

    distances = [distance(strength) for strength in (0.0, 0.3, 0.8, 1.0)]
    assert all(far + 1e-6 >= near for far, near in pairwise(distances))
    # At full strength each share misses its target by what its own equation leaves: exp(−b·C/n).
    result = rebalance(logits, logits[:0], 1.0, target)
    smooth = (400 * marginal(result) + classes * target) / (400 + classes)
    left = target * (-(result - logits)[0] * classes / 400).exp()
    torch.testing.assert_close(smooth, left / left.sum(), rtol=5 * TOLERANCE, atol=0)


def test_a_lean_of_the_model_is_found_and_taken_back():
    """Labels even, posteriors right but for a bias: the bias comes back, negated."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(5).repeat(400)
    # Gaussian classes with unit covariance: the true posterior is a softmax of 1.5·x.
    points = 1.5 * torch.eye(5)[labels] + torch.randn(2000, 5, generator=generator)
    lean = torch.tensor([2.0, -1.0, 0.5, 0.0, -1.5])
    found = bias((1.5 * points + lean).double(), torch.empty(0, 5), 1.0)
    torch.testing.assert_close(found.float(), lean.mean() - lean, rtol=0, atol=0.2)


def test_a_short_stream_of_one_class_keeps_it_and_a_long_one_does_not():
    """Eight samples of 36 classes say nothing about their frequency; docs/own_model.md warns."""
    logits = torch.zeros(8, 36)
    logits[:, 7] = 4.0
    for strength in (0.5, 0.8, 1.0):
        assert (rebalance(logits, logits[:0], strength).argmax(dim=1) == 7).all()
        one = rebalance(logits[:1], logits[:0], strength)
        assert (one - logits[:1]).abs().max() < 0.2
    logits = drawn(0, 500, 36, spread=1.0, lean=0.0)
    logits[:, 7] += 5.0
    assert (logits.argmax(dim=1) == 7).double().mean() > 0.95
    assert (rebalance(logits, logits[:0], 0.8).argmax(dim=1) == 7).double().mean() < 0.5


@pytest.mark.parametrize("rows", [1, 20])
def test_one_class_and_identical_rows(rows):
    assert rebalance(torch.full((rows, 1), 3.0), torch.zeros(4, 1), 1.0).allclose(torch.tensor(3.0))
    same = torch.tensor([0.0, 1.0, 2.0]).expand(rows, 3)
    result = rebalance(same, same[:0], 0.8)
    assert (result == result[0]).all()
    assert (result.argmax(dim=1) == 2).all()  # alike rows can only come closer to even


def test_classes_ruled_out_and_extreme_logits():
    logits = drawn(0, 30, 6).float()
    logits[:, 2] = -math.inf
    logits[3] = torch.tensor([1e4, -1e4, -math.inf, 0, 0, 0])
    result = rebalance(logits, logits[:0], 1.0)
    assert (result[:, 2] == -math.inf).all()
    assert torch.isfinite(result[:, [0, 1, 3, 4, 5]]).all()
    assert result[3].argmax() == 0


def test_iterations_are_bounded(monkeypatch):
    calls = []
    plain = torch.logaddexp
    monkeypatch.setattr(torch, "logaddexp", lambda *a: calls.append(1) or plain(*a))
    certain = torch.zeros(3000, 2)
    certain[:, 0] = 1e3  # nothing can be moved, and the pull is strong: the slowest case
    rebalance(certain, certain[:0], 1.0)
    assert len(calls) == ITERATIONS
    calls.clear()
    rebalance(drawn(0, 300, 36).float(), torch.empty(0, 36), 0.8)
    assert len(calls) < 30


@laws
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 12), st.integers(0, 10**6)
)
def test_the_memory_holds_the_last_rows_and_no_more(lengths, capacity, seed):
    rebalancer = Rebalancer(0.5, capacity, torch.empty(0, 4))
    stream = drawn(seed, sum(lengths), 4).float()
    for batch in stream.split(lengths):
        rebalancer.remember(batch)
        assert len(rebalancer.rows) <= capacity
        assert rebalancer.rows.untyped_storage().nbytes() == len(rebalancer.rows) * 16
    kept = stream[max(len(stream) - capacity, 0) :].log_softmax(dim=1)
    torch.testing.assert_close(rebalancer.rows, kept)


def test_rows_that_are_no_distribution_take_no_part():
    logits = drawn(0, 6, 4).float()
    spoilt = logits.clone()
    spoilt[2] = torch.nan
    spoilt[4, 1] = torch.inf
    good = [0, 1, 3, 5]
    rebalancer, twin = (Rebalancer(0.8, 99, torch.empty(0, 4)) for _ in range(2))
    result = rebalancer(spoilt)
    assert torch.equal(result[good], twin(logits[good]))
    assert result[2].isnan().all()
    assert result[4, 1] == torch.inf
    rebalancer.remember(spoilt)
    twin.remember(logits[good])
    assert torch.equal(rebalancer.rows, twin.rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rebalance": 1.5}, "rebalance must be a number from 0"),
        ({"rebalance": True}, "rebalance must be"),
        ({"rebalance_memory": -1}, "rebalance_memory must be"),
        ({"rebalance": 0.5, "rebalance_memory": 1.5}, "rebalance_memory must be"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(OptionError, match=message):
        dasp.adapt(Toy(), "dasp", **options)


def test_a_state_without_a_memory_is_refused():
    plain = dasp.adapt(Toy(seed=1), "source").state()
    with pytest.raises(StateError, match=r"does not fit: buffer/rebalancer\.rows"):
        dasp.adapt(Toy(seed=1), "source", rebalance=0.5).load_state(plain)


def test_a_restart_forgets_the_stream_too(batches):
    tta = dasp.adapt(Toy(seed=1), "sar", margin=1.0, reset_below=100.0, rebalance=0.8)
    first = tta(batches[0])
    assert first.rollback
    assert len(tta.method.rebalancer.rows) == 0
    assert torch.equal(tta(batches[0]).logits, first.logits)
