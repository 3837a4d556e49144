"""Damaged inputs among good ones: each is refused or handled as docs/own_model.md says."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch

import dasp
from dasp.bench.checks import trial
from dasp.core.errors import InputError
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld

NAMES = ("audio", "video")


def with_value(batch, rng, value, share):
    """Put a value into some samples of one modality."""
    name = str(rng.choice(NAMES))
    damaged = batch[name].clone()
    rows = torch.from_numpy(rng.random(len(damaged)) < share)
    rows[int(rng.integers(len(damaged)))] = True
    damaged[rows] = value
    return {**batch, name: damaged}


def with_one(batch, rng, change):
    name = str(rng.choice(NAMES))
    return {**batch, name: change(batch[name])}


REJECTED = {  # predicted as far as possible, and not learnt from
    "NaN": lambda b, rng: with_value(b, rng, torch.nan, 0.3),
    "Inf": lambda b, rng: with_value(b, rng, float(rng.choice([-1, 1])) * torch.inf, 0.3),
    "NaN everywhere": lambda b, rng: {name: value * torch.nan for name, value in b.items()},
    "overflow": lambda b, rng: with_value(b, rng, float(10 ** rng.uniform(25, 38)), 0.3),
}
RAISED = {  # an InputError
    "too few dimensions": lambda b, rng: with_one(b, rng, lambda x: x[:, 0, 0]),
    "another width": lambda b, rng: with_one(b, rng, lambda x: x[..., : int(rng.integers(1, 12))]),
    "double": lambda b, rng: with_one(b, rng, torch.Tensor.double),
    "half": lambda b, rng: with_one(b, rng, torch.Tensor.half),
    "no samples": lambda b, rng: {name: value[:0] for name, value in b.items()},
    "no steps": lambda b, rng: with_one(b, rng, lambda x: x[:, :0]),
    "sizes differ": lambda b, rng: with_one(b, rng, lambda x: x[:-1]),
    "all missing": lambda b, rng: {},
    "None": lambda b, rng: with_one(b, rng, lambda x: None),
    "a list": lambda b, rng: with_one(b, rng, torch.Tensor.tolist),
    "an array": lambda b, rng: with_one(b, rng, torch.Tensor.numpy),
    "unknown name": lambda b, rng: {**b, "vidoe": b["video"]},
    "a number for a name": lambda b, rng: {**b, 7: b["video"]},
    "no dict": lambda b, rng: b["audio"],
    "nothing": lambda b, rng: None,
}
WHOLE_NUMBERS = {"whole numbers": lambda b, rng: with_one(b, rng, torch.Tensor.long)}
HANDLED = {  # as any other batch
    "huge": lambda b, rng: with_value(b, rng, float(10 ** rng.uniform(4, 15)), 0.3),
    "constant": lambda b, rng: with_one(b, rng, lambda x: torch.full_like(x, rng.normal())),
    "all alike": lambda b, rng: with_one(b, rng, lambda x: x[:1].expand_as(x)),
    "missing": lambda b, rng: (
        {"audio": b["audio"]} if rng.random() < 0.5 else {"video": b["video"]}
    ),
    "one sample": lambda b, rng: {name: value[:1] for name, value in b.items()},
}


def good_batches(count, size=6):
    world = SyntheticWorld(NAMES)
    shifted = ("clean", *NAMES)
    stream = world.stream([shifted[i % 3] for i in range(count)], 1, size, 4.0)
    return [batch.inputs for batch in stream]


def give_damaged(tta, kind, batch):
    """Give what must be refused; tell by what it was."""
    if kind in REJECTED:
        outcome = tta(batch)
        assert outcome.rejected, kind
        assert not outcome.updated
        fine = torch.stack([v.isfinite() & (v.abs() < 1e20) for v in batch.values()])
        expected = ~fine.flatten(2).all(dim=2).all(dim=0)
        assert torch.equal(outcome.logits.isnan().any(dim=1), expected), kind
        return "rejections"
    try:
        tta(batch)
    except InputError:
        return "errors"
    raise AssertionError(f"{kind} was not refused")


@pytest.fixture
def run(same_state):
    """Give `tta` damaged and good batches, `twin` those that are handled; compare all the way."""
    return partial(run_both, same_state)


def run_both(same_state, tta, twin, rng, count, kinds, shares, good):
    seen = {"rejections": 0, "errors": 0, "given": 0, "updates": 0}
    for place, kind in enumerate(rng.choice(list(kinds), count, p=shares).tolist()):
        batch = good[place % len(good)]
        damaged = kinds[kind](batch, rng)
        if kind not in HANDLED:
            seen[give_damaged(tta, kind, damaged)] += 1
        if kind in HANDLED or place % 40 == 0:
            batch = damaged if kind in HANDLED else batch
            outcome, expected = tta(batch), twin(batch)
            seen["given"] += 1
            seen["updates"] += outcome.updated
            assert outcome.logits.isfinite().all(), kind
            assert torch.equal(outcome.logits, expected.logits)
            assert outcome.diagnosis == expected.diagnosis
    assert tta.memory.batch_index == twin.memory.batch_index
    assert same_state(tta.memory.capture(), twin.memory.capture())
    return seen


def weights(kinds, rejected, handled):
    """Draw what costs time (a prediction, an update) with the given shares in all."""
    shares = [rejected if k in REJECTED else handled if k in HANDLED else None for k in kinds]
    left = (1 - rejected * len(REJECTED) - handled * len(HANDLED)) / shares.count(None)
    return np.array([left if share is None else share for share in shares])


def test_ten_thousand_damaged_inputs_leave_dasp_as_the_good_ones_alone_do(run):
    kinds = REJECTED | RAISED | WHOLE_NUMBERS | HANDLED
    tta, twin = (
        dasp.adapt(Toy(embed_dim=8, num_classes=3, seed=1), "dasp", delta=1e-6, lr=1e-3)
        for _ in range(2)
    )
    rng = np.random.default_rng(0)
    shares = weights(kinds, rejected=0.01, handled=0.008)
    seen = run(tta, twin, rng, 10_000, kinds, shares, good_batches(9))
    assert min(seen.values()) > 300
    counters = tta.counters
    assert counters["rejections"] == seen["rejections"]
    assert counters["errors"] == seen["errors"]
    assert counters["updates"] == twin.counters["updates"] == seen["updates"]
    assert counters["batches"] == sum(seen[name] for name in ("rejections", "errors", "given"))


@pytest.mark.parametrize("name", list(dasp.METHODS))
def test_every_method_with_every_damage(name, run):
    kinds = REJECTED | RAISED | HANDLED
    tta, twin = (trial(name, lr=1e-3, **LEARNING.get(name, {})) for _ in range(2))
    if name == "triage":  # fitted, it remembers samples
        for each in (tta, twin):
            each.fit([SyntheticWorld(NAMES).draw(64, seed=1).inputs])
    rng = np.random.default_rng(1)
    seen = run(tta, twin, rng, 150, kinds, weights(kinds, 0.05, 0.06), good_batches(9))
    assert min(seen["rejections"], seen["errors"], seen["given"]) > 10
    assert seen["updates"] > 10 or name not in LEARNING


LEARNING = {  # settings under which most batches teach something, and none takes long
    "tent": {},
    "cotta": {"augmentations": 2},
    "read": {},
    "tsa": {},
    "dasp": {"delta": 1e-6},
    "eata": {"margin": 1.0, "similarity": 1.1},
    "sar": {"margin": 1.0},
    "sumi": {"stream_length": 200},
}


def test_a_model_that_takes_no_whole_numbers_says_so_itself(same_state):
    good = good_batches(1)[0]
    for name in dasp.METHODS:
        tta, rng = trial(name), np.random.default_rng(2)
        before = tta.memory.capture()
        with pytest.raises((InputError, RuntimeError)):
            tta(WHOLE_NUMBERS["whole numbers"](good, rng))
        assert same_state(before, tta.memory.capture())


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", ["source", "tent", "tsa", "dasp"])
def test_a_spoilt_sample_costs_only_itself(name, frozen, value, same_state):
    batch = good_batches(3, size=8)[1]
    tta, twin = (trial(name, lr=1e-2, **LEARNING.get(name, {})) for _ in range(2))
    for each in (tta, twin):
        each(batch)
    before = tta.memory.capture()
    damaged = {**batch, "video": batch["video"].clone()}
    damaged["video"][2] = value
    with tta.frozen() if frozen else nullcontext():
        outcome = tta(damaged)
    why = "the model's prediction is NaN or Inf" if value == 3e38 else "NaN or Inf in video"
    assert outcome.rejected == f"{why}, 1 of 8 samples: 2"
    rest = [row for row in range(8) if row != 2]
    with twin.frozen():
        expected = twin({key: value[rest] for key, value in batch.items()})
    assert torch.equal(outcome.logits[rest], expected.logits)
    assert outcome.diagnosis == expected.diagnosis
    assert outcome.logits[2].isnan().all()
    assert same_state(before, tta.memory.capture())
    assert torch.equal(tta(batch).logits, twin(batch).logits)


def test_an_update_after_which_nothing_can_be_predicted_is_undone(same_state):
    class Bursts(dasp.Method):
        """Makes weights so large that the next forward overflows, though each is finite."""

        def trainable(self):
            return self.model.head.parameters()

        def optimizer(self, parameters, lr):
            return torch.optim.SGD(parameters, lr=lr)

        def step(self, batch):
            logits = self.forward(batch).logits
            away = tuple(-torch.ones_like(weight) for weight in self.trainable())
            return dasp.Step(logits, logits.square().mean().detach(), gradients=away)

    batch = good_batches(1)[0]
    tta = dasp.adapt(Toy(seed=1), Bursts, lr=3e38, predict="after")
    before = tta.memory.capture()
    outcome = tta(batch)
    assert outcome.rejected == "the update made a prediction that is not finite: lower lr"
    assert torch.equal(outcome.logits, dasp.adapt(Toy(seed=1), "source")(batch).logits)
    assert same_state(before, tta.memory.capture())
