import math

import pytest
import torch

import dasp
from dasp.methods.sar import sharpness_ascent
from dasp.models import Toy


def test_the_ascent_has_length_rho_over_all_tensors_together():
    move = sharpness_ascent([torch.tensor([3.0]), None, torch.tensor([[4.0]])], 0.05)
    assert move[1] is None
    assert float(move[0]) == pytest.approx(0.03)
    assert float(move[2]) == pytest.approx(0.04)


def test_collapse_returns_to_the_source_state_else_the_average_of_the_loss_runs_on(
    batches, same_state
):
    model = Toy(seed=1)
    with torch.no_grad():
        model.head.weight.mul_(80)  # it is sure of everything
    tta = dasp.adapt(model, "sar", lr=1e-3, reset_below=0.2, margin=1.0)
    start = tta.memory.capture()
    outcome = tta(batches[0])
    assert outcome.updated
    assert outcome.loss < 0.2
    after = tta.memory.capture()
    assert after.batch_index == 1
    assert same_state(start, after)
    tta = dasp.adapt(model, "sar", lr=1e-3, reset_below=0.0, margin=1.0)
    losses = [tta(batch).loss for batch in batches]
    expected = losses[0]
    for loss in losses[1:]:
        expected = 0.9 * expected + 0.1 * loss
    assert float(tta.method.loss_average) == pytest.approx(expected, rel=1e-5)


def test_nobody_sure_after_the_ascent_no_update_and_weights_restored(batches, same_state):
    """With a huge ascent the second forward is unsure of all: nothing may remain of it."""
    model = Toy(seed=1)
    with torch.no_grad():
        value = -(model(batches[0]).softmax(1) * model(batches[0]).log_softmax(1)).sum(1)
    margin = float(value.min()) / math.log(8) * 1.0001
    tta = dasp.adapt(model, "sar", margin=margin, rho=0.5)
    before = tta.memory.capture()
    assert not tta(batches[0]).updated
    assert same_state(before, tta.memory.capture())


def test_the_gradient_is_that_of_the_perturbed_weights(batches):
    """One plain SGD step, recomputed by hand."""
    tta = dasp.adapt(Toy(seed=1), "sar", lr=0.1, margin=1.0)
    twin = Toy(seed=1)
    norms = [p for m in twin.modules() if isinstance(m, torch.nn.LayerNorm) for p in m.parameters()]

    def gradient():
        logits = twin(batches[0])
        loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        return torch.autograd.grad(loss, norms, allow_unused=True, materialize_grads=True)

    first = gradient()
    norm = torch.cat([g.flatten() for g in first]).norm()
    start = [p.detach().clone() for p in norms]
    with torch.no_grad():
        for p, g in zip(norms, first, strict=True):
            p.add_(g, alpha=float(0.05 / norm))
    expected = [s - 0.1 * g for s, g in zip(start, gradient(), strict=True)]
    tta(batches[0])
    for ours, theirs in zip(tta.method.norms(), expected, strict=True):
        torch.testing.assert_close(ours.detach(), theirs, atol=1e-6, rtol=0)


def test_an_exception_in_the_second_forward_restores_the_weights(batches, same_state):
    class Fails(Toy):
        count = 0

        def fuse(self, tokens):
            self.count += 1
            if self.count == 2:
                raise RuntimeError("second")
            return super().fuse(tokens)

    tta = dasp.adapt(Fails(seed=1), "sar", margin=1.0)
    before = tta.memory.capture()
    with pytest.raises(RuntimeError, match="second"):
        tta(batches[0])
    assert same_state(before, tta.memory.capture())
