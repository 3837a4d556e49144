"""The contract check must see what is broken: one deliberate fault each."""

import pytest
import torch

import dasp
from dasp.core.errors import ContractError, StateError
from dasp.core.types import Step
from dasp.methods.state import Memory


class Good(dasp.Method):
    """Trains the fusion.

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


class Waiting(Good):
    """Needs source data and the length of the stream; keeps what it learnt in a buffer.

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
            logits = torch.cat([self.fuse(batch).logits for batch in source])
        self.centre.copy_(logits.mean(dim=0))

    def step(self, batch):
        if self.centre.isnan().any():
            raise StateError("call fit() first.")
        step = super().step(batch)
        return Step(step.logits, step.loss + (step.logits - self.centre).square().mean())


class Idle(Good):
    """Trains a weight in every other batch, and gives it no gradient in the others.

    Paper: Somebody, "Something", Somewhere 2026.
    """

    version = 1
    weight = 1.0

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


def faulty(base=Good, **attributes):
    """Return a method that is good but for these attributes."""
    return type("Faulty", (base,), {"__doc__": base.__doc__, "version": 1, **attributes})


def forget_weight(self, model, *, weight=1.0, seed=0):
    Good.__init__(self, model, weight=2 * weight, seed=seed)


def count_in_attribute(self, batch):
    self.count = getattr(self, "count", 0) + 1
    step = Good.step(self, batch)
    return Step(step.logits, step.loss * self.count)


def draw_globally(self, batch):
    step = Good.step(self, batch)
    return Step(step.logits, step.loss * torch.rand(()))


def train_while_predicting(self, batch):
    with torch.no_grad():
        self.model.fusion_qkv()[0].add_(1e-3)
    return Good.predict(self, batch)


def replace_buffer(self, batch):
    step = Waiting.step(self, batch)
    self.centre = self.centre.clone() + 1
    self.drift = getattr(self, "drift", 0) + 1
    return Step(step.logits, step.loss * self.drift)


@pytest.mark.parametrize("method", [Good, Waiting, Idle])
def test_a_good_method_passes(method):
    dasp.check_method(method)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (faulty(__doc__="Trains the fusion."), "does not cite its paper"),
        (faulty(version=None), "has no version of its own"),
        (faulty(__init__=forget_weight), "weight is not kept"),
        (faulty(step=count_in_attribute), "after reset"),
        (faulty(step=draw_globally), "global generator"),
        (faulty(predict=train_while_predicting), r"frozen\(\) changes the state"),
        (faulty(step=lambda self, batch, labels=None: Good.step(self, batch)), "more than one"),
        (faulty(Waiting, step=Good.step), r"without fit\(\) it runs"),
        (faulty(Waiting, step=replace_buffer), "after reset"),
    ],
)
def test_each_fault_is_named(method, message):
    with pytest.raises(ContractError, match=message):
        dasp.check_method(method)


def test_drifting_weights_are_seen(monkeypatch):
    descend = Memory.descend

    def with_zeros(self, step, lr):
        if step.gradients is not None:
            zeros = [
                torch.zeros_like(p) if g is None else g
                for p, g in zip(self.weights.values(), step.gradients, strict=True)
            ]
            step = Step(step.logits, step.loss, gradients=tuple(zeros))
        return descend(self, step, lr)

    monkeypatch.setattr(Memory, "descend", with_zeros)
    with pytest.raises(ContractError, match=r"moves without a gradient: weight/extra"):
        dasp.check_method(Idle)
