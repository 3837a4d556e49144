import copy
import csv
import io
import tomllib
from importlib.resources import files

import pytest

from dasp.bench.plan import MAIN_PROTOCOLS
from dasp.core.errors import DataError
from dasp.report.groups import group_results
from dasp.report.published import (
    claims,
    claims_table,
    load,
    published_domains_table,
    published_table,
    published_tables,
)
from dasp.report.render import to_csv, to_html, to_latex, to_markdown
from dasp.streams.protocols import visits

# Typed from the paper by hand: (table, data set, row, column, value); "" is the printed average.
GOLDEN = [
    (1, "kinetics50", "tent", "video/fog", 34.9),
    (1, "kinetics50", "dasp", "video/glass_blur", 69.3),
    (1, "kinetics50", "dasp", "", 65.2),
    (2, "kinetics50", "tsa", "audio/thunder", 72.3),
    (2, "vggsound", "dasp", "audio/crowd", 38.4),
    (2, "vggsound", "tent", "", 4.5),
    (3, "kinetics50", "tent", "video/jpeg_compression", 3.4),
    (3, "kinetics50", "eata", "video/motion_blur", 71.6),
    (4, "kinetics50", "tsa", "audio/wind", 67.6),
    (4, "vggsound", "eata", "audio/thunder", 43.6),
    (4, "vggsound", "read", "", 21.8),
    (5, "kinetics50", "dasp without asymmetric adaptation", "", None),
    (6, "kinetics50", "source", "audio/traffic", 65.5),
    (6, "kinetics50", "dasp", "audio/thunder", 73.6),
    (6, "kinetics50", "tsa", "", 63.9),
    (7, "vggsound", "tsa", "video/glass_blur", 5.1),
    (7, "vggsound", "eata", "video/jpeg_compression", 58.4),
    (7, "vggsound", "dasp", "", 52.5),
    (8, "vggsound", "dasp", "video/brightness", 60.1),
    (8, "vggsound", "sar", "video/frost", 55.7),
    (9, "vggsound", "tent", "video/contrast", 50.6),
    (9, "vggsound", "dasp", "", 57.7),
    (10, "kinetics50", "sumi", "video/brightness", 77.1),
    (10, "kinetics50", "brimpr", "video/pixelate", 72.2),
    (10, "kinetics50", "abpem", "", 63.8),
]
# Averages that the paper prints and its own columns contradict.
MISPRINTS = {
    (1, "kinetics50", "eata"): 60.23,
    (2, "vggsound", "sar"): 18.72,
    (8, "vggsound", "source"): 55.88,
    (9, "vggsound", "source"): 55.88,
}


def rows_of(table):
    titles = [column.heading for column in table.columns]
    return {row[0].text: dict(zip(titles, row, strict=True)) for row in table.rows}


def numbers(cell):
    return [None if q.value is None else round(q.value, 2) for q in cell.quantities]


@pytest.fixture
def kinetics(make):
    """The corruptions of the paper on its own data, `extra` beside Source."""

    def run(*extra, protocol="per_domain/audio", severity=5, **cell):
        results = []
        for label, method in (("source", "source"), *extra):
            domains = [visit.name for visit in visits(protocol, severity)]
            result = make(label, protocol, domains=domains, severity=severity, method=method)
            result["cell"] |= copy.deepcopy(cell)
            result["cell"]["data"] = {"name": "kinetics50", "samples": 2466, "noise": "recorded"}
            results.append(result)
        return results

    return run


@pytest.mark.parametrize(("number", "data", "name", "domain", "value"), GOLDEN)
def test_figures_of_the_paper(number, data, name, domain, value):
    found = [t for t in published_tables() if (t.number, t.data) == (number, data)]
    if value is None:  # the ablation: a protocol a table
        assert [t.rows[name].average for t in found] == [54.3, 71.5, 61.8]
    else:
        row = found[0].rows[name]
        assert (row.domains[domain] if domain else row.average) == value


