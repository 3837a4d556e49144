from xml.etree import ElementTree

import pytest

from dasp.core.errors import InputError
from dasp.report.forgetting import forgetting_figure, forgetting_table
from dasp.report.groups import group_results
from dasp.report.runs import run_of

PROTOCOL = "continual/audio"


def judged(make, label, joint, audio, model="a", seen=100):
    result = make(label, PROTOCOL, model=model, clean_after=seen)
    domains = len(result["result"]["domains"])
    counts = {"seen": seen, "joint": joint, "audio": audio, "video": [80] * (domains + 1)}
    result["result"]["clean_after"] = counts
    return result


@pytest.fixture
def group(make):
    runs = [
        judged(make, "dasp", [90, 89, 88], [60, 60, 61], "a"),
        judged(make, "dasp", [90, 85, 90], [60, 58, 61], "b"),
        judged(make, "tent", [90, 80, 70], [60, 30, 40], "a"),
        judged(make, "source", [90] * 3, [60] * 3, "a"),
    ]
    return group_results(runs)[0]


def drawn(figure):
    root = ElementTree.fromstring(f"<div>{figure.drawing}</div>")
    return [title.text for title in root.iter("title")], [t.text for t in root.iter("text")]


def test_a_panel_a_view_with_the_mean_loss_after_each_domain(group):
    figure = forgetting_figure(group, PROTOCOL)
    tips, words = drawn(figure)
    assert [w for w in words if w in ("all together", "audio alone", "video alone")] == [
        "all together",
        "audio alone",
        "video alone",
    ]
    assert "dasp, after A rain: 3.00 points lost" in tips  # (1 + 5) / 2
    assert "dasp, before: 0.00 points lost" in tips
    assert "tent, after A traffic: 20.00 points lost" in tips
    assert not any(tip.startswith("source") for tip in tips)
    assert "100 clean samples" in figure.caption
    assert "mean over 1–2 runs" in figure.caption


def test_the_table_holds_the_end_and_the_worst_place(group):
    table = forgetting_table(group)
    assert [column.title for column in table.columns][2:] == [
        "all together",
        "audio alone",
        "video alone",
    ]
    rows = {row[0].text: row for row in table.rows}
    assert set(rows) == {"dasp", "tent"}
    end, worst = rows["tent"][3].quantities
    assert (end.value, worst.value) == (20, 30)
    end, worst = rows["dasp"][2].quantities
    assert end.value == 1  # of 2 and 0
    assert worst.value == 3.5  # of 2 and 5
    assert rows["dasp"][2].best
    assert not rows["tent"][2].best


def test_nothing_without_judgement(make):
    group = group_results([make("dasp"), make("source")])[0]
    assert forgetting_figure(group, "interleaved") is None
    assert forgetting_table(group) is None


def test_other_streams_are_not_averaged(make):
    other = make("dasp", PROTOCOL, model="c", clean_after=100, domains=["audio/rain/5"])
    runs = [judged(make, "dasp", [90, 89, 88], [60, 60, 61]), other]
    figure = forgetting_figure(group_results(runs)[0], PROTOCOL)
    assert "one run a method" in figure.caption


@pytest.mark.parametrize("joint", [[90, 89], [90, 89, 101], [90, 89, -1]])
def test_counts_that_cannot_be_are_refused(make, joint):
    with pytest.raises(InputError, match="contradict"):
        run_of(judged(make, "dasp", joint, [60, 60, 61]))
