from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import InputError
from dasp.report.efficiencies import efficiency_of
from dasp.report.efficiency_figure import efficiency_figures
from dasp.report.efficiency_tables import efficiency_table, passes_table
from dasp.report.labels import place_names
from dasp.report.runs import run_of


def drawn(figure):
    root = ElementTree.fromstring(f"<div>{figure.drawing}</div>")
    return [title.text for title in root.iter("title")], [t.text for t in root.iter("text")]


@pytest.fixture
def found(make_efficiency):
    rows = {"source": 1.0, "tent": 3.0, "dasp": 2.0}
    return [efficiency_of(make_efficiency(label, slower=slower)) for label, slower in rows.items()]


@pytest.fixture
def runs(make):
    return [run_of(make(label)) for label in ("source", "tent", "dasp")]


def test_a_named_point_a_method_in_each_panel(found, runs):
    (figure,) = efficiency_figures(found, runs)
    tips, words = drawn(figure)
    assert len(tips) == 9
    for label in ("source", "tent", "dasp"):
        assert words.count(label) == 4  # in each panel, and in the legend
    accuracy = next(run.accuracy for run in runs if run.label == "dasp")
    assert f"dasp: {accuracy:.1f} %, 20,480 trained parameters" in tips
    assert {"samples a second", "peak memory above the start, MiB"} <= set(words)


def test_rows_without_accuracy_are_in_the_table_alone(found, runs, make):
    (figure,) = efficiency_figures(found, runs[:2])
    assert "dasp" not in drawn(figure)[1]
    assert efficiency_figures(found, []) == []
    others = [run_of(make("dasp", model="other")), run_of(make("dasp", "clean"))]
    others.append(run_of(make("dasp", batch_size=16)))
    rows = {row[0].text: row for row in efficiency_table(found, others).rows}
    assert rows["dasp"][2].missing


def test_accuracy_is_of_the_runs_with_most_samples(found, make):
    runs = [run_of(make(samples=size, seed=seed)) for size, seed in ((64, 0), (128, 0), (128, 1))]
    dasp = next(entry for entry in found if entry.label == "dasp")
    assert dasp.accuracy(runs) == pytest.approx((runs[1].accuracy + runs[2].accuracy) / 2)


def test_the_table_holds_speed_ratio_memory_and_parameters(found, runs):
    table = efficiency_table(found, runs)
    assert [row[0].text for row in table.rows] == ["source", "tent", "dasp"]
    titles = [column.title for column in table.columns]
    row = dict(zip(titles, table.rows[1], strict=True))
    tent = found[1]
    ratios = [mine.adapt / base.adapt for mine, base in zip(tent.rounds, tent.source, strict=True)]
    assert row["× Source"].quantities[0].value == pytest.approx(sum(ratios) / 5)
    assert row["× Source"].quantities[0].spread > 0
    speeds = [1344 / r.adapt for r in tent.rounds]
    assert row["samples/s"].quantities[0].value == pytest.approx(sum(speeds) / 5)
    assert row["with loading"].quantities[0].value < row["samples/s"].quantities[0].value
    assert row["MiB above start"].quantities[0].value == 40
    assert row["% trained"].quantities[0].value == pytest.approx(100 * 20480 / 400_000)
    assert "raw inputs, read from the feature store" in table.caption


def test_passes_are_shares_of_the_samples(found):
    table = passes_table(found)
    assert [column.title for column in table.columns][2:] == [
        "encoder audio",
        "encoder video",
        "fusion audio + video",
    ]
    rows = {row[0].text: [q.value for q in row[4].quantities] for row in table.rows}
    assert rows["source"] == [1, 0, 0]
    assert rows["dasp"] == [0, 1, 0.5]


def test_a_stage_that_a_method_does_not_use_is_empty(found, make_efficiency):
    content = make_efficiency("read")
    content["result"]["passes"].append(
        {"call": "fuse", "modalities": ["audio"], "gradient": False, "forward": 7, "backward": 0}
    )
    table = passes_table([*found, efficiency_of(content)])
    rows = {row[0].text: row for row in table.rows}
    assert rows["source"][5].missing
    assert rows["read"][5].quantities[0].value == 7 / 1344


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("format",), "dasp-result-2", "not an efficiency file"),
        (("result", "samples"), 0, "contradict"),
        (("measured", "source"), [], "contradict"),
        (("measured", "memory"), {}, "missing"),
        (("result", "passes"), [{"call": "fuse"}], "kind"),
    ],
)
def test_a_damaged_file_is_named(make_efficiency, place, value, message):
    content = make_efficiency()
    part = content
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    with pytest.raises(InputError, match=message):
        efficiency_of(content)


def boxes(points, names):
    shift = {"start": 0.0, "middle": 0.5, "end": 1.0}
    for (_, _, name), (x, y, anchor) in zip(points, names, strict=True):
        left = x - 7 * len(name) * shift[anchor]
        yield left, y - 10, left + 7 * len(name), y + 3


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6))
def test_names_never_cover_each_other_while_there_is_room(places):
    points = [(100 + 30.0 * x, 100 + 30.0 * y, f"name{n}") for n, (x, y) in enumerate(places)]
    found = list(boxes(points, place_names(points, (0, 0, 500, 500))))
    for number, one in enumerate(found):
        for other in found[:number]:
            apart = one[0] >= other[2] or other[0] >= one[2]
            assert apart or one[1] >= other[3] or other[1] >= one[3]
