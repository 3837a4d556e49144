from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.report.batch_size import batch_size_figures, batch_size_table
from dasp.report.curves import place_values
from dasp.report.runs import run_of
from dasp.report.sensitivity import sensitivity_figures, sensitivity_table


def drawn(figure):
    root = ElementTree.fromstring(f"<div>{figure.drawing}</div>")
    return [title.text for title in root.iter("title")], [t.text for t in root.iter("text")]


@pytest.fixture
def runs(make):
    """A row of its own, five values of two options around it, and Source; two models."""
    rows = {"source": {}, "dasp": {"delta": 0.05, "lambda_kl": 1.0}}
    rows |= {f"dasp delta={v}": {"delta": v, "lambda_kl": 1.0} for v in (0.0, 0.01, 0.2)}
    rows |= {f"dasp lambda_kl={v}": {"delta": 0.05, "lambda_kl": v} for v in (0.5, 2.0)}
    return [
        run_of(make(label, model=model, options=options, method=label.split(" ")[0]))
        for label, options in rows.items()
        for model in "ab"
    ]


def mean(runs, label):
    found = [run.accuracy for run in runs if run.label == label]
    return sum(found) / len(found)


def test_a_panel_an_option_and_a_point_a_value(runs):
    (figure,) = sensitivity_figures(runs)
    tips, words = drawn(figure)
    assert f"dasp, delta 0.2: {mean(runs, 'dasp delta=0.2'):.2f}" in tips
    own = f"{mean(runs, 'dasp'):.2f}"  # the row itself is a point of every panel
    assert f"dasp, delta 0.05: {own}" in tips
    assert f"dasp, lambda_kl 1: {own}" in tips
    assert f"source: {mean(runs, 'source'):.2f}" in tips
    assert {"delta", "lambda_kl", "0", "0.01", "0.2", "0.5", "2"} <= set(words)
    assert "mean over 2 runs" in figure.caption


def test_a_named_default_counts_once(runs, make):
    options = {"delta": 0.05, "lambda_kl": 1.0}
    again = run_of(make("dasp delta=0.05", model="a", options=options, method="dasp"))
    table = sensitivity_table([*runs, again])
    (row,) = [r for r in table.rows if r[1].text == "delta" and r[2].text == "0.05"]
    assert row[3].quantities[0].value == pytest.approx(again.accuracy)
    assert row[3].quantities[0].spread is None


def test_the_table_has_every_value_and_source(runs):
    rows = sensitivity_table(runs).rows
    assert [(row[1].text, row[2].text) for row in rows] == [
        *(("delta", value) for value in ("0", "0.01", "0.05", "0.2")),
        *(("lambda_kl", value) for value in ("0.5", "1", "2")),
        ("", ""),
    ]
    assert rows[-1][3].quantities[0].value == pytest.approx(mean(runs, "source"))


def test_no_figure_where_nothing_varies(make):
    runs = [run_of(make(label)) for label in ("source", "dasp", "my method=x")]
    assert sensitivity_figures(runs) == []
    assert batch_size_figures(runs) == []


def test_a_line_a_method_over_batch_sizes(make):
    runs = [
        run_of(make(label, model=model, batch_size=size))
        for label in ("dasp", "source")
        for size in (8, 16, 64)
        for model in "ab"
    ]
    runs.append(run_of(make("tent", model="a", batch_size=8)))  # one size alone: no line
    (figure,) = batch_size_figures(runs)
    tips, words = drawn(figure)
    sized = [run.accuracy for run in runs if (run.label, run.batch_size) == ("dasp", 16)]
    assert f"dasp, batch 16: {sum(sized) / 2:.2f}" in tips
    assert {"8", "16", "64"} <= set(words)
    assert not any("tent" in tip for tip in tips)
    rows = {row[0].text: row for row in batch_size_table(runs).rows}
    assert set(rows) == {"dasp", "source"}
    assert rows["dasp"][3].quantities[0].value == pytest.approx(sum(sized) / 2)


@given(st.sets(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=9))
def test_values_keep_their_order_inside_the_axis(values):
    ascending = sorted(values)
    places, (low, high) = place_values(ascending)
    found = [places[value] for value in ascending]
    assert found == sorted(found)
    assert low < found[0] <= found[-1] < high


def test_an_axis_is_logarithmic_where_values_span_far():
    near, _ = place_values([1, 2, 3])
    assert near[2] - near[1] == near[3] - near[2]
    far, _ = place_values([0.01, 0.1, 1])
    assert far[0.1] - far[0.01] == pytest.approx(far[1] - far[0.1])
