from xml.etree import ElementTree

import pytest

from dasp.report.folder import read_folder
from dasp.report.groups import group_results
from dasp.report.judged import average, floor, harmed, streams_of
from dasp.report.render import to_csv, to_html
from dasp.report.robustness import floor_table, robustness_figure, robustness_table
from dasp.report.robustness_verdicts import robustness_verdicts
from dasp.report.sections import sections_of
from dasp.report.shown import show

ROBUST = {"method": "dasp", "options": {"variant": "robust"}}


def grid(make_right, accuracies, **settings):
    """Runs of {label: {protocol: per cent, one a model}}."""
    found = []
    for label, protocols in accuracies.items():
        own = ROBUST if label.startswith("dasp ") else {}
        for protocol, percents in protocols.items():
            for model, percent in enumerate(percents):
                name = f"model_{model}"
                found.append(make_right(label, protocol, percent, model=name, **own, **settings))
    return found


@pytest.fixture
def plain(make_right):
    """Two models; DASP gains, but not where classes come sorted; Tent is steady and small."""
    return grid(
        make_right,
        {
            "source": {"interleaved": (80, 82), "clean": (90, 90), "sorted": (80, 82)},
            "tent": {"interleaved": (81, 83), "clean": (91, 91), "sorted": (79.75, 81.75)},
            "dasp": {"interleaved": (84, 88), "clean": (90, 90), "sorted": (79, 81)},
            "dasp robust": {"interleaved": (84, 88), "clean": (89.75, 90), "sorted": (81, 82)},
        },
    )


def rows_of(table):
    titles = [column.title for column in table.columns]
    return {row[0].text: dict(zip(titles, row, strict=True)) for row in table.rows}


def section_of(results, folder, save_results, save_plan, show_names=("robustness",), place=1):
    save_results(results, folder)
    names = [f"{result['key']}.json" for result in results]
    save_plan(folder, f"mine{place}", names, place=place, show=list(show_names))
    return sections_of(read_folder(folder))[0]


def test_gains_averages_and_floors_by_hand(plain):
    streams = streams_of(group_results(plain))
    assert [stream.name for stream in streams] == ["interleaved", "clean", "sorted"]
    mean = average(streams, "dasp")  # (4 - 1) / 2 and (6 - 1) / 2: clean data have no vote
    assert (mean.value, mean.spread) == pytest.approx((2.0, 0.5**0.5))
    lowest, where = floor(streams, "dasp")
    assert (lowest.value, where) == (pytest.approx(-1.0), "sorted")
    assert [stream.name for stream in harmed(streams, "dasp")] == ["sorted"]
    assert harmed(streams, "tent") == harmed(streams, "dasp robust") == []


def test_the_grid_marks_harm_and_the_best_of_a_row(plain):
    table = robustness_table(streams_of(group_results(plain)))
    rows = rows_of(table)
    assert list(rows) == ["interleaved", "clean", "sorted", "average", "floor"]
    assert rows["interleaved"]["source"].quantities[0].value == pytest.approx(81)
    worse = {(row, name) for row, cells in rows.items() for name, c in cells.items() if c.worse}
    assert worse == {("sorted", "dasp"), ("floor", "dasp")}
    best = {row: [name for name, c in cells.items() if c.best] for row, cells in rows.items()}
    assert best == {
        "interleaved": ["dasp", "dasp robust"],
        "clean": ["tent"],
        "sorted": ["dasp robust"],
        "average": ["dasp robust"],
        "floor": ["dasp robust"],
    }
    page = to_html(table)
    assert '<td class="worse">▼−1.0 ±0.0</td>' in page  # a sign beside the colour
    assert to_csv(table).splitlines()[3].split(",")[:3] == ["sorted", "81", "1.41421"]


def test_source_is_best_where_every_method_loses(make_right):
    results = grid(
        make_right,
        {"source": {"sorted": (80,)}, "tent": {"sorted": (79,)}, "dasp": {"sorted": (70,)}},
    )
    (row,) = robustness_table(streams_of(group_results(results))).rows
    assert [cell.best for cell in row] == [False, True, False, False]


def test_half_a_point_is_no_harm_yet(make_right):
    results = grid(make_right, {"source": {"sorted": (80,)}, "tent": {"sorted": (79.5,)}})
    (row,) = robustness_table(streams_of(group_results(results))).rows
    assert not row[2].worse


def test_fewer_replicates_are_never_the_best_of_a_row(make_right):
    results = grid(make_right, {"source": {"sorted": (80, 80)}, "tent": {"sorted": (81, 81)}})
    results += grid(make_right, {"dasp": {"sorted": (99,)}})
    (row,) = robustness_table(streams_of(group_results(results))).rows
    assert [cell.best for cell in row] == [False, False, True, False]


def test_the_summary_names_the_worst_stream_and_counts_rollbacks(plain):
    for result in plain:
        if result["cell"]["label"] == "dasp robust" and result["cell"]["protocol"] == "sorted":
            result["result"]["rollbacks"] = [{"batch": 3, "reason": "one class rules"}]
    rows = rows_of(floor_table(streams_of(group_results(plain))))
    assert list(rows) == ["tent", "dasp", "dasp robust"]
    assert rows["dasp"]["worst on"].text == "sorted"
    assert rows["dasp"]["harm on"].text == "1 of 3"
    assert rows["dasp"]["floor"].worse
    assert not rows["dasp"]["average"].worse
    assert [row["rolled back"].quantities[0].value for row in rows.values()] == [0, 0, 2]


def test_a_method_that_lacks_a_stream_has_no_average(plain):
    kept = [r for r in plain if (r["cell"]["label"], r["cell"]["protocol"]) != ("tent", "sorted")]
    streams = streams_of(group_results(kept))
    assert average(streams, "tent").value is None
    assert rows_of(floor_table(streams))["tent"]["harm on"].text == "0 of 2"


