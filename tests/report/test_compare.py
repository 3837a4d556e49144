from dataclasses import replace
from itertools import product
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dasp.core.errors import InputError
from dasp.core.seeding import numpy_generator
from dasp.report.compare import (
    Comparison,
    PlanRun,
    SampleScores,
    average_gain,
    best_label,
    compare,
    compare_with_source,
    group_runs,
    mean_interval,
    sample_scores,
    streams_of,
)

SMALL = arrays(np.int64, st.integers(1, 40), elements=st.integers(-9, 9))
ONE = ("model", "digest", 0)


def labelled(results):
    return [PlanRun(r.run.method, r.run.protocol, r.run.key, r) for r in results]


@given(arrays(np.int64, st.integers(1, 6), elements=st.integers(-3, 3)))
def test_the_interval_is_that_of_all_resamples(values):
    n = len(values)
    sums = sorted(sum(draw) for draw in product(values.tolist(), repeat=n))
    tail = 0.025 * len(sums) - 1e-6
    place = max(0, int(np.ceil(tail)) - 1)  # the first sum at which the share reaches the tail
    assert mean_interval(values) == pytest.approx((sums[place] / n, sums[-1 - place] / n))


@pytest.mark.parametrize(("samples", "most"), [(5, 1), (200, 3), (1024, 63)])
def test_the_interval_is_the_limit_of_drawn_ones(samples, most):
    draws = numpy_generator(1, str(samples))
    values = draws.binomial(most, 0.3, samples) - draws.binomial(most, 0.25, samples)
    low, high = mean_interval(values)
    resamples = values[draws.integers(samples, size=(4000, samples))].mean(axis=1)
    noise = 5 * values.std() / samples**0.5 / 4000**0.5 * 2.7 + 1 / samples
    assert np.quantile(resamples, [0.025, 0.975]) == pytest.approx([low, high], abs=noise)


def test_a_rare_large_value_keeps_its_long_tail():
    values = np.zeros(1024, dtype=np.int64)
    values[7] = 21
    assert mean_interval(values) == (0.0, 3 * 21 / 1024)  # Poisson: 3 draws of it are not rare


@given(SMALL, st.integers(-50, 50))
def test_negation_order_and_shift(values, shift):
    low, high = mean_interval(values)
    assert values.min() <= low <= values.mean() <= high <= values.max()
    assert mean_interval(-values) == (-high, -low)
    assert mean_interval(values[::-1]) == (low, high)
    assert mean_interval(values + shift) == pytest.approx((low + shift, high + shift))


@given(SMALL, st.integers(0, 2**20))
def test_swapping_two_methods_swaps_the_verdict(values, seed):
    other = numpy_generator(seed, "other").integers(-9, 9, len(values))
    mine, theirs = SampleScores({ONE: values}, 9), SampleScores({ONE: other}, 9)
    one, two = compare(mine, theirs), compare(theirs, mine)
    assert (two.difference, two.low, two.high) == (-one.difference, -one.high, -one.low)
    swapped = {"better": "worse", "worse": "better"}
    assert two.verdict == swapped.get(one.verdict, one.verdict)
    assert compare(mine, mine).verdict == "unclear"


def test_the_interval_covers_as_often_as_it_says():
    truth, covered = 0.3 * 0.6 - 0.2 * 0.5, 0
    for place in range(400):
        draws = numpy_generator(place, "coverage")
        lean = draws.choice([-0.5, 0.0, 0.6], size=(150, 1), p=[0.2, 0.5, 0.3])
        apart = np.where(draws.random((150, 12)) < abs(lean), np.sign(lean), 0).astype(np.int64)
        low, high = mean_interval(apart.sum(axis=1))
        covered += low <= 12 * truth <= high
    assert 0.92 <= covered / 400 <= 0.975


@pytest.mark.parametrize(
    ("low", "high", "models", "verdict"),
    [
        (0.1, 1.0, (0.2, 0.9), "better"),
        (0.1, 1.0, (-0.2, 1.3), "mixed"),
        (0.1, 1.0, (0.0, 1.1), "mixed"),
        (0.0, 1.0, (0.5, 0.5), "unclear"),
        (-1.0, -0.1, (-0.2, -0.9), "worse"),
    ],
)
def test_better_needs_the_interval_and_the_models(low, high, models, verdict):
    by_model = dict(enumerate(models))
    assert Comparison((low + high) / 2, 0.1, low, high, by_model).verdict == verdict


