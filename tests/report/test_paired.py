import copy
import csv
import io
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dasp.core.errors import InputError
from dasp.core.seeding import numpy_generator
from dasp.report.bootstrap import mean_interval
from dasp.report.groups import group_results
from dasp.report.hits import unpack_hits
from dasp.report.paired import Comparison, Scores, best_label, compare, hits, paired_note, scores
from dasp.report.paired_tables import over_source, paired_figure, paired_table, rival_table
from dasp.report.render import to_csv, to_html
from dasp.report.runs import run_of
from dasp.report.tables import main_table, pretty

SMALL = arrays(np.int64, st.integers(1, 40), elements=st.integers(-9, 9))
ONE = ("model", "digest", 0)


def with_hits(result):
    """Say of each domain which samples were right: as many as were counted, drawn from a seed."""
    for domain in result["result"]["domains"]:
        draws = numpy_generator(0, result["key"], domain["name"])
        right = draws.permutation(domain["seen"]) < domain["right"]
        domain["hits"] = np.packbits(right).tobytes().hex()
    return result


def exactly(result, patterns):
    """Make the run right on exactly these samples: rows of a (domains, samples) array."""
    counts = result["result"]
    for domain, pattern in zip(counts["domains"], patterns, strict=True):
        domain["hits"] = np.packbits(pattern).tobytes().hex()
        domain["right"] = int(pattern.sum())
        here = slice(domain["first_batch"], domain["first_batch"] + domain["batches"])
        batches = np.array_split(pattern, domain["batches"])
        counts["batches"]["right"][here] = [int(own.sum()) for own in batches]
    counts["right"] = sum(domain["right"] for domain in counts["domains"])
    counts["accuracy"] = 100 * counts["right"] / counts["seen"]
    return result


@pytest.fixture(scope="module")
def group(results):
    return group_results([with_hits(copy.deepcopy(result)) for result in results])[0]


def rows_of(table):
    titles = [column.title for column in table.columns]
    return {row[0].text: dict(zip(titles, row, strict=True)) for row in table.rows}


def drawn_interval(values, resamples=4000):
    draws = numpy_generator(0, "resamples")
    means = values[draws.integers(len(values), size=(resamples, len(values)))].mean(axis=1)
    return np.quantile(means, [0.025, 0.975])


@pytest.mark.parametrize(("samples", "most"), [(5, 1), (200, 3), (1024, 63)])
def test_the_exact_interval_is_the_limit_of_drawn_ones(samples, most):
    draws = numpy_generator(1, str(samples))
    values = draws.binomial(most, 0.3, samples) - draws.binomial(most, 0.25, samples)
    low, high = mean_interval(values)
    noise = 5 * values.std() / samples**0.5 / 4000**0.5 * 2.7 + 1 / samples
    assert drawn_interval(values) == pytest.approx([low, high], abs=noise)


def test_a_rare_large_value_keeps_its_long_tail():
    values = np.zeros(1024, dtype=np.int64)
    values[7] = 21
    assert mean_interval(values) == (0.0, 3 * 21 / 1024)  # Poisson: 3 draws of it are not rare


@given(SMALL)
def test_negated_values_mirror_the_interval(values):
    low, high = mean_interval(values)
    assert mean_interval(-values) == (-high, -low)


@given(SMALL, st.integers(0, 2**20))
def test_the_order_of_samples_is_of_no_account(values, seed):
    shuffled = numpy_generator(seed, "order").permutation(values)
    assert mean_interval(shuffled) == mean_interval(values)


@given(SMALL)
def test_the_interval_holds_the_mean_and_stays_in_range(values):
    low, high = mean_interval(values)
    assert values.min() <= low <= values.mean() <= high <= values.max()


@given(SMALL, st.integers(-50, 50))
def test_a_shift_moves_the_interval_along(values, shift):
    moved = [end + shift for end in mean_interval(values)]
    assert mean_interval(values + shift) == pytest.approx(moved)


@given(SMALL)
def test_a_method_against_itself_differs_by_nothing(values):
    own = Scores({ONE: values}, 9)
    result = compare(own, own)
    assert (result.difference, result.low, result.high) == (0.0, 0.0, 0.0)
    assert result.verdict == "unclear"