def test_every_table_is_there():
    found = [(t.number, t.data, t.protocol, len(t.rows)) for t in published_tables()]
    tables = [(number, 7) for number in (1, 2, 2, 3, 4, 4, 6, 7, 8, 9, 10)]
    assert [(number, rows) for number, _, _, rows in found] == [*tables, *[(5, 6)] * 3]
    for data in ("kinetics50", "vggsound"):
        assert {protocol for _, own, protocol, _ in found if own == data} == set(MAIN_PROTOCOLS)
    assert {(t.severity, t.batch_size) for t in published_tables()} == {(5, 64)}


def test_columns_are_the_domains_of_the_protocol():
    for table in published_tables():
        names = [visit.name.rsplit("/", 1)[0] for visit in visits(table.protocol, 5)]
        for row in table.rows.values():
            assert table.number == 5 or list(row.domains) == names


def test_averages_agree_with_their_columns_but_for_the_misprints():
    off = {}
    for table in published_tables():
        for name, row in table.rows.items():
            if row.domains:
                mean = sum(row.domains.values()) / len(row.domains)
                if abs(mean - row.average) > 0.1 + 1e-9:
                    off[table.number, table.data, name] = round(mean, 2)
    assert off == MISPRINTS
    told = {(t.number, t.data, name) for t in published_tables() for name in t.misprints}
    assert told == set(MISPRINTS)


def test_tables_that_repeat_a_row_agree():
    seen = {}
    for table in published_tables():
        for name, row in table.rows.items():
            place = (table.data, table.protocol, name)
            assert seen.setdefault(place, row.average) == row.average, place


