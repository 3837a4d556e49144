"""Every call that learned nothing says why, whatever the method and the reason."""

import pytest
import torch

import dasp
from dasp.bench.checks import trial, trial_batches
from dasp.core.types import Step
from dasp.methods import Method
from dasp.models import Toy
from dasp.service import events


@pytest.mark.parametrize("name", dasp.METHODS)
def test_a_reason_is_given_exactly_if_nothing_was_learned(name):
    tta, batches = trial(name), trial_batches()
    with tta.frozen():
        assert tta(batches[0]).skipped == "called inside frozen()"
    bad = {n: v.clone() for n, v in batches[0].items()}
    bad["audio"][0] = torch.nan
    refused = tta(bad)
    assert refused.skipped == refused.rejected
    part, one = {"video": batches[0]["video"]}, {n: v[:1] for n, v in batches[0].items()}
    for batch in (*batches, part, one):
        outcome = tta(batch)
        assert outcome.updated == (outcome.skipped is None)
        assert outcome.updated or "gave no reason" not in outcome.skipped


class Sure(Toy):
    """A model whose certainty the test sets."""

    scale = 0.0

    def fuse(self, tokens):
        fused = super().fuse(tokens)
        return dasp.Fused(fused.embedding, self.scale * fused.logits)


@pytest.mark.parametrize("name", ["eata", "sar"])
def test_filters_say_how_many_samples_have_passed(name, batches):
    tta = dasp.adapt(Sure(num_classes=20), name)
    assert tta(batches[0]).skipped == "0 of 16 samples below entropy 1.2"


def test_eata_says_that_all_are_alike(batches):
    model = Sure(num_classes=20)
    model.scale = 1e4
    tta = dasp.adapt(model, "eata", lr=1e-9)
    one = {name: value[:1].expand(16, -1, -1) for name, value in batches[0].items()}
    assert tta(one).updated
    assert tta(one).skipped == (
        "0 of 16 samples below entropy 1.2 are unlike earlier ones (cosine below 0.29)"
    )


def test_other_methods_say_why(batches):
    assert dasp.adapt(Toy(), "source")(batches[0]).skipped == "Source never learns"
    assert dasp.adapt(Toy(), "dasp", delta=9.0)(batches[0]).skipped == "no modality is flagged"
    part = {"video": batches[0]["video"]}
    said = dasp.adapt(Toy(), "tsa")(part).skipped
    assert said == "Tsa learns only from all modalities; audio is missing"


def test_a_method_without_a_reason_is_named(batches):
    class Idle(Method):
        version = 1

        def step(self, batch):
            return Step(self.forward(batch).logits)

    assert dasp.adapt(Toy(), Idle)(batches[0]).skipped == "Idle gave no reason"


def test_the_log_has_the_reason(tmp_path, batches):
    tta = dasp.adapt(Toy(), "dasp", delta=9.0, log=tmp_path / "log.jsonl")
    tta(batches[0])
    assert events.read(tmp_path / "log.jsonl")[-1]["skipped"] == "no modality is flagged"


def test_few_classes_do_not_silence_eata_nor_restart_sar():
    """The values for 1000 classes did both: 1 of 336 batches, a restart in every second one."""
    model = dasp.load_model("toy", num_classes=10, seed=3)
    with torch.no_grad():
        model.head.weight.mul_(60)
    stream = [b for seed in range(5) for b in trial_batches()]
    outcomes = {}
    for name, old in (("eata", {"similarity": 0.05}), ("sar", {"reset_below": 0.2})):
        for label, options in (("old", old), ("new", {})):
            tta = dasp.adapt(model, name, **options)
            outcomes[name, label] = [tta(batch) for batch in stream]
    taught = {k: sum(o.updated for o in v) for k, v in outcomes.items()}
    backs = {k: sum(o.rollback is not None for o in v) for k, v in outcomes.items()}
    assert taught["eata", "new"] > 2 * taught["eata", "old"]
    assert backs["sar", "new"] < backs["sar", "old"] / 2


def test_the_rule_gives_the_published_values():
    from dasp.methods.eata import usual_similarity

    assert usual_similarity(10) == 0.4
    assert usual_similarity(1000) == pytest.approx(0.05, abs=0.001)
    assert dasp.adapt(Toy(num_classes=1000), "sar").method._reset_below == pytest.approx(0.2)


def test_repr_names_variant_and_fit(batches):
    tta = dasp.adapt(Toy(), "dasp", variant="paper")
    assert repr(tta) == "<Dasp (paper) on Toy, 0 batches seen, lr chosen at the first update>"
    triage = dasp.adapt(Toy(), "triage", lr=1e-2)
    assert repr(triage) == "<Triage on Toy, not fitted, 0 batches seen, lr 0.01>"
    triage.fit(batches)
    assert "Triage on Toy, fitted, 0" in repr(triage)
    triage.reset()
    assert "Triage on Toy, fitted, 0" in repr(triage)
    for name in ("eata", "brimpr"):
        tta = dasp.adapt(Toy(depth=1), name)
        assert "not fitted" in repr(tta)
        tta.fit(batches)
        assert "not fitted" not in repr(tta)


def test_fit_takes_tokens_too(batches):
    model = Toy()
    by_inputs, by_tokens = dasp.adapt(model, "triage"), dasp.adapt(model, "triage")
    by_inputs.fit(batches)
    with torch.no_grad():
        tokens = [model.encode(batch) for batch in batches]
    by_tokens.fit_on_tokens(tokens)
    for batch, encoded in zip(batches, tokens, strict=True):
        assert by_inputs(batch).diagnosis == by_tokens.on_tokens(encoded).diagnosis
    with pytest.raises(dasp.DaspError, match="Eata tunes the encoder: call it with raw inputs"):
        dasp.adapt(Toy(), "eata").fit_on_tokens(tokens)
