from xml.etree import ElementTree

import pytest

from dasp.report.figures import (
    accuracy_figure,
    diagnosis_figure,
    gain_figure,
    styles,
)
from dasp.report.groups import group_results
from dasp.report.runs import run_of
from dasp.report.stream_data import accuracy_curve, gain_curve, usual_window
from dasp.report.stream_plot import damaged_modalities, threshold_line


@pytest.fixture
def group(results):
    return group_results(results)[0]


def titles(figure):
    root = ElementTree.fromstring(figure.drawing)
    return [title.text for title in root.iter("title")], [t.text for t in root.iter("text")]


def test_running_mean(make):
    runs = [run_of(make(model=name)) for name in "ab"]
    curve = accuracy_curve(runs, 3)
    right = [a + b for a, b in zip(*(run.batches.right for run in runs), strict=True)]
    assert curve[0] == pytest.approx(100 * right[0] / 64)
    assert curve[7] == pytest.approx(100 * sum(right[5:8]) / 192)


def test_gain_ends_at_the_gain_of_the_table(make):
    mine, source = run_of(make()), run_of(make("source"))
    assert gain_curve([mine], [source])[-1] == pytest.approx(mine.accuracy - source.accuracy)


def test_accuracy_figure_shows_methods_and_domains(group):
    figure = accuracy_figure(group, "interleaved")
    tips, words = titles(figure)
    assert set(group.labels) <= set(tips)
    assert "V gaussian noise" in words
    assert "A rain" in words
    assert "mean over 2 runs" in figure.caption
    assert f"last {usual_window(group.runs[0])} batches" in figure.caption


def test_only_streams_alike_are_averaged(make):
    other = make(model="b", domains=["audio/rain/5", "clean"])
    figure = accuracy_figure(group_results([make(model="a"), other])[0], "interleaved")
    assert "one run a method" in figure.caption


def test_gain_figure_needs_source(make, group):
    tips, _ = titles(gain_figure(group, "interleaved"))
    assert "dasp" in tips
    assert "source" not in tips
    assert gain_figure(group_results([make()])[0], "interleaved") is None


def test_diagnosis_figure_shows_what_was_named_and_the_truth(make):
    result = make(domains=["clean", "audio/rain/5", "video/fog/5"], samples=64)
    result["result"]["batches"]["biased"] = [[], [], ["audio"], ["audio"], [], ["video"]]
    figure = diagnosis_figure(run_of(result))
    tips, words = titles(figure)
    assert "audio named: batches 2–3" in tips
    assert "video named: batches 5–5" in tips
    assert "audio damaged: batches 2–3" in tips
    assert "video damaged: batches 4–5" in tips
    assert {"audio named", "video damaged", "redundancy"} <= set(words)
    assert "one run (dasp, sounding_shapes_0, seed 0)" in figure.caption
    assert "lowest score + 0.05" in figure.drawing


def test_a_diagnosis_with_gaps_or_without_delta(make):
    result = make()
    batches = result["result"]["batches"]
    batches["scores"]["audio"][0] = None
    batches["scores"]["video"][1] = float("nan")
    batches["biased"][0] = None
    del result["cell"]["options"]["delta"]
    assert "threshold:" not in diagnosis_figure(run_of(result)).drawing
    assert "nan" not in diagnosis_figure(run_of(result)).drawing
    assert diagnosis_figure(run_of(make("source"))) is None


def test_threshold_and_truth(make):
    assert threshold_line([[0.25, None], [0.5, None]], 0.25) == [0.5, None]
    run = run_of(make(domains=["audio/rain/5", "clean"], samples=64))
    assert damaged_modalities(run) == ["audio", "audio", None, None]


def test_one_batch_is_enough(make):
    group = group_results([make("tent", domains=["clean"], samples=32)])[0]
    assert "<path" in accuracy_figure(group, "interleaved").drawing


def test_styles_are_fixed_for_known_methods():
    assert styles(["dasp"])["dasp"] == styles(["source", "mine", "dasp"])["dasp"]
    assert len({style.place for style in styles(["dasp", "a", "b"]).values()}) == 3
