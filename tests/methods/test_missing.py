"""Batches that lack a modality: predicted from the rest, and nothing of the absent one moves."""

import pytest
import torch

import dasp
from dasp.bench.trial import trial, trial_batches
from dasp.core.errors import ContractError, InputError
from dasp.core.types import Step
from dasp.methods.missing import learns_from
from dasp.models import Toy

THREE = ("audio", "video", "depth")
NEVER = {"read", "abpem", "sumi", "tsa", "pta", "brimpr"}


@pytest.mark.parametrize("name", list(dasp.METHODS))
def test_which_methods_learn_from_a_part(name, batches):
    tta = trial(name)
    assert learns_from(tta.method, batches[0])
    assert learns_from(tta.method, {"video": batches[0]["video"]}) == (name not in NEVER)


@pytest.mark.parametrize("name", sorted(NEVER))
def test_what_does_not_learn_from_a_part_predicts_as_the_model_does_by_now(name, batches):
    tta = trial(name, lr=1e-2)
    for batch in batches:
        tta(batch)
    state = tta.memory.capture()
    outcome = tta({"video": batches[0]["video"]})
    with torch.no_grad():
        expected = tta.model.fuse(tta.model.encode({"video": batches[0]["video"]})).logits
    assert torch.equal(outcome.logits, expected)
    assert not outcome.updated
    assert outcome.loss is None
    after = tta.memory.capture()
    assert after.batch_index == state.batch_index + 1
    assert all(torch.equal(value, after.tensors[key]) for key, value in state.tensors.items())


def test_dasp_with_one_modality_left_predicts_as_the_source(batches):
    tta = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    for batch in batches:
        assert tta(batch).updated or batch is batches[0]
    before = tta.memory.capture()
    outcome = tta({"audio": batches[1]["audio"]})
    with torch.no_grad():
        source = tta.model.fuse(tta.model.encode({"audio": batches[1]["audio"]})).logits
    assert torch.equal(outcome.logits, source)
    assert set(outcome.diagnosis.scores) == {"audio"}
    assert outcome.diagnosis.differences == {"audio": 0.0}
    assert not outcome.updated
    assert not outcome.diagnosis.biased
    after = tta.memory.capture()
    assert all(torch.equal(value, after.tensors[key]) for key, value in before.tensors.items())


def test_dasp_learns_from_two_of_three_and_the_third_stays_put_bit_for_bit():
    tta = trial("dasp", THREE, delta=1e-6, lr=1e-2)
    batches = trial_batches(THREE)
    for batch in batches:
        tta(batch)
    before = tta.memory.capture().tensors
    assert any(path.startswith("optimizer/adapters.depth") for path in before)  # has momenta
    for batch in batches:
        outcome = tta({name: batch[name] for name in ("audio", "video")})
        assert outcome.updated
    after = tta.memory.capture().tensors
    third = [path for path in before if "adapters.depth" in path]
    assert all(torch.equal(before[path], after[path]) for path in third)
    assert any(not torch.equal(before[path], after[path]) for path in before if path not in third)


def test_on_tokens_takes_a_part_too(batches):
    tta, twin = (dasp.adapt(Toy(seed=1), "dasp") for _ in range(2))
    part = {"video": batches[2]["video"]}
    with torch.no_grad():
        tokens = tta.model.encode(part)
    assert torch.equal(tta(part).logits, twin.on_tokens(tokens).logits)


def test_nan_in_the_only_modality_costs_only_the_sample(batches):
    tta = dasp.adapt(Toy(seed=1), "dasp")
    video = batches[2]["video"].clone()
    video[5] = torch.nan
    outcome = tta({"video": video})
    assert outcome.rejected == "NaN or Inf in video, 1 of 16 samples: 5"
    assert outcome.logits.isnan().any(dim=1).nonzero().flatten().tolist() == [5]


def test_no_modality_at_all_is_refused():
    tta = dasp.adapt(Toy(seed=1), "dasp")
    with pytest.raises(InputError, match="inputs lack audio, video"):
        tta({})
    assert tta.memory.batch_index == 0


class Decays(dasp.Method):
    """Moves every adapter in every batch, there or not.

    Paper: Somebody, "Something", Somewhere 2026.
    """

    def __init__(self, model, *, seed=0):
        super().__init__(model, seed=seed)
        for name in self.model.modalities:
            self.adapters[name] = torch.nn.Linear(self.model.embed_dim, 1)

    def trainable(self):
        return self.adapters.parameters()

    def step(self, batch):
        weights = torch.cat([p.flatten() for p in self.adapters.parameters()])
        return Step(self.forward(batch).logits, weights.square().sum())


class Careless(Decays):
    """Takes for granted that every modality is there.

    Paper: Somebody, "Something", Somewhere 2026.
    """

    def step(self, batch):
        for name in self.model.modalities:
            batch[name]
        return Step(self.forward(batch).logits)


class Careful(Careless):
    __doc__ = Careless.__doc__
    learns_from_part = False


def test_the_contract_check_sees_what_moves_or_fails():
    with pytest.raises(ContractError, match=r"video alone moves what belongs to a missing"):
        dasp.check_method(Decays)
    with pytest.raises(ContractError, match=r"fails on audio alone \(KeyError: 'video'\)"):
        dasp.check_method(Careless)
    with torch.random.fork_rng(devices=[]), pytest.raises(ContractError) as caught:
        dasp.check_method(Careful)  # its Linear draws from the global generator
    assert "alone" not in str(caught.value)
