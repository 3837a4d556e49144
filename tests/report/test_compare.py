from dataclasses import replace
from itertools import product
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dasp.core.seeding import numpy_generator
from dasp.report.compare import Comparison, compare, mean_interval

SMALL = arrays(np.int64, st.integers(1, 40), elements=st.integers(-9, 9))


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
    rare = np.bincount([7], [21], minlength=1024).astype(np.int64)
    assert mean_interval(rare) == (0.0, 3 * 21 / 1024)  # Poisson: 3 draws of it are not rare


@given(SMALL, st.integers(-50, 50))
def test_negation_order_and_shift(values, shift):
    low, high = mean_interval(values)
    assert values.min() <= low <= values.mean() <= high <= values.max()
    assert mean_interval(-values) == (-high, -low)
    assert mean_interval(values[::-1]) == (low, high)
    assert mean_interval(values + shift) == pytest.approx((low + shift, high + shift))


@given(st.integers(0, 2**20))
def test_swapping_two_methods_swaps_the_verdict(make, group, seed):
    draws = numpy_generator(seed, "swap")
    runs = [make(n, hits=draws.random((2, 64)) < draws.random()) for n in ("read", "dasp")]
    mine = group(*runs)
    one = compare(mine, "read", "dasp", "interleaved")
    two = compare(mine, "dasp", "read", "interleaved")
    assert (two.difference, two.low, two.high) == (-one.difference, -one.high, -one.low)
    swapped = {"better": "worse", "worse": "better"}
    assert two.verdict == swapped.get(one.verdict, one.verdict)
    assert compare(mine, "dasp", "dasp", "interleaved").verdict == "unclear"


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
    found = compare(group(*runs), "dasp", "source", "interleaved")
    assert found.difference == pytest.approx(100 * (better.mean() - base.mean()))
    assert found.low > 0
    assert found.verdict == "better"


def test_replicates_are_models_and_seeds(make, group):
    places = [(model, seed) for model in "ab" for seed in (0, 1)]
    results = [make(name, model=m, seed=s) for name in ("source", "dasp") for m, s in places]
    found = compare(group(*results), "dasp", "source", "interleaved")
    accuracy = [r.counts.accuracy for r in results]
    gains = [mine - base for base, mine in zip(accuracy[:4], accuracy[4:], strict=True)]
    assert (found.difference, found.spread) == pytest.approx((fmean(gains), stdev(gains)))
    assert list(found.by_model.values()) == pytest.approx([fmean(gains[:2]), fmean(gains[2:])])


def test_only_shared_replicates_are_compared(make, group):
    mine = group(make("source", model="a"), make("source", model="b"), make("dasp", model="b"))
    found = compare(mine, "dasp", "source", "interleaved")
    assert len(found.by_model) == 1
    assert np.isnan(found.spread)
    assert mine.gain("interleaved")["dasp"].count() == 1


def test_the_average_is_over_shifted_protocols_of_whole_replicates(make, group):
    right = {"source": (32, 32), "dasp": (32, 64)}
    both = [
        make(name, protocol, "a", right=[n, n])
        for name, own in right.items()
        for protocol, n in zip(("one", "two"), own, strict=True)
    ]
    mine = group(*both, make("dasp", "clean", "a", domains=["clean"]), make("dasp", "one", "b"))
    assert mine.columns == ["one", "two", "clean", "average"]
    assert mine.accuracy("average")["dasp"].dropna().tolist() == [75.0]
    found = compare(mine, "dasp", "source", "average")
    assert (found.difference, list(found.by_model)) == (25.0, ["a a-digest"])
    assert compare(mine, "tent", "source", "average") is None


def dealt_result(make, method, protocol, whole, shares):
    """Return a result in which each sample has only the domain of its share."""
    own = shares == np.arange(2)[:, None]
    made = make(method, protocol, hits=whole & own)
    domains = [
        replace(domain, seen=int(seen))
        for domain, seen in zip(made.counts.domains, own.sum(axis=1), strict=True)
    ]
    counts = replace(made.counts, domains=domains, seen=64, accuracy=100 * made.counts.right / 64)
    return replace(made, counts=counts)


def test_samples_that_come_once_are_paired_in_the_order_of_the_data_set(make, group):
    draws = numpy_generator(0, "once")
    source, dasp = draws.random((2, 64)) < 0.5, draws.random((2, 64)) < 0.7
    shares = draws.permutation(64) % 2
    pair = [
        dealt_result(make, n, "once", h, shares) for n, h in (("source", source), ("dasp", dasp))
    ]
    mine = group(*pair)
    assert mine.title == "shapes (seed 0), test, 64 samples, batch 16, severity 5"
    apart = (dasp.astype(int) - source)[shares, np.arange(64)]
    found = compare(mine, "dasp", "source", "once")
    assert found.difference == pytest.approx(100 * apart.mean())
    low, high = mean_interval(apart)
    assert (found.low, found.high) == pytest.approx((100 * low, 100 * high))
    # Beside a stream that repeats them, each stream counts the same.
    both = group(*pair, make("source", hits=source), make("dasp", hits=dasp))
    found = compare(both, "dasp", "source", "average")
    repeated = 100 * (dasp.mean() - source.mean())
    assert found.difference == pytest.approx((100 * apart.mean() + repeated) / 2)


def test_what_must_not_be_averaged_is_told_apart(make, group, groups):
    results = [make(batch_size=16), make(batch_size=32), make(severity=3), make(samples=32)]
    found = groups(*results)
    assert [len(g.runs) for g in found] == [1, 1, 1, 1]
    assert found[-1].runs[0].config.severity == 3
    assert found[1].name == "samples 64, batch 32, severity 5"
    mine = group(make(options={"lr": 0.1}), make())
    assert mine.labels == ["dasp (lr=0.1)", "dasp (lr=0.001)"]
    assert "several lr" in mine.notes[0]
    cut = replace(make("tent"), counts=make("tent", samples=32).counts)  # could not be paired
    for short in (make("tent", domains=["video/fog/5"]), cut):
        found = groups(make("tent"), short, make("tent", model="b"))
        assert [len(g.runs) for g in found] == [2, 1]
        assert [g.name for g in found] == ["list of domains 1", "list of domains 2"]


def test_a_run_made_twice_counts_once(make, group):
    old = make(clean_after=32)  # another key, the same cell
    new = replace(make(), measured={"finished": "2027"})
    mine = group(old, new)
    assert [run.result for run in mine.runs] == [new]
    assert "run more than once" in mine.notes[0]
