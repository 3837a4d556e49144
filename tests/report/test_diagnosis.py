"""The diagnosis by stream, and of small batches beside large ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.report.diagnosis_rates import Rates, rates
from dasp.report.diagnosis_sizes import kept, sizes_table, sizes_verdicts
from dasp.report.folder import read_folder
from dasp.report.runs import Batches, DomainCount, Run, run_of
from dasp.report.sections import sections_of
from dasp.report.shown import show

PAIR = "video/fog/5+audio/rain/5"


def named(result, *flags):
    """Say what was flagged in each batch, by first letters: "a", "v", "av" or ""."""
    words = {"a": "audio", "v": "video"}
    result["result"]["batches"]["biased"] = [[words[c] for c in each] for each in flags]
    return result


def section_of(results, folder, save_results, save_plan):
    save_results(results, folder)
    names = [f"{result['key']}.json" for result in results]
    save_plan(folder, "mine", names, show=["diagnosis"])
    return sections_of(read_folder(folder))[0]


@pytest.mark.parametrize(
    ("domain", "flags", "expected"),
    [
        ("audio/rain/5", ("a", "av"), Rates(damaged=2, hit=2, mixed=2, wrong=1)),
        ("audio/rain/5", ("", "v"), Rates(damaged=2, hit=0, mixed=2, wrong=1)),
        (PAIR, ("a", "av"), Rates(damaged=2, hit=1, mixed=0, wrong=0)),
        ("clean", ("", "v"), Rates(clean=2, quiet=1)),
        ("audio/missing", ("", "v"), Rates(clean=2, quiet=1)),
        ("video/fog/5+audio/missing", ("", "v"), Rates(damaged=2, hit=1)),
        ("video/constant", ("v", "a"), Rates(damaged=2, hit=1, mixed=2, wrong=1)),
    ],
)
def test_rates_by_hand(make, domain, flags, expected):
    result = make(domains=[domain], samples=64, batch_size=32)
    assert rates([run_of(named(result, *flags))]) == expected


def test_rates_add_up_over_runs(make):
    runs = [run_of(make(model=name)) for name in "ab"]
    assert rates(runs) == rates(runs[:1]) + rates(runs[1:])
    assert rates([run_of(make("tent"))]) == Rates()


def test_a_row_a_stream_and_method_that_diagnoses(make, tmp_path, save_results, save_plan):
    results = [
        make(label, protocol, domains=[domain], batch_size=64, method=method)
        for label, method in (("source", None), ("dasp", None), ("dasp robust", "dasp"))
        for protocol, domain in (("pairs", PAIR), ("clean", "clean"))
    ]
    shown = show(section_of(results, tmp_path, save_results, save_plan))
    (part,) = (part for part in shown.parts if part.title == "Diagnosis")
    (table,) = part.items
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        ("clean", "dasp"),
        ("clean", "dasp robust"),
        ("pairs", "dasp"),
        ("pairs", "dasp robust"),
    ]


def sized(make, size, *flags, **settings):
    """A run on one domain of damaged audio with 128 samples."""
    domains = settings.pop("domains", ["audio/rain/5"])
    return named(make(domains=domains, samples=128, batch_size=size, **settings), *flags)


def test_small_batches_are_judged_where_the_large_one_is_right(make):
    large = run_of(sized(make, 64, "a", "v"))
    small = run_of(sized(make, 32, "a", "", "a", "a"))
    assert kept(small, large) == (1, 2)
    assert kept(large, large) == (1, 1)


def test_on_clean_data_nothing_is_right(make):
    large = run_of(sized(make, 64, "", "a", domains=["clean"]))
    small = run_of(sized(make, 32, "", "v", "", "", domains=["clean"]))
    assert kept(small, large) == (1, 2)


def test_other_domains_are_not_compared(make):
    large = run_of(sized(make, 64, "a", "a"))
    small = run_of(sized(make, 32, *"aaaa", domains=["audio/wind/5"]))
    assert kept(small, large) == (0, 0)


@given(st.lists(st.booleans(), min_size=4, max_size=4), st.sampled_from([1, 2, 4, 8]))
def test_a_diagnosis_that_never_changes_is_kept_whole(flags, size):
    """Where each small batch says what its large one says, nothing right is lost."""

    def run(each):
        times = 8 // each
        biased = [["audio"] if flag else [] for flag in flags for _ in range(times)]
        count = len(biased)
        batches = Batches([0] * count, [each] * count, [], [], {}, biased)
        domain = DomainCount("audio/rain/5", 0, 32, 0, count)
        empty = dict.fromkeys(Run.__dataclass_fields__)
        return Run(**empty | {"domains": [domain], "batches": batches, "rollbacks": ()})

    right, total = kept(run(size), run(8))
    assert right == total == sum(flags) * (8 // size)


def test_the_table_and_verdict_of_sizes(make, tmp_path, save_results, save_plan):
    results = [make("source", domains=["audio/rain/5"], batch_size=size) for size in (32, 64)]
    results += [sized(make, 64, "a", "v"), sized(make, 32, "a", "", "a", "a")]
    section = section_of(results, tmp_path, save_results, save_plan)
    (row,) = sizes_table(section).rows
    small, large = row[2:]
    assert [quantity.value for quantity in small.quantities] == [75, 50]
    assert [quantity.value for quantity in large.quantities] == [50, None]
    assert (small.worse, large.worse) == (True, False)
    assert sizes_verdicts(section) == [
        "Diagnosis of small batches where batch 64 is right: dasp fails (50.0 %, interleaved, "
        "batch 32)."
    ]


def test_nothing_to_compare_without_batches_of_64(make, tmp_path, save_results, save_plan):
    results = [sized(make, 32, *"aaaa"), sized(make, 16, *"aaaaaaaa"), make("source")]
    section = section_of(results, tmp_path, save_results, save_plan)
    assert sizes_table(section) is None
    assert sizes_verdicts(section) == []


def test_an_order_that_depends_on_the_size_is_not_compared(make, tmp_path, save_results, save_plan):
    settings = {"protocol": "dirichlet"}
    results = [sized(make, 64, "a", "a", **settings), sized(make, 32, *"aaaa", **settings)]
    assert sizes_table(section_of(results, tmp_path, save_results, save_plan)) is None


def test_models_and_severities_are_not_mixed(make, tmp_path, save_results, save_plan):
    results = [sized(make, 64, "a", "a", model=name) for name in "ab"]
    results += [sized(make, 64, "v", "v", model="b", severity=3)]
    results += [sized(make, 32, *"aavv", model="b"), sized(make, 32, *"aaaa", model="c")]
    (row,) = sizes_table(section_of(results, tmp_path, save_results, save_plan)).rows
    assert row[2].quantities[1].value == 50