@given(SMALL, st.integers(0, 2**20))
def test_swapping_the_two_swaps_the_verdict(values, seed):
    other = numpy_generator(seed, "other").integers(-9, 9, len(values))
    mine, theirs = Scores({ONE: values}, 9), Scores({ONE: other}, 9)
    one, two = compare(mine, theirs), compare(theirs, mine)
    assert (two.difference, two.low, two.high) == (-one.difference, -one.high, -one.low)
    swapped = {"better": "worse", "worse": "better"}
    assert two.verdict == swapped.get(one.verdict, one.verdict)


def trial(place, samples=150, domains=12):
    """Return sample by domain differences whose domains share what a sample is like."""
    draws = numpy_generator(place, "coverage")
    lean = draws.choice([-0.5, 0.0, 0.6], size=(samples, 1), p=[0.2, 0.5, 0.3])
    chance = draws.random((samples, domains))
    return np.where(chance < abs(lean), np.sign(lean), 0).astype(np.int64)


def test_the_interval_covers_as_often_as_it_says():
    truth = 0.3 * 0.6 - 0.2 * 0.5
    covered = {"samples": 0, "appearances": 0}
    for place in range(400):
        apart = trial(place)
        for name, values in (("samples", apart.sum(axis=1)), ("appearances", apart.ravel())):
            low, high = mean_interval(values)
            scale = 12 if name == "samples" else 1
            covered[name] += low <= scale * truth <= high
    assert 0.92 <= covered["samples"] / 400 <= 0.975
    assert covered["appearances"] / 400 < 0.75  # what comes of taking them for independent


def test_hits_are_read_back(make):
    pattern = numpy_generator(0, "pattern").random((2, 64)) < 0.5
    result = exactly(make(domains=["audio/rain/5", "video/fog/5"], samples=64), pattern)
    assert (hits(run_of(result)) == pattern).all()


def test_old_files_have_no_hits(make):
    assert hits(run_of(make())) is None


@pytest.mark.parametrize("packed", ["zz", "ff", "0000", "c1"])
def test_hits_that_contradict_the_counts_are_refused(packed):
    with pytest.raises(InputError, match="run this cell again"):
        unpack_hits(packed, 7, 2)


def test_a_damaged_file_is_noticed_when_it_is_read(make):
    result = with_hits(make())
    result["result"]["domains"][0]["hits"] = "00" * 16
    with pytest.raises(InputError, match="contradict"):
        run_of(result)


def test_domains_of_different_lengths_cannot_be_paired(make):
    run = run_of(with_hits(make()))
    short = replace(run.domains[0], seen=120, right=0, hits="00" * 15)
    with pytest.raises(InputError, match=r"128, 120.*Run this cell again"):
        hits(replace(run, domains=(*run.domains[1:], short)))
    with pytest.raises(InputError, match=r"a and b: .*1, 2"):
        compare(Scores({ONE: np.zeros(1, int)}, 1), Scores({ONE: np.zeros(2, int)}, 1), "a and b")


def test_differences_are_those_of_the_main_table(group):
    main, paired = rows_of(main_table(group)), rows_of(paired_table(group))
    assert list(paired) == ["tent", "read", "dasp"]
    for label, row in paired.items():
        for title in ("per-domain audio", "interleaved", "average"):
            gain = main[label][title].quantities[1]
            mean, low, high, ahead, models = row[title].quantities
            assert (mean.value, mean.spread) == pytest.approx((gain.value, gain.spread))
            assert low.value < mean.value < high.value
            assert 0 <= ahead.value <= models.value == 2


def test_pairing_sees_what_separate_samples_would_hide(make):
    domains = ["audio/rain/5", "video/fog/5"]
    base = numpy_generator(0, "base").random((2, 512)) < 0.5
    better = base.copy()
    better[:, :5] = True  # a handful of samples, never worse
    pair = [("source", base), ("dasp", better)]
    results = [exactly(make(name, domains=domains, samples=512), own) for name, own in pair]
    found = over_source(group_results(results)[0], "interleaved")["dasp"]
    assert found.difference == pytest.approx(100 * (better.mean() - base.mean()))
    assert found.low > 0
    assert found.verdict == "better"


