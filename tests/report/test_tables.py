import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dasp.report import tables
from dasp.report.compare import streams_of
from dasp.report.formats import NAN, Cell, Table, mark_best, mean_std, number

PAIR = "video/fog/5+audio/rain/5"


def numbers_of(table):
    """Return {first text columns: {column: number}} as the CSV file holds them."""
    words = [name for name, cell in table.columns.items() if not cell.means and name != "n"]
    found = {}
    for row in csv.DictReader(io.StringIO(table.to_csv())):
        key = tuple(row[name] for name in words)
        found[key if len(key) > 1 else key[0]] = {
            name: float(value) for name, value in row.items() if value and name not in words
        }
    return found


def row_of(table, name):
    return next(row for row in table.rows if next(iter(row.values())).text == name)


def test_the_main_table_by_hand(make, group):
    rows = {
        "source": ([32, 32], [32, 0]),
        "tent": ([16, 32], [32, 0]),
        "dasp": ([64, 64], [48, 16]),
    }
    runs = [
        make(n, model=m, right=r) for n, own in rows.items() for m, r in zip("ab", own, strict=True)
    ]
    table = tables.main_table(group(*runs))
    source, tent, dasp = (row["interleaved"] for row in table.rows)
    assert source.means[0] == pytest.approx(mean_std([50, 25]))
    assert dasp.means[0] == pytest.approx(mean_std([100, 50]))
    assert (dasp.best, dasp.worse, tent.best, tent.worse) == (True, False, False, True)
    head, *_, line = table.to_csv().splitlines()
    parts = ("accuracy", "accuracy std", "gain", "gain std")
    assert head.split(",") == ["method", *(f"interleaved {part}" for part in parts), "n"]
    assert line == "dasp,75,35.3553,37.5,17.6777,2"


def test_a_method_that_lacks_a_replicate_cannot_be_best(make, group):
    runs = [make("source", model=m, right=[32, 32]) for m in "ab"]
    runs += [make("tent", model=m, right=[16, 16]) for m in "ab"]
    runs += [make("dasp", model="a", right=[64, 64])]
    table = tables.main_table(group(*runs))
    assert [row["interleaved"].best for row in table.rows] == [True, False, False]
    both = group(*runs, make("dasp", "clean", "a"), make("dasp", "clean", "b"))
    assert row_of(tables.main_table(both), "dasp")["n"].text == "1–2"
    rivals = tables.rivals_table(group(*runs)).rows
    assert [row["best rival"].text for row in rivals] == ["dasp", "tent"]


def test_accuracy_by_domain_joins_the_visits_of_a_domain(make, group):
    domains = ["video/fog/5", "clean", "video/fog/5"]
    run = make(domains=domains, right=[64, 32, 32], named=[""] * 12)
    assert numbers_of(tables.domain_table(group(run), "interleaved")) == {
        "video/fog/5": {"dasp": 75.0},
        "clean": {"dasp": 50.0},
    }


def test_paired_differences_are_those_of_the_main_table_and_the_rival_the_best(grid, group):
    mine = group(*grid)
    main, paired = numbers_of(tables.main_table(mine)), numbers_of(tables.paired_table(mine))
    assert list(paired) == ["tent", "read", "dasp"]
    for label, own in paired.items():
        for name in ("continual video", "interleaved", "average"):
            assert own[f"{name} difference"] == main[label][f"{name} gain"]
            assert own[f"{name} low"] < own[f"{name} difference"] < own[f"{name} high"]
            assert own[f"{name} models"] == 2
    assert not tables.paired_table(group(grid[-1])).rows  # without Source
    for row in tables.rivals_table(mine).rows:
        name = row["protocol"].text.replace("continual ", "continual/")
        means = mine.accuracy(name).mean().drop("source")
        assert row["best rival"].text == means.drop(row["method"].text).idxmax()
        assert row["verdict"].text in ("better", "worse", "mixed", "unclear")


def test_every_run_links_to_its_page_and_has_options(make, group):
    runs = [make("source", seed=1), make(seed=0), make(seed=1)]
    rows = [[*row.values()] for row in tables.runs_table(group(*runs)).rows]
    assert [(row[0].text, row[1].text, row[2].run) for row in rows] == [
        (r.run.method, f"shapes_0, seed {r.run.seed}", r.run.key) for r in runs
    ]
    mine = group(make("source"), make(), make("eata", source={"samples": 32}))
    options = {row["method"].text: row["options"].text for row in tables.options_table(mine).rows}
    assert options["dasp"] == "lr = 0.001, delta = 0.05"
    assert options["eata"].endswith("fitted with 32 clean samples")