def test_without_the_same_models_an_average_has_no_spread(plain):
    gone = ("sorted", "model_1")
    kept = [r for r in plain if (r["cell"]["protocol"], r["cell"]["model"]["name"]) != gone]
    mean = average(streams_of(group_results(kept)), "dasp")
    assert (mean.value, mean.spread) == (pytest.approx((5 - 1) / 2), None)


def test_sizes_of_a_batch_are_streams_of_their_own(make_right):
    accuracies = {"source": {"interleaved": (80,)}, "dasp": {"interleaved": (78,)}}
    results = [r for b in (1, 64) for r in grid(make_right, accuracies, batch_size=b, samples=640)]
    names = [stream.name for stream in streams_of(group_results(results))]
    assert names == ["interleaved (batch 1)", "interleaved (batch 64)"]


def test_a_dot_a_method_and_stream_and_a_collapse_at_the_edge(make_right):
    accuracies = {
        "source": {"interleaved": (80,), "sorted": (80,)},
        "tent": {"interleaved": (1,), "sorted": (80,)},
        "dasp": {"interleaved": (84,), "sorted": (81,)},
    }
    figure = robustness_figure(streams_of(group_results(grid(make_right, accuracies))))
    root = ElementTree.fromstring(figure.drawing)
    tips = [title.text for title in root.iter("title")]
    assert "tent, interleaved: -79.0" in tips
    assert "dasp, average: 2.5" in tips
    assert len(tips) == 6
    starts = [path.get("d").split(" ")[0] for path in root.iter("path") if len(path)]
    assert all(0 <= float(start.removeprefix("M")) <= 960 for start in starts)
    pale = [group for group in root.iter("g") if group.get("opacity")]
    assert all("tent" in title.text for group in pale for title in group.iter("title"))


def test_verdicts_say_where_it_fails(plain, tmp_path, save_results, save_plan):
    section = section_of(plain, tmp_path, save_results, save_plan)
    released, robust = robustness_verdicts(section)
    assert released == (
        "dasp: fails on 1 of 3 streams, more than 0.5 points below Source: sorted −1.00; its "
        "average +2.00 is above every other method (next: tent +0.38)."
    )
    assert robust == (
        "dasp robust: never more than 0.5 points below Source on 3 streams (floor −0.12, clean); "
        "its average +2.75 is above every other method (next: tent +0.38); no worse than dasp on "
        "the paper's own protocols (interleaved +0.0 ±0.0)."
    )


def test_verdicts_where_others_are_better(make_right, tmp_path, save_results, save_plan):
    accuracies = {
        "source": {"interleaved": (80,), "sorted": (80,)},
        "tent": {"interleaved": (83,)},
        "dasp": {"interleaved": (82,), "sorted": (84,)},
        "dasp robust": {"interleaved": (79,), "sorted": (80,)},
    }
    section = section_of(grid(make_right, accuracies), tmp_path, save_results, save_plan)
    released, robust = robustness_verdicts(section)
    assert "its average fails to be above tent (+2.00 against +3.00)." in released
    assert "its average −0.50 fails to be above Source" in robust
    assert robust.endswith(
        "; fails to be as good as dasp on the paper's own protocols (interleaved −3.0)."
    )


def test_small_batches_are_not_the_papers_own(make_right, tmp_path, save_results, save_plan):
    accuracies = {label: {"interleaved": (80,)} for label in ("source", "dasp", "dasp robust")}
    results = grid(make_right, accuracies, batch_size=16, samples=640)
    section = section_of(results, tmp_path, save_results, save_plan)
    assert "paper" not in "".join(robustness_verdicts(section))


@pytest.mark.parametrize("labels", [["dasp"], ["source"]])
def test_nothing_to_judge_without_two(make, labels, tmp_path, save_results, save_plan):
    section = section_of([make(label) for label in labels], tmp_path, save_results, save_plan)
    shown = show(section)
    assert "Robustness" not in [part.title for part in shown.parts]
    assert robustness_verdicts(section) == []


def test_a_run_that_was_stopped_is_judged_by_what_is_there(
    make_right, tmp_path, save_results, save_plan
):
    results = [make_right("source", "sorted", 80), make_right("source", "clean", 90)]
    results += [make_right("tent", "interleaved", 80), make_right("dasp", "clean", 90)]
    section = section_of(results, tmp_path, save_results, save_plan)
    assert robustness_verdicts(section) == [
        "dasp: never more than 0.5 points below Source on one stream, of 3 in the plan (floor "
        "+0.00, clean)."
    ]
    assert "robustness" in [item.name for part in show(section).parts for item in part.items]


def test_plans_are_judged_together(make_right, plain, tmp_path, save_results, save_plan):
    more = grid(make_right, {"source": {"long": (80,)}, "dasp": {"long": (70,)}})
    both, only = ("robustness", "together"), ("robustness",)
    section_of(more, tmp_path, save_results, save_plan, both, place=2)
    assert len(sections_of(read_folder(tmp_path))) == 1
    section_of(plain, tmp_path, save_results, save_plan, only, place=1)
    assert len(sections_of(read_folder(tmp_path))) == 2
    section_of(plain, tmp_path, save_results, save_plan, both, place=1)
    *single, whole = [show(section) for section in sections_of(read_folder(tmp_path))]
    assert len(single) == 2
    assert [part.title for part in whole.parts] == ["Robustness"]
    assert "dasp: fails on 2 of 4 streams" in whole.finding
    assert "long −10.00, sorted −1.00" in whole.finding
    assert not whole.finding.startswith("Best")