@pytest.mark.parametrize(
    ("part", "value"), [("averages", 50.0), ("rows", [1.0]), ("rows", [101.0] * 15)]
)
def test_a_slip_in_the_data_is_refused(part, value):
    text = (files("dasp.report.published") / "dasp.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    content["tables"][0][part]["tent"] = value
    with pytest.raises(DataError, match="table 1"):
        load._tables(content)


def test_claims_count_from_their_own_source():
    first = claims()[0]
    assert first.method == "dasp"
    for table in published_tables():
        place = (table.data, table.protocol)
        if place in first.gains:
            assert table.gain("dasp") == first.gains[place]
    firm = next(claim for claim in claims() if claim.method == "firm")
    assert list(firm.gains.values()) == [6.3, 4.2, 2.3, 15.1]


def test_beside_the_published_on_the_same_data(kinetics):
    results = kinetics(("dasp", "dasp"), ("pta", "pta"))
    rows = rows_of(published_table(group_results(results)[0], "per_domain/audio"))
    mine, source = (
        100 * results[k]["result"]["right"] / results[k]["result"]["seen"] for k in (1, 0)
    )
    gain = mine - source
    row = rows["dasp"]
    assert numbers(row["measured here"]) == [round(mine, 2), round(gain, 2)]
    assert numbers(row["published, Kinetics50-C"]) == [72.9, 3.6]
    expected = [round(mine - 72.9, 2), round(gain - 3.6, 2)]
    assert numbers(row["here − Kinetics50-C"]) == expected
    assert numbers(rows["source"]["published, Kinetics50-C"]) == [69.3, None]
    assert rows["pta"]["published, Kinetics50-C"].missing
    assert rows["pta"]["here − Kinetics50-C"].missing


def test_only_gains_stand_beside_each_other_on_other_data(results):
    table = published_table(group_results(results)[0], "interleaved")
    published = [column for column in table.columns if column.published]
    assert [column.heading for column in published] == [
        "published, Kinetics50-C",
        "published, VGGSound-C",
    ]
    assert [column.heading for column in table.columns[1:3]] == ["accuracy here", "gain here"]
    assert {column.quantities for column in table.columns[2:]} == {("gain",)}
    assert "only gains" in table.caption
    rows = rows_of(table)
    assert numbers(rows["dasp"]["published, VGGSound-C"]) == [5.3]
    assert numbers(rows["tent"]["published, Kinetics50-C"]) == [-15.2]
    gain = rows["tent"]["gain here"].quantities[0].value
    assert rows["tent"]["here − Kinetics50-C"].quantities[0].value == pytest.approx(gain + 15.2)
    assert published_domains_table(group_results(results)[0], "interleaved") is None


def test_nothing_published_no_table(make, kinetics):
    assert published_table(group_results([make(severity=3)])[0], "interleaved") is None
    assert (
        published_table(group_results([make(protocol="clean", domains=["clean"])])[0], "clean")
        is None
    )
    fewer = kinetics(("dasp", "dasp"), corruptions=["rain"])
    assert published_table(group_results(fewer)[0], "per_domain/audio") is None
    assert claims_table(group_results(fewer)[0]) is None


@pytest.mark.parametrize(
    ("options", "average"),
    [
        ({"adapter_kinds": "plastic"}, 72.3),
        ({"adapter_kinds": "stable", "roles": "diagnosed"}, 71.4),
        ({"roles": "same"}, 71.5),
        ({"roles": "opposite"}, 71.8),
        ({"adapter_kinds": "stable", "roles": "same"}, None),
        ({"delta": 0.5}, None),
    ],
)
def test_an_ablation_is_known_by_its_options(kinetics, options, average):
    results = kinetics(("changed", "dasp"), ("tent", "dasp"), protocol="continual/audio")
    results[1]["cell"]["options"] = options
    rows = rows_of(published_table(group_results(results)[0], "continual/audio"))
    assert numbers(rows["changed"]["published, Kinetics50-C"])[0] == average
    assert rows["tent"]["published, Kinetics50-C"].missing  # in name only


def test_a_rebalanced_method_is_not_the_published_one(kinetics):
    results = kinetics(("dasp", "dasp"))
    results[1]["cell"]["options"] = {"rebalance": 1.0}
    rows = rows_of(published_table(group_results(results)[0], "per_domain/audio"))
    assert rows["dasp"]["published, Kinetics50-C"].missing


def test_by_domain_on_the_same_data(kinetics):
    results = kinetics(("read", "read"), ("pta", "pta"))
    table = published_domains_table(group_results(results)[0], "per_domain/audio")
    rows = rows_of(table)
    assert [column.heading for column in table.columns[1:]] == [
        "source, here − published",
        "read, here − published",
    ]
    rain = [100 * result["result"]["domains"][3]["right"] / 128 for result in results[:2]]
    cell = rows["audio/rain/5"]["read, here − published"]
    expected = [rain[1] - 71.1, (rain[1] - rain[0]) - (71.1 - 70.3)]
    assert [q.value for q in cell.quantities] == pytest.approx(expected)
    assert rows["audio/rain/5"]["source, here − published"].quantities[1].value is None


def test_captions_name_the_source_and_what_differs(kinetics):
    results = kinetics(("eata", "eata"), ("sumi", "sumi"), protocol="per_domain/video")
    for result in results:
        result["cell"]["data"] |= {"samples": 128, "noise": "synthesised"}
    caption = published_table(group_results(results)[0], "per_domain/video").caption
    for words in ("CVPR 2026, table 1, 10, batch 64", "2,466 clips", "noise", "prints for eata"):
        assert words in caption


def test_claims_beside_measured_gains(results):
    rows = rows_of(claims_table(group_results(results)[0]))
    assert list(rows) == ["dasp", "brimpr", "adapgc", "firm"]
    assert numbers(rows["brimpr"]["published, VGGSound-C, per-domain audio"]) == [11.5]
    assert rows["firm"]["measured here, per-domain video"].missing
    assert rows["dasp"]["measured here, per-domain video"].quantities[0].value is not None


def test_published_figures_never_pass_for_measured(results):
    table = published_table(group_results(results)[0], "interleaved")
    marked = [place for place, column in enumerate(table.columns) if column.published]
    assert marked
    head = next(csv.reader(io.StringIO(to_csv(table))))
    assert sum(name.startswith("published") for name in head) == 2 * len(marked)  # value and std
    for row in table.rows:
        assert not any(row[place].best or row[place].worse for place in marked)
    markdown, latex, page = to_markdown(table), to_latex(table), to_html(table)
    for text in ("*published, VGGSound-C*", "| *+5.3* |"):
        assert text in markdown
    for text in (r"\textit{published, VGGSound-C}", r"\textit{+5.3}"):
        assert text in latex
    assert page.count('class="published"') == len(marked) * (1 + len(table.rows))