def test_forgetting_at_the_end_and_at_worst(make, group):
    clean = {"seen": 50, "joint": [40, 30, 35], "video": [20, 20, 10]}
    mine = group(make("source", clean={"seen": 50, "joint": [9, 9, 9]}), make(clean=clean))
    together = {"all together end": 10.0, "all together worst": 20.0}
    alone = {"video alone end": 20.0, "video alone worst": 20.0}
    found = numbers_of(tables.forgetting_table(mine))
    assert found == {("dasp", "interleaved"): together | alone}
    assert not tables.forgetting_table(group(make())).rows


def test_sensitivity_includes_the_value_of_the_row_itself(make, group):
    rows = [("source", make("source", right=[0, 32])), ("dasp", make(right=[32, 32]))]
    for value, n in {0.0: 16, 0.2: 64}.items():
        rows.append((f"dasp delta={value}", make(right=[n, n], options={"delta": value})))
    table = tables.sensitivity_table(group(*rows))
    values = [[*row.values()] for row in table.rows]
    assert [(*(cell.text for cell in row[:3]), row[3].means[0][0]) for row in values] == [
        ("dasp", "delta", "0", 25.0),
        ("dasp", "delta", "0.05", 50.0),
        ("dasp", "delta", "0.2", 100.0),
        ("source", "", "", 25.0),
    ]


def test_batch_sizes_side_by_side(make, groups):
    sizes = {16: 32, 32: 64}
    mine = groups(*(make(batch_size=size, right=[n, n]) for size, n in sizes.items()))
    found = numbers_of(tables.batch_size_table(mine))
    assert found["dasp", "interleaved"] == {"batch 16": 50.0, "batch 32": 100.0}
    assert not tables.batch_size_table(mine[:1]).rows


def test_floors_and_robustness_by_hand(make, groups):
    right = {"one": {"dasp": 48, "tent": 16}, "two": {"dasp": 40}, "clean": {"dasp": 64}}
    runs = [make("source", protocol, right=[32, 32]) for protocol in right]
    runs += [make(n, p, right=[k, k]) for p, own in right.items() for n, k in own.items()]
    floors, by_stream = tables.robustness_tables(streams_of(groups(*runs)))
    found = numbers_of(floors)
    whole = {"average": 18.75, "floor": 12.5, "harm on": 0.0, "rolled back": 0.0}
    assert found["dasp", "two"] == whole  # clean has no vote
    assert found["tent", "one"] == {"floor": -25.0, "harm on": 1.0, "rolled back": 0.0}
    assert row_of(floors, "tent")["floor"].worse
    assert row_of(floors, "tent")["harm on"].text == "1 of 1"
    table = numbers_of(by_stream)
    assert table["one"] == {"source": 50.0, "tent": -25.0, "dasp": 25.0}
    assert table["floor"] == {"tent": -25.0, "dasp": 12.5}
    assert tables.robustness_tables(streams_of(groups(make()))) == []


@pytest.mark.parametrize(
    ("domain", "named", "expected"),
    [
        ("audio/rain/5", ("a", "av"), {"damaged": 2, "hit": 100, "healthy flagged": 50}),
        ("audio/rain/5", ("", "v"), {"damaged": 2, "hit": 0, "healthy flagged": 50}),
        (PAIR, ("a", "av"), {"damaged": 2, "hit": 50}),
        ("clean", ("", "v"), {"clean": 2, "left alone": 50}),
        ("audio/missing", ("", "v"), {"clean": 2, "left alone": 50}),
        ("video/fog/5+audio/missing", ("", "v"), {"damaged": 2, "hit": 50}),
        ("video/constant", ("v", "a"), {"damaged": 2, "hit": 50, "healthy flagged": 50}),
    ],
)
def test_diagnosis_by_stream(make, groups, domain, named, expected):
    run = make(domains=[domain], samples=32, named=list(named))
    found = numbers_of(tables.diagnosis_by_stream_table(streams_of(groups(run))))
    counted = {name: value for name, value in found["interleaved", "dasp"].items() if value}
    assert counted == {name: float(value) for name, value in expected.items() if value}