def test_replicates_are_models_and_seeds(make):
    grid = [(model, seed) for model in "ab" for seed in (0, 1)]
    results = [with_hits(make(m, model=n, seed=s)) for m in ("source", "dasp") for n, s in grid]
    group = group_results(results)[0]
    found = over_source(group, "interleaved")["dasp"]
    accuracy = [100 * r["result"]["right"] / r["result"]["seen"] for r in results]
    gains = [mine - base for base, mine in zip(accuracy[:4], accuracy[4:], strict=True)]
    assert (found.difference, found.spread) == pytest.approx((fmean(gains), stdev(gains)))
    assert list(found.by_model.values()) == pytest.approx([fmean(gains[:2]), fmean(gains[2:])])
    accuracy_cell = rows_of(main_table(group))["dasp"]["interleaved"].quantities[0]
    expected = (fmean(accuracy[4:]), stdev(accuracy[4:]))
    assert (accuracy_cell.value, accuracy_cell.spread) == pytest.approx(expected)


def test_only_shared_replicates_are_compared(make):
    results = [with_hits(make("source", model=name)) for name in "ab"]
    results.append(with_hits(make("dasp", model="b")))
    found = over_source(group_results(results)[0], "interleaved")["dasp"]
    assert len(found.by_model) == 1
    assert found.spread is None


@pytest.mark.parametrize(
    ("low", "high", "models", "verdict"),
    [
        (0.1, 1.0, (0.2, 0.9), "better"),
        (0.1, 1.0, (-0.2, 1.3), "mixed"),
        (0.1, 1.0, (0.0, 1.1), "mixed"),
        (0.0, 1.0, (0.5, 0.5), "unclear"),
        (-1.0, -0.1, (-0.2, -0.9), "worse"),
        (-1.0, 1.0, (0.1, 0.2), "unclear"),
    ],
)
def test_better_needs_the_interval_and_the_models(low, high, models, verdict):
    by_model = {str(place): value for place, value in enumerate(models)}
    assert Comparison((low + high) / 2, None, low, high, by_model).verdict == verdict


def test_marks(group):
    table = paired_table(group)
    names = [*group.protocols, "average"]
    assert [column.title for column in table.columns[1:]] == [pretty(name) for name in names]
    for label, *cells in table.rows:
        for name, cell in zip(names, cells, strict=True):
            verdict = over_source(group, name)[label.text].verdict
            better, worse = verdict == "better", verdict == "worse"
            assert ("▲" in cell.text, "▼" in cell.text) == (cell.best, cell.worse)
            assert (cell.best, cell.worse) == (better, worse)
    assert any(cell.best for row in table.rows for cell in row)
    assert "of 2 models" in to_html(table)
    head = next(csv.reader(io.StringIO(to_csv(table))))
    assert [name for name in head if name.startswith("interleaved")][::2] == [
        f"interleaved {part}" for part in ("difference", "low", "high", "models ahead", "models")
    ]


def test_the_rival_is_the_best_of_the_others(group):
    rows = [[cell.text for cell in row] for row in rival_table(group).rows]
    names = {pretty(name): name for name in (*group.protocols, "average")}
    for protocol, label, rival, _, verdict in rows:
        labels = ("tent", "read", "dasp")
        each = {own: scores(group, own, names[protocol]).accuracy for own in labels}
        mine = each.pop(label)
        assert rival == max(each, key=each.get)
        assert label == "dasp" or mine > each[rival]
        assert verdict in ("better", "worse", "mixed", "unclear")
    assert [row[0] for row in rows if row[1] == "dasp"] == list(names)


def test_a_rival_needs_every_replicate():
    both = {("a", "", 0): np.array([1, 0]), ("b", "", 0): np.array([1, 0])}
    one = {("a", "", 0): np.array([1, 1])}
    assert best_label({"full": Scores(both, 1), "part": Scores(one, 1)}) == "full"
    assert best_label({}) is None


def test_without_hits_or_source_there_is_no_comparison(make):
    old = group_results([make("source"), make()])[0]
    assert paired_table(old) is None
    assert rival_table(old) is None
    assert paired_figure(old, "interleaved") is None
    assert "2 of 2 runs" in paired_note(old)
    alone = group_results([with_hits(make())])[0]
    assert paired_table(alone) is None
    assert paired_note(alone) is None


def test_the_figure_shows_every_interval(group):
    figure = paired_figure(group, "interleaved")
    for label, own in over_source(group, "interleaved").items():
        assert f"{label}: {own.difference:+.2f} [{own.low:+.2f}, {own.high:+.2f}]" in figure.drawing
    assert figure.drawing.count("<rect") == 3 * (1 + 2)
    assert paired_figure(group, "average") is not None
