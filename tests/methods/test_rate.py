"""lr="auto": chosen by the effect of the first update, exactly once per stream, without a trace."""

import json

import pytest
import torch

import dasp
from dasp.bench.checks import trial, trial_batches
from dasp.core.errors import OptionError
from dasp.methods.rate import SPAN, relative_change
from dasp.models import Toy

FLAGS, ALL = {"delta": 1e-6}, {"margin": 1.0}  # options with which they learn from any batch
LEARNING = {"dasp": FLAGS, "eata": ALL, "sar": ALL}
LEARNING["deyo"] = {"margin": 1.0, "plpd_threshold": -1.0}


def start(name, lr="auto", **options):
    return trial(name, lr=lr, **LEARNING.get(name, {}), **options)


def logits(tta, batches):
    return [tta(batch).logits for batch in batches]


def rate(tta):
    return tta.memory.rate.value


@pytest.mark.parametrize("name", dasp.METHODS)
def test_a_run_equals_one_that_is_given_the_chosen_rate(name):
    tta, batches = start(name), trial_batches()
    outs = [tta(batch) for batch in batches]
    rates = {out.lr for out in outs if out.updated and tta.memory.weights}
    assert rates <= {rate(tta)}
    assert ("lr" in repr(tta)) == bool(tta.memory.weights)
    twin = start(name, lr=rate(tta) or 1.0)
    assert all(map(torch.equal, (out.logits for out in outs), logits(twin, batches)))
    assert name not in LEARNING or rates


@pytest.mark.parametrize("name", ["abpem", "dasp"])
@pytest.mark.parametrize("scale", [1, 10])
def test_the_first_update_has_the_wanted_effect_whatever_the_model(name, scale):
    options = LEARNING.get(name, {})
    tta, batch = dasp.adapt(Toy(embed_dim=8 * scale, seed=1), name, **options), trial_batches()[0]
    received = batch if tta.method.tunes_encoder else tta.model.encode(batch)
    with torch.no_grad():
        before = tta.method.forward(received).logits
        assert tta(batch).updated
        change = relative_change(before, tta.method.forward(received).logits)
    usual, wanted = tta.method.default_lr, tta.method.auto_change
    assert usual / SPAN <= rate(tta) <= usual * SPAN
    if rate(tta) < usual * SPAN:
        assert change == pytest.approx(wanted, rel=0.3)


def test_methods_without_a_wanted_effect_keep_their_published_rate():
    for name in ("tent", "eata", "read", "aeo"):
        tta = start(name)
        assert rate(tta) == tta.method.default_lr


def test_another_scale_of_the_logits_does_not_matter():
    def change(factor):
        old, new = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), torch.ones(8, 5)
        new = old + 0.1 * old.flip(0)
        return relative_change(factor * old + 3, factor * new - 7)

    assert change(100.0) == pytest.approx(change(1.0), rel=1e-4)


def test_the_rate_is_part_of_the_state(tmp_path):
    batches, path = trial_batches(), tmp_path / "state"
    tta, other = (start("dasp", checkpoint=path, checkpoint_every=2) for _ in range(2))
    head = logits(tta, batches[:2])
    chosen = rate(tta)
    assert chosen is not None
    assert other.resume() == 2
    assert rate(other) == chosen
    assert all(map(torch.equal, logits(tta, batches[2:]), logits(other, batches[2:])))
    tta.reset()
    assert rate(tta) is None
    assert all(map(torch.equal, head, logits(tta, batches[:2])))
    assert rate(tta) == chosen


def test_a_given_rate_stays_when_a_state_is_loaded_and_an_unknown_one_is_chosen():
    batches, automatic, given = trial_batches(), start("dasp"), start("dasp", lr=1e-3)
    for tta in (automatic, given):
        tta(batches[0])
    states = [tta.state() for tta in (automatic, given)]
    given.load_state(states[0])
    assert rate(given) == 1e-3
    automatic.load_state(states[1])
    assert rate(automatic) is None
    assert automatic(batches[1]).lr is not None


def test_batches_that_teach_nothing_choose_nothing():
    tta, batches = dasp.adapt(Toy(seed=1), "dasp", delta=10.0), trial_batches()
    with tta.frozen():
        assert tta(batches[0]).lr is None
    out = tta(batches[0])
    assert not out.updated
    assert out.lr is None
    assert rate(tta) is None
    assert "lr chosen at the first update" in repr(tta)
    bad = {name: torch.full_like(value, torch.nan) for name, value in batches[0].items()}
    assert dasp.adapt(Toy(seed=1), "abpem")(bad).lr is None


def test_it_is_told_in_the_outcome_and_in_the_log(tmp_path):
    log = tmp_path / "events.jsonl"
    tta = dasp.adapt(Toy(seed=1), "abpem", log=log)
    out = tta(trial_batches()[0])
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert out.lr == rate(tta) == events[-1]["lr"]


@pytest.mark.parametrize("name", ["abpem", "dasp"])
def test_low_precision_does_not_mislead_it(name):
    batch = trial_batches()[0]
    rates = []
    for autocast in (False, True):
        tta = dasp.adapt(Toy(seed=1), name, autocast=autocast, **LEARNING.get(name, {}))
        tta(batch)
        rates.append(rate(tta))
    assert rates[1] == pytest.approx(rates[0], rel=0.2)


@pytest.mark.parametrize("lr", [0, -1.0, float("inf"), float("nan"), "fast", None, True])
def test_other_rates_are_refused(lr):
    with pytest.raises(OptionError, match="lr must be"):
        dasp.adapt(Toy(seed=1), "tent", lr=lr)
