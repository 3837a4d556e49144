"""The self-test: what would be named, missed or mistaken, and when it warns."""

import warnings
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

import dasp
from dasp.core.errors import ContractError
from dasp.core.types import Prediction, Step
from dasp.methods.base import Method
from dasp.methods.diagnosis import Diagnoser, summaries
from dasp.methods.passes import SourcePasses, joined
from dasp.methods.selftest import ALL, DAMAGES, SelfTest, Trial
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld


class Watch(Method):
    """Diagnoses, and predicts as the source model does."""

    version = 1

    def __init__(self, model, *, seed=0):
        super().__init__(model, seed=seed)
        self.diagnoser = Diagnoser(self.model.modalities, 64)

    def trainable(self):
        return []

    def fit(self, source):
        batches = list(source)
        tokens = {n: torch.cat([summaries(b)[n] for b in batches]) for n in batches[0]}
        alone = {n: joined([self.fuse({n: b[n]}) for b in batches]) for n in batches[0]}
        self.diagnoser.fit(tokens, alone)

    @torch.no_grad()
    def predict(self, batch):
        passes = SourcePasses(self, batch)
        return Prediction(passes.joint(), self.diagnoser(batch, passes.alone, False))

    def step(self, batch):
        passes = SourcePasses(self, batch)
        diagnosis = self.diagnoser(batch, passes.alone, True)
        return Step(passes.joint(), diagnosis=diagnosis, skipped="it only watches")


@pytest.fixture(scope="module")
def clean():
    world = SyntheticWorld(noise=0.5)
    return [world.draw(48, seed=seed).inputs for seed in (1, 2)]


@pytest.fixture(scope="module")
def tta(clean):
    tta = dasp.adapt(Toy(seed=1), Watch)
    tta.fit(clean)
    return tta


@pytest.mark.filterwarnings("ignore:selftest")
def test_ten_damages_of_each_modality_and_of_all_are_reported_and_nothing_changes(tta, clean):
    before = tta.state()["tensors"]
    found = tta.selftest()
    assert len(found.trials) == 3 * 2 * len(DAMAGES)
    assert {(t.modality, t.space) for t in found.trials} == {
        (m, s) for m in ("audio", "video", ALL) for s in ("inputs", "tokens")
    }
    assert found.samples == 96
    after = tta.state()["tensors"]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert found == tta.selftest()
    named = [t for t in found.trials if t.verdict == "named"]
    assert len(named) >= 0.7 * sum(t.changed >= 0.02 for t in found.trials)
    assert "audio, noise (inputs)" in str(found)


@pytest.mark.filterwarnings("ignore:selftest")
def test_tokens_are_tested_when_tokens_were_fitted(clean):
    tta = dasp.adapt(Toy(seed=1), Watch)
    with torch.no_grad():
        tta.fit_on_tokens([tta.model.encode(batch) for batch in clean])
    assert {t.space for t in tta.selftest().trials} == {"tokens"}


def test_without_clean_samples_it_says_what_is_lost():
    tta = dasp.adapt(Toy(seed=1), Watch)
    with pytest.warns(
        UserWarning, match="no probability is given, and whatever is flagged cannot be tested"
    ):
        found = tta.selftest()
    assert not found.trusted
    assert "Call fit()" in str(found)


def test_a_method_without_such_a_diagnosis_says_so():
    with pytest.raises(ContractError, match="has no diagnosis that learns"):
        dasp.adapt(Toy(), "tent").selftest()


class Deaf(Toy):
    """Clean samples differ so much in loudness that further damage does not stand out."""

    def encode(self, inputs):
        tokens = super().encode(inputs)
        return {
            name: own.roll(1, dims=2) * (40 * inputs[name][:, :1, :1]).exp().clamp(1e-4, 1e4)
            for name, own in tokens.items()
        }


def test_it_warns_of_a_model_that_cannot_be_diagnosed(clean):
    tta = dasp.adapt(Deaf(seed=1), Watch)
    tta.fit(clean)
    with pytest.warns(UserWarning, match="selftest: "):
        assert not tta.selftest().trusted