def test_pairing_sees_what_separate_samples_would_hide(make, group):
    base = numpy_generator(0, "base").random((2, 512)) < 0.5
    better = base.copy()
    better[:, :5] = True  # a handful of samples, never worse
    runs = [make(n, samples=512, hits=h) for n, h in (("source", base), ("dasp", better))]
    found = compare_with_source(group(*runs), "interleaved")["dasp"]
    assert found.difference == pytest.approx(100 * (better.mean() - base.mean()))
    assert found.low > 0
    assert found.verdict == "better"


def test_replicates_are_models_and_seeds(make, group):
    places = [(model, seed) for model in "ab" for seed in (0, 1)]
    results = [make(name, model=m, seed=s) for name in ("source", "dasp") for m, s in places]
    found = compare_with_source(group(*results), "interleaved")["dasp"]
    accuracy = [r.counts.accuracy for r in results]
    gains = [mine - base for base, mine in zip(accuracy[:4], accuracy[4:], strict=True)]
    assert (found.difference, found.spread) == pytest.approx((fmean(gains), stdev(gains)))
    assert list(found.by_model.values()) == pytest.approx([fmean(gains[:2]), fmean(gains[2:])])


def test_only_shared_replicates_are_compared(make, group):
    mine = group(make("source", model="a"), make("source", model="b"), make("dasp", model="b"))
    found = compare_with_source(mine, "interleaved")["dasp"]
    assert len(found.by_model) == 1
    assert np.isnan(found.spread)
    assert mine.gain("interleaved")["dasp"].count() == 1


def test_the_average_is_over_shifted_protocols_of_whole_replicates(make, group):
    both = [make("dasp", p, "a", right=[n, n]) for p, n in (("one", 32), ("two", 64))]
    clean = make("dasp", "clean", "a", domains=["clean"], right=[0])
    lone = make("dasp", "one", "b")
    mine = group(*both, clean, lone)
    assert mine.columns == ["one", "two", "clean", "average"]
    average = mine.accuracy("average")["dasp"]
    assert average.dropna().tolist() == [75.0]
    scores = sample_scores(mine, "dasp", "average")
    assert list(scores.counts) == [("a", "a-digest", 0)]
    assert scores.accuracy == 75.0


def test_settings_are_never_averaged_together(make):
    results = [make(batch_size=16), make(batch_size=32), make(severity=3), make(samples=32)]
    groups = group_runs(labelled(results))
    assert [len(g.runs) for g in groups] == [1, 1, 1, 1]
    assert groups[-1].runs[0].config.severity == 3
    assert groups[1].name == "samples 64, batch 32, severity 5"


def test_what_must_not_be_averaged_in_a_setting_is_told_apart(make, group):
    fast, slow = make(options={"lr": 0.1}), make()
    mine = group(fast, slow)
    assert mine.labels == ["dasp (lr=0.1)", "dasp (lr=0.001)"]
    assert "several lr" in mine.notes[0]
    whole, short = make("tent"), make("tent", domains=["video/fog/5"])
    groups = group_runs(labelled([whole, short, make("tent", model="b")]))
    assert [(g.name, len(g.runs)) for g in groups] == [
        ("list of domains 1", 2),
        ("list of domains 2", 1),
    ]


def test_a_run_made_twice_counts_once(make, group):
    old = make(clean_after=32)  # another key, the same cell
    new = replace(make(), measured={"finished": "2027"})
    mine = group(old, new)
    assert [run.result for run in mine.runs] == [new]
    assert "run more than once" in mine.notes[0]


def test_a_rival_needs_every_replicate():
    both = {("a", "", 0): np.array([1, 0]), ("b", "", 0): np.array([1, 0])}
    one = {("a", "", 0): np.array([1, 1])}
    assert best_label({"full": SampleScores(both, 1), "part": SampleScores(one, 1)}) == "full"
    assert best_label({}) is None


def test_runs_of_different_lengths_cannot_be_paired(make, group):
    short = make("source", samples=32).counts
    cut = replace(make("source"), counts=short)
    with pytest.raises(InputError, match=r"different numbers of samples \(32, 64\)"):
        compare_with_source(group(cut, make()), "interleaved")


def test_average_gain_needs_every_stream(make):
    results = [
        make(name, protocol, right=[n, n])
        for protocol, scores in (("one", (32, 48)), ("two", (16, 48)), ("clean", (0, 64)))
        for name, n in zip(("source", "dasp"), scores, strict=True)
    ]
    streams = streams_of(group_runs(labelled(results)))
    assert average_gain(streams, "dasp")[0] == pytest.approx(37.5)  # clean has no vote
    assert np.isnan(average_gain(streams, "tent")[0])