def test_diagnosis_counts_exactly_what_is_damaged(make, group):
    domains = ["video/fog/5", PAIR, "clean"]
    run = make(domains=domains, samples=32, named=["v", "av", "av", "a", "", "v"])
    found = numbers_of(tables.diagnosis_table(group(run)))["dasp", "interleaved"]
    half = ("right", "wrong", "audio+video right", "video right", "clean flagged")
    assert found == {**dict.fromkeys(half, 50.0), "damaged": 4.0, "nothing": 0.0, "clean": 2.0}
    assert not tables.diagnosis_table(group(make("tent"))).rows


def test_clean_stretches(make, groups):
    domains = ["clean", "video/fog/5", "clean"]
    source = make("source", domains=domains, samples=32, right=[16, 0, 16])
    dasp = make(domains=domains, samples=32, right=[16, 32, 8], named=["", "v", "", "", "a", ""])
    table = tables.stretches_table(streams_of(groups(source, dasp)))
    counts = {"clean": 4.0, "flagged": 50.0}
    found = numbers_of(table)["interleaved", "dasp"]
    assert found == {"on clean visits": 37.5, "against Source": -12.5} | counts
    assert row_of(table, "interleaved")["against Source"].worse


def test_efficiency_and_passes(make, make_cost, group):
    costs = [("source", make_cost("source", 1.0, 0)), ("dasp", make_cost())]
    runs = group(make(right=[64, 32]), make("source", right=[32, 0])).runs
    found = numbers_of(tables.efficiency_table(costs, runs))
    means = {"samples/s": 32.0, "with loading": 25.6, "× Source": 2.0, "× Source, processor": 2.0}
    sizes = {"MiB above start": 40.0, "MiB in all": 340.0, "trained": 100.0, "% trained": 10.0}
    spread = {f"{name} std": 0.0 for name in means}
    assert found["dasp", "shapes_0"] == {"accuracy, %": 75.0} | means | sizes | spread
    passes = numbers_of(tables.passes_table(costs))
    fusion, source = "fusion audio + video", passes["source", "shapes_0"]
    dasp = [
        passes["dasp", "shapes_0"][f"{fusion} {n}"] for n in ("forward with gradient", "backward")
    ]
    assert (dasp, source[f"{fusion} forward"]) == ([2.0, 1.0], 2.0)
    costs[1][1].measured["needs"] = ["source samples", "linear_head"]
    table = tables.passes_table(costs)
    assert [row["needs"].text for row in table.rows] == ["", "source samples, linear_head"]


def test_every_format_marks_best_worse_and_published():
    parts = ("accuracy", "gain")
    best = Cell(((76.71, 0.52), (-1.0, NAN)), parts, best=True, worse=True)
    gain = Cell(((3.25, NAN),), ("gain",), published=True)
    none = Cell(((NAN, NAN),) * 2, parts), Cell(((NAN, NAN),), ("gain",), published=True)
    rows = [("50 % & more", best, gain), ("none", *none)]
    content = [dict(zip(("a|b_c", "x", "p"), row, strict=True)) for row in rows]
    sample_table = Table("t", "Caption with 5 %", content)
    text = sample_table.to_markdown()
    assert "| 50 % & more | **76.7 ±0.5**<br>▼−1.0 | *+3.2* |" in text
    assert r"| none | – | *–* |" in text
    latex = sample_table.to_latex()
    assert r"50 \% \& more & \shortstack[r]{\textbf{76.7 $\pm$0.5} \\ $\downarrow$$-$1.0}" in latex
    assert r"\textit{+3.2}" in latex
    assert r"\caption{Caption with 5 \%}" in latex
    assert r"\begin{tabular}{lrr}" in latex
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(sample_table.to_rich())
    assert "76.7 ±0.5  ▼−1.0" in console.export_text()
    head, first, _ = sample_table.to_csv().splitlines()
    assert head == "a|b_c,x accuracy,x accuracy std,x gain,x gain std,p,p std"
    assert first == "50 % & more,76.71,0.52,-1,,3.25,"


@given(st.lists(st.floats(0, 100), min_size=1), st.booleans())
def test_the_best_is_what_a_reader_takes_for_it(values, least):
    cells = mark_best({str(n): number(value) for n, value in enumerate(values)}, least=least)
    shown = [round(value, 1) for value in values]
    top = min(shown) if least else max(shown)
    assert [cell.best for cell in cells.values()] == [value == top for value in shown]