@pytest.mark.parametrize(
    ("trial", "verdict"),
    [
        (Trial("a", "tokens", "noise", 0.5, 0.5, 1.0, 0.0), "named"),
        (Trial("a", "tokens", "noise", 0.5, 0.5, 0.2, 0.0), "missed"),
        (Trial("a", "tokens", "noise", 0.5, 0.5, 0.5, 0.5), "mistaken"),
        (Trial("a", "tokens", "noise", 0.0, 0.0, 0.0, 0.0), "harmless"),
    ],
)
def test_verdicts(trial, verdict):
    assert trial.verdict == verdict
    assert SelfTest((trial,), 0.0, 64).trusted == (verdict == "named")
    assert not SelfTest((trial,), 0.5, 64).trusted


def test_it_warns_of_treatment_that_makes_things_worse():
    better, worse = (Trial("a", "tokens", "noise", 0.3, t, 1.0, 0.0) for t in (0.1, 0.5))
    assert SelfTest((better,), 0.0, 64).trusted
    found = SelfTest((better, worse), 0.0, 64)
    assert "makes things worse under a noise (tokens)" in str(found.warning)


def test_one_modality_that_is_mostly_missed_is_not_made_up_for_by_others():
    named = [Trial("b", s, "noise", 0.3, 0.3, 1.0, 0.0) for s in ("inputs", "tokens")] * 10
    missed = [Trial("a", "inputs", word, 0.3, 0.3, 0.0, 0.0) for word in ("noise", "gain", "blur")]
    assert SelfTest((*named, missed[0]), 0.0, 64).trusted
    assert SelfTest((*named, *missed), 0.0, 64).warning == "it misses 3 of 3 damages of a (inputs)."


def test_one_damage_that_hides_another_is_told_apart_from_a_missed_one():
    def trials(word, alone, both):
        named = zip(("a", "b", ALL), (alone, 1.0, both), strict=True)
        return [Trial(who, "tokens", word, 0.3, 0.3, share, 0.0) for who, share in named]

    fine = [t for word in ("offset", "blur") for t in trials(word, 1.0, 1.0)]
    hidden = [t for word in ("noise", "gain") for t in trials(word, 1.0, 0.0)]
    missed = trials("dropout", 0.0, 0.0)
    assert SelfTest((*fine, *missed, *hidden[:3]), 0.0, 64).trusted
    found = SelfTest((*fine, *hidden), 0.0, 64)
    assert found.warning == (
        "one damage hides another: it misses all at once noise (tokens), all at once gain (tokens)."
    )


def test_a_model_with_one_modality_has_no_other_to_damage_as_well(clean):
    tta = dasp.adapt(Toy(seed=1, modalities=("audio",)), Watch)
    tta.fit([{"audio": batch["audio"]} for batch in clean])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert {t.modality for t in tta.selftest().trials} == {"audio"}


class Contrary(Watch):
    """Watches, and answers with another class where something is flagged."""

    @torch.no_grad()
    def predict(self, batch):
        found = super().predict(batch)
        return replace(found, logits=-found.logits) if found.diagnosis.biased else found


@pytest.mark.parametrize(("method", "harms"), [(Watch, False), (Contrary, True)])
def test_treatment_is_judged_by_the_predictions_without_damage(method, harms, clean):
    tta = dasp.adapt(Toy(seed=1), method)
    tta.fit(clean)
    with pytest.warns(UserWarning, match="makes things worse") if harms else nullcontext():
        found = tta.selftest()
    assert any(t.treated > t.changed for t in found.trials) == harms
    assert harms or all(t.treated == t.changed for t in found.trials)


@pytest.mark.parametrize("damage", DAMAGES.values())
@pytest.mark.parametrize("shape", [(4, 12), (4, 3, 8), (4, 1, 9, 16)])
def test_damages_keep_the_shape_and_change_values(damage, shape):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = damage(values, torch.Generator().manual_seed(1))
    assert found.shape == values.shape
    assert not torch.equal(found, values)
