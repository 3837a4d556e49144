"""The contract check must see what is broken: one deliberate fault each."""

import pytest
import torch

import dasp
from dasp.core.errors import ContractError, StateError
from dasp.core.types import Step


class Good(dasp.Method):
    """Trains the fusion by entropy.

    Paper: Somebody, "Something", Somewhere 2026.
    """

    version = 1

    def __init__(self, model, *, weight=1.0, seed=0):
        super().__init__(model, seed=seed)
        self.weight = weight

    def trainable(self):
        return self.model.fusion_qkv()

    def step(self, batch):
        logits = self.forward(batch).logits
        return Step(logits, self.weight * logits.softmax(1).square().sum())


class Uncited(Good):
    """Trains the fusion."""

    version = 1


class Unversioned(Good):
    __doc__ = Good.__doc__


class Forgetful(Good):
    __doc__ = Good.__doc__
    version = 1

    def __init__(self, model, *, weight=1.0, seed=0):
        super().__init__(model, seed=seed)
        self.weight = 2 * weight


class HiddenState(Good):
    __doc__ = Good.__doc__
    version = 1
    count = 0

    def step(self, batch):
        self.count += 1
        step = super().step(batch)
        return Step(step.logits, step.loss * self.count)


class GlobalDraw(Good):
    __doc__ = Good.__doc__
    version = 1

    def step(self, batch):
        step = super().step(batch)
        return Step(step.logits, step.loss * torch.rand(()))


class Impure(Good):
    __doc__ = Good.__doc__
    version = 1

    def predict(self, batch):
        with torch.no_grad():
            self.model.fusion_qkv()[0].add_(1e-3)
        return super().predict(batch)


class TakesLabels(Good):
    __doc__ = Good.__doc__
    version = 1

    def step(self, batch, labels=None):
        return super().step(batch)


class ZeroGradient(Good):
    """Gives idle weights a zero gradient, so that Adam drifts.

    Paper: Somebody, "Something", Somewhere 2026.
    """

    version = 1

    def __init__(self, model, *, seed=0):
        super().__init__(model, seed=seed)
        self.extra = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("turn", torch.zeros(()))

    def trainable(self):
        return [*self.model.fusion_qkv(), self.extra]

    def step(self, batch):
        self.turn += 1
        step = super().step(batch)
        logits = step.logits
        if self.turn % 2:
            return Step(logits, logits.square().mean() + self.extra.sum())
        weights = list(self.trainable())
        gradients = torch.autograd.grad(logits.square().mean(), weights, allow_unused=True)
        return Step(logits, step.loss.detach(), gradients=gradients)

    weight = 1.0


class Waiting(Good):
    """Trains the fusion, when it was given what it needs.

    Paper: Somebody, "Something", Somewhere 2026.
    """

    version = 1
    needs_source = True

    def __init__(self, model, *, weight=1.0, stream_length=None, seed=0):
        super().__init__(model, weight=weight, seed=seed)
        self.stream_length = stream_length
        self.register_buffer("centre", torch.full((self.model.num_classes,), torch.nan))

    def fit(self, source):
        with torch.no_grad():
            logits = torch.cat([self.model(batch) for batch in source])
        self.centre.copy_(logits.mean(dim=0))

    def step(self, batch):
        if self.stream_length is None or self.centre.isnan().any():
            raise StateError("call fit() and give stream_length first.")
        step = super().step(batch)
        return Step(step.logits, step.loss + (step.logits - self.centre).square().mean())


class Silent(Waiting):
    __doc__ = Waiting.__doc__
    version = 1

    def step(self, batch):
        return Good.step(self, batch)


class HiddenFit(Waiting):
    """Keeps what it learnt from source data where no reset can reach it.

    Paper: Somebody, "Something", Somewhere 2026.
    """

    version = 1

    def step(self, batch):
        step = super().step(batch)
        self.centre = self.centre.clone() + 1
        self.drift = getattr(self, "drift", 0) + 1
        return Step(step.logits, step.loss * self.drift)


def test_a_method_that_waits_for_source_data_and_a_length_is_given_them():
    dasp.check_method(Waiting)


def test_a_good_method_passes():
    dasp.check_method(Good)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Uncited, "does not cite its paper"),
        (Unversioned, "has no version of its own"),
        (Forgetful, "weight is not kept"),
        (HiddenState, "after reset"),
        (GlobalDraw, "global generator"),
        (Impure, r"frozen\(\) changes the state"),
        (TakesLabels, "more than one batch"),
        (Silent, r"without fit\(\) and stream_length it runs"),
        (HiddenFit, "after reset"),
    ],
)
def test_each_fault_is_named(method, message):
    with pytest.raises(ContractError, match=message):
        dasp.check_method(method)


def test_idle_weights_with_none_are_left_alone():
    dasp.check_method(ZeroGradient)


def test_drifting_weights_are_seen(monkeypatch):
    from dasp.methods.state import Memory

    descend = Memory.descend

    def with_zeros(self, step):
        if step.gradients is not None:
            zeros = [
                torch.zeros_like(p) if g is None else g
                for p, g in zip(self.weights.values(), step.gradients, strict=True)
            ]
            step = Step(step.logits, step.loss, gradients=tuple(zeros))
        return descend(self, step)

    monkeypatch.setattr(Memory, "descend", with_zeros)
    with pytest.raises(ContractError, match=r"moves without a gradient: weight/extra"):
        dasp.check_method(ZeroGradient)
