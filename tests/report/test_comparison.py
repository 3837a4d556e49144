import pytest

from dasp.report.comparison import comparison, options_table, runs_table
from dasp.report.figures import Figure
from dasp.report.groups import group_results


def names_of(part):
    return [item.name for item in part.items]


def test_the_telling_stream_is_open_and_the_others_are_folded(results):
    first, more, tables = comparison(group_results(results)[0])
    assert names_of(first)[:3] == ["main", "overview", "diagnosis"]
    assert "diagnosis-interleaved" in names_of(first)
    assert [part.folded for part in (first, more, tables)] == [False, True, True]
    assert not any("interleaved" in name for name in names_of(more))
    assert len(tables.items) == 5
    assert all(isinstance(item, Figure) for item in more.items)


def test_source_alone_shows_what_there_is(make):
    first, more, tables = comparison(group_results([make("source")])[0])
    assert names_of(first) == ["main", "accuracy-interleaved", "by-corruption-interleaved"]
    assert more.items == []
    assert names_of(tables) == ["by-corruption-interleaved"]


def test_every_run_has_a_cell_that_leads_to_it(make):
    results = [make(), make(model="b"), make("tent"), make(protocol="continual/audio")]
    table = runs_table(group_results(results)[0])
    cells = [cell for row in table.rows for cell in row if cell.run]
    assert {cell.run for cell in cells} == {result["key"] for result in results}
    shown = {cell.run: cell.quantities[0].value for cell in cells}
    for result in results:
        assert shown[result["key"]] == pytest.approx(result["result"]["accuracy"], abs=0.01)
    assert len(table.rows) == 3  # tent on one model, dasp on two


def test_the_diagnosis_drawn_is_that_of_dasp_itself(make):
    results = [make(label, method="dasp") for label in ("opposite", "dasp", "another")]
    first = comparison(group_results(results)[0])[0]
    (figure,) = [item for item in first.items if item.name == "diagnosis-interleaved"]
    assert "one run (dasp, " in figure.caption


def test_options_that_differ_between_protocols_stand_apart(make):
    results = [make(), make(protocol="continual/audio", options={"delta": 0.1})]
    rows = options_table(group_results(results)[0]).rows
    assert [(row[0].text, row[2].text) for row in rows] == [
        ("dasp", "continual audio"),
        ("dasp", "interleaved"),
    ]
    assert "delta = 0.1" in rows[0][1].text


def test_clean_samples_that_a_row_is_fitted_with_are_told(make):
    fitted, plain = make("dasp fitted", method="dasp"), make("dasp")
    fitted["cell"]["source"] = {"name": "sounding_shapes", "samples": 256}
    rows = options_table(group_results([fitted, plain])[0]).rows
    told = {row[0].text: row[1].text for row in rows}
    assert told["dasp fitted"] == f"{told['dasp']}, fitted with 256 clean samples"
