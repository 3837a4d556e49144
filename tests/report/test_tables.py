from statistics import fmean, stdev

import pytest

from dasp.report.cost import cost_table
from dasp.report.groups import group_results
from dasp.report.runs import run_of
from dasp.report.tables import (
    corruption_table,
    diagnosis_counts,
    diagnosis_table,
    main_table,
    verdict,
)


def rows_of(table):
    titles = [column.title for column in table.columns]
    return {row[0].text: dict(zip(titles, row, strict=True)) for row in table.rows}


def exact(results, label, protocol):
    return [
        100 * r["result"]["right"] / r["result"]["seen"]
        for r in sorted(results, key=lambda r: r["cell"]["model"]["name"])
        if (r["cell"]["label"], r["cell"]["protocol"]) == (label, protocol)
    ]


def test_accuracy_and_paired_gain(results):
    cell = rows_of(main_table(group_results(results)[0]))["dasp"]["interleaved"]
    mine, source = exact(results, "dasp", "interleaved"), exact(results, "source", "interleaved")
    gains = [a - b for a, b in zip(mine, source, strict=True)]
    accuracy, gain = cell.quantities
    assert (accuracy.value, accuracy.spread) == pytest.approx((fmean(mine), stdev(mine)))
    assert (gain.value, gain.spread) == pytest.approx((fmean(gains), stdev(gains)))


def test_average_is_over_the_protocols(results):
    row = rows_of(main_table(group_results(results)[0]))["tent"]
    each = [cell.quantities[0].value for name, cell in row.items() if name not in ("method", "n")]
    assert len(each) == 6
    assert each[-1] == pytest.approx(fmean(each[:-1]))


def test_marks(results):
    rows = rows_of(main_table(group_results(results)[0]))
    assert list(rows) == ["source", "tent", "read", "dasp"]
    assert [row["average"].best for row in rows.values()] == [False, False, False, True]
    assert [row["average"].worse for row in rows.values()] == [False, True, False, False]
    assert rows["source"]["average"].quantities[1].value is None
    assert rows["dasp"]["n"].text == "2"


def test_without_source_there_are_no_gains(make):
    row = rows_of(main_table(group_results([make(), make("tent")])[0]))["dasp"]
    accuracy, gain = row["interleaved"].quantities
    assert gain.text == "–"
    assert accuracy.value is not None
    assert not row["interleaved"].worse


def test_one_replicate_has_no_spread(make):
    rows = rows_of(main_table(group_results([make(), make("source")])[0]))
    assert all("±" not in q.text for q in rows["dasp"]["interleaved"].quantities)
    assert "average" not in rows["dasp"]


def test_a_method_with_fewer_runs_is_never_best(make):
    results = [make("source", model=name) for name in "ab"] + [make("dasp", model="b")]
    rows = rows_of(main_table(group_results(results)[0]))
    assert rows["source"]["interleaved"].best
    assert not rows["dasp"]["interleaved"].best
    source_b = 100 * results[1]["result"]["right"] / results[1]["result"]["seen"]
    dasp_b = 100 * results[2]["result"]["right"] / results[2]["result"]["seen"]
    gain = rows["dasp"]["interleaved"].quantities[1]
    assert gain.value == pytest.approx(dasp_b - source_b)


def test_an_average_needs_every_protocol(make):
    results = [make("source"), make("source", "continual/audio"), make("dasp")]
    row = rows_of(main_table(group_results(results)[0]))["dasp"]
    assert row["average"].missing
    assert row["continual audio"].missing
    assert row["n"].text == "0–1"


def test_by_corruption(results):
    table = corruption_table(group_results(results)[0], "per_domain/audio")
    rows = rows_of(table)
    assert list(rows) == ["audio/rain/5", "audio/traffic/5"]
    mine = [r for r in results if r["cell"]["label"] == "dasp"]
    mine = [r for r in mine if r["cell"]["protocol"] == "per_domain/audio"]
    rain = [100 * r["result"]["domains"][0]["right"] / 128 for r in mine]
    assert rows["audio/rain/5"]["dasp"].quantities[0].value == pytest.approx(fmean(rain))


@pytest.mark.parametrize(
    ("named", "damaged", "word"),
    [
        (["audio"], "audio", "right"),
        (["video"], "audio", "wrong"),
        (["audio", "video"], "audio", "wrong"),
        ([], "audio", "nothing"),
        ([], None, "nothing"),
        (["audio"], None, "wrong"),
    ],
)
def test_verdict(named, damaged, word):
    assert verdict(named, damaged) == word


def test_diagnosis_by_hand(make):
    result = make(domains=["clean", "audio/rain/5", "video/fog/5"], samples=64)
    result["result"]["batches"]["biased"] = [["video"], [], ["audio"], [], ["video"], ["audio"]]
    rows = rows_of(diagnosis_table(group_results([result, make("source", samples=64)])[0]))
    numbers = {name: cell.quantities for name, cell in rows["dasp"].items() if cell.quantities}
    shown = {name: quantities[0].value for name, quantities in numbers.items()}
    assert shown == {
        "damaged": 4,
        "right": 50,
        "wrong": 25,
        "nothing": 25,
        "audio right": 50,
        "video right": 50,
        "clean": 2,
        "clean flagged": 50,
    }
    assert list(rows) == ["dasp"]


def test_a_batch_without_diagnosis_is_not_counted(make):
    result = make(domains=["audio/rain/5"], samples=64)
    result["result"]["batches"]["biased"] = [None, ["audio"]]
    assert diagnosis_counts([run_of(result)]) == {("audio", "right"): 1}


def test_cost_counts_from_source(results):
    rows = rows_of(cost_table(group_results(results)[0]))
    assert rows["dasp"]["× Source"].quantities[0].value == pytest.approx(3)
    assert rows["dasp"]["ms a batch"].quantities[0].value == pytest.approx(60)
    assert rows["dasp"]["% updated"].quantities[0].value == 100
    assert rows["source"]["% updated"].quantities[0].value == 0


def test_cost_without_measurements(make):
    result = make()
    result["measured"] = {}
    rows = rows_of(cost_table(group_results([result])[0]))
    assert rows["dasp"]["ms a batch"].missing
    assert rows["dasp"]["× Source"].missing


def test_no_diagnosis_no_table(make):
    assert diagnosis_table(group_results([make("source")])[0]).rows == ()


def test_clean_data_have_no_vote_in_the_average(make):
    shifted = ("continual/audio", "interleaved")
    results = [make(protocol=name) for name in shifted]
    results.append(make(protocol="clean", domains=["clean"]))
    row = rows_of(main_table(group_results(results)[0]))["dasp"]
    assert list(row) == ["method", "continual audio", "interleaved", "clean", "average", "n"]
    each = [row[name].quantities[0].value for name in ("continual audio", "interleaved")]
    assert row["average"].quantities[0].value == pytest.approx(fmean(each))
