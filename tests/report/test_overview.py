from xml.etree import ElementTree

from dasp.report.groups import group_results
from dasp.report.overview import overview_figure
from dasp.report.tables import paired_gains


def words_of(figure):
    root = ElementTree.fromstring(figure.drawing)
    return [t.text for t in root.iter("text")], [t.text for t in root.iter("title")]


def test_a_panel_a_protocol_and_a_row_a_method(results):
    group = group_results(results)[0]
    figure = overview_figure(group)
    words, tips = words_of(figure)
    assert {"average", "interleaved", "per-domain video", "dasp", "tent"} <= set(words)
    assert "source" not in words
    assert len(tips) == 6 * 3
    gains = paired_gains(group, "average")["dasp"]
    assert f"{sum(gains) / 2:+.1f}".replace("-", "−") in words
    assert "mean over 2 runs" in figure.caption
    strong = [
        t.text for t in ElementTree.fromstring(figure.drawing).iter("text") if t.get("font-weight")
    ]
    assert len(strong) >= 6


def test_nothing_without_source(make):
    assert overview_figure(group_results([make()])[0]) is None
    assert overview_figure(group_results([make("source")])[0]) is None


def test_a_collapse_stays_inside_and_does_not_squeeze_the_rest(make):
    broken = make("tent")
    broken["result"]["batches"]["right"] = [0] * len(broken["result"]["batches"]["right"])
    for domain in broken["result"]["domains"]:
        domain["right"] = 0
    broken["result"] |= {"right": 0, "accuracy": 0.0}
    figure = overview_figure(group_results([make("source"), make("dasp"), broken])[0])
    words, _ = words_of(figure)
    axis = [float(w.replace("−", "-")) for w in words if w.strip("−.0123456789") == ""]
    collapse, lowest, *_ = sorted(axis)
    assert collapse < -50  # its value is written, though its place is beyond the edge
    assert lowest > -30
    for path in ElementTree.fromstring(figure.drawing).iter("path"):
        x = float(path.get("d").removeprefix("M").split("H")[0].split(" ")[0] or 0)
        assert 0 <= x <= 960


def test_of_many_protocols_only_the_average_is_drawn(make):
    names = [f"stream{n}" for n in range(9)]
    group = group_results([make(label, name) for label in ("source", "dasp") for name in names])[0]
    words, tips = words_of(overview_figure(group))
    assert "average" in words
    assert len(tips) == 1
