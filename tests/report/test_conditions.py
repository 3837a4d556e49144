"""What a report makes of streams in which several or no sensors are damaged at once."""

import pytest

from dasp.report.commands import publish
from dasp.report.figures import accuracy_figure, diagnosis_figure
from dasp.report.forgetting import forgetting_figure
from dasp.report.groups import group_results
from dasp.report.runs import DomainCount, run_of
from dasp.report.stream_data import stops, usual_window
from dasp.report.tables import diagnosis_counts

PAIR = "video/motion_blur/5+audio/rain/5"


@pytest.fixture
def mixed(make):
    """A run of 8 batches, each of samples of two domains."""

    def mixed_run(label="dasp", clean_after=0):
        result = make(label, "mixed", domains=["clean", "video/fog/5"], clean_after=clean_after)
        for domain in result["result"]["domains"]:
            domain |= {"first_batch": 0, "batches": 0}
        clean = result["result"]["clean_after"]
        for view in ("joint", "audio", "video") if clean else ():
            clean[view].pop()  # judged before and after the one visit
        return result

    return mixed_run


@pytest.mark.parametrize(
    ("name", "damaged", "short"),
    [
        ("clean", None, "clean"),
        ("video/motion_blur/5", "video", "motion blur"),
        (PAIR, "audio+video", "motion blur + rain"),
        ("video/motion_blur/5+audio/missing", "video", "motion blur + audio missing"),
        ("audio/missing", None, "audio missing"),
        ("audio/rain/3+video/constant", "audio+video", "rain + video constant"),
    ],
)
def test_what_was_damaged_is_read_from_the_name(name, damaged, short):
    domain = DomainCount(name, right=1, seen=2, first_batch=0, batches=1)
    assert (domain.damaged, domain.short) == (damaged, short)


def test_both_must_be_named_where_both_are_damaged(make):
    result = make(protocol="pairs", domains=[PAIR, "audio/missing"], samples=96)
    result["result"]["batches"]["biased"] = [["audio", "video"], ["video"], [], [], ["video"], []]
    assert diagnosis_counts([run_of(result)]) == {
        ("audio+video", "right"): 1,
        ("audio+video", "wrong"): 1,
        ("audio+video", "nothing"): 1,
        (None, "nothing"): 2,
        (None, "wrong"): 1,
    }
    drawing = diagnosis_figure(run_of(result)).drawing
    assert "audio damaged: batches 0–2" in drawing
    assert "video damaged: batches 0–2" in drawing


def test_domains_side_by_side_are_one_stop(mixed, make):
    run = run_of(mixed())
    assert stops(run) == [("mixed", 0, 8)]
    assert usual_window(run) == 4
    assert diagnosis_counts([run]) == {}
    plain = run_of(make(domains=["clean", PAIR], samples=64))
    assert stops(plain) == [("clean", 0, 2), ("AV motion blur + rain", 2, 2)]


def test_forgetting_in_mixed_batches_is_judged_once(mixed):
    group = group_results([mixed(clean_after=100), mixed("source")])[0]
    assert "after mixed" in forgetting_figure(group, "mixed").drawing


def test_only_as_many_domains_are_named_as_fit(make):
    group = group_results([make(protocol="recurring", domains=["clean", PAIR] * 200)])[0]
    assert 0 < accuracy_figure(group, "recurring").drawing.count("rotate(-50") <= 60


def test_a_report_of_all_of_them(make, mixed, save_results, tmp_path):
    domains = {
        "pairs": [PAIR],
        "missing/audio": ["video/fog/5", "video/fog/5+audio/missing", "audio/missing"],
        "constant/video": ["audio/rain/5+video/constant", "video/constant"],
        "interleaved": None,
    }
    for label in ("source", "dasp"):
        found = [make(label, name, domains=given) for name, given in domains.items()]
        save_results([*found, mixed(label)], tmp_path)
    assert publish(tmp_path, tmp_path) == 0
    assert PAIR in (tmp_path / "report.html").read_text()
