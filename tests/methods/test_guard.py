"""The collapse guard: when it speaks, when it keeps still, and what it gives back."""

import pytest
import torch
from torch import nn

import dasp
from dasp.methods.guard import CollapseGuard, effective_classes
from dasp.models import Toy

CLASSES = 8


def spread(seed):
    """Logits of 64 samples that see all classes."""
    generator = torch.Generator().manual_seed(seed)
    return (
        4
        * nn.functional.one_hot(torch.randint(CLASSES, (64,), generator=generator), CLASSES).float()
    )


def one_class():
    logits = torch.zeros(64, CLASSES)
    logits[:, 3] = 9.0
    return logits


@pytest.fixture
def weights():
    return [nn.Parameter(torch.zeros(3))]


def test_predictions_in_one_class_are_taken_back(weights):
    guard = CollapseGuard(CLASSES, weights)
    for seed in range(20):
        assert guard.judge(spread(seed), spread(seed).softmax(1), weights) is None
    weights[0].data.fill_(7.0)
    whys = [guard.judge(one_class(), spread(i).softmax(1), weights) for i in range(6)]
    assert any(whys)
    assert "classes" in next(filter(None, whys))
    guard.give_back(weights)
    assert not weights[0].any()


def test_a_stream_of_one_class_is_no_collapse(weights):
    """The single modalities see one class, too."""
    guard = CollapseGuard(CLASSES, weights)
    for seed in range(20):
        guard.judge(spread(seed), spread(seed).softmax(1), weights)
    assert all(guard.judge(one_class(), one_class().softmax(1), weights) is None for _ in range(40))


def test_good_weights_are_kept_from_time_to_time(weights):
    guard = CollapseGuard(CLASSES, weights)
    for seed in range(17):
        weights[0].data.fill_(float(seed))
        guard.judge(spread(seed), spread(seed).softmax(1), weights)
    guard.give_back(weights)
    assert weights[0].tolist() == [16.0] * 3


def test_effective_classes():
    assert float(effective_classes(torch.full((5,), 0.2))) == pytest.approx(5)
    assert float(effective_classes(torch.tensor([1.0, 0.0]))) == 1


class Falls(dasp.methods.Dasp):
    """DASP whose guard speaks at the third batch."""

    def step(self, batch):
        step = super().step(batch)
        if int(self.guard.age) == 3 and step.rollback is None:
            return dasp.core.types.Step(step.logits, diagnosis=step.diagnosis, rollback="it fell")
        return step


def test_the_loop_returns_to_good_weights_predicts_with_them_and_says_so(batches):
    options = {"variant": "robust", "score": "cosine", "level": "lowest", "delta": 1e-6, "lr": 1e-2}
    tta = dasp.adapt(Toy(seed=1), Falls, **options)
    source = {name: value.clone() for name, value in tta.memory.weights.items()}
    outcomes = [tta(batch) for batch in batches[1:3] + batches[1:2]]
    assert [outcome.rollback for outcome in outcomes] == [None, None, "it fell"]
    assert not outcomes[-1].updated
    assert tta.counters["rollbacks"] == 1
    # The first batch's weights, those of the source, were the last good ones.
    assert all(torch.equal(value, source[name]) for name, value in tta.memory.weights.items())
    fresh = dasp.adapt(Toy(seed=1), "dasp", **options)
    with fresh.frozen():
        assert torch.equal(fresh(batches[1]).logits, outcomes[-1].logits)


def test_a_method_without_good_weights_says_so():
    with pytest.raises(dasp.core.errors.ContractError, match="Source keeps no good weights"):
        dasp.adapt(Toy(), "source").method.roll_back()
