import math

import pytest

from dasp.report.published import published_rows, published_table, read_paper

# Typed from the paper by hand: (table, data set, row, column, value); "" is the printed average.
GOLDEN = [
    (1, "kinetics50", "tent", "video/fog", 34.9),
    (1, "kinetics50", "dasp", "", 65.2),
    (2, "kinetics50", "tsa", "audio/thunder", 72.3),
    (2, "vggsound", "dasp", "audio/crowd", 38.4),
    (2, "vggsound", "tent", "", 4.5),
    (3, "kinetics50", "tent", "video/jpeg_compression", 3.4),
    (3, "kinetics50", "eata", "video/motion_blur", 71.6),
    (4, "vggsound", "read", "", 21.8),
    (6, "kinetics50", "dasp", "audio/thunder", 73.6),
    (6, "kinetics50", "tsa", "", 63.9),
    (7, "vggsound", "dasp", "", 52.5),
    (8, "vggsound", "sar", "video/frost", 55.7),
    (9, "vggsound", "dasp", "", 57.7),
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
AUDIO = [f"{name}/5" for name in read_paper("dasp")["columns"]["audio"]]


def rows_of(table):
    return {row["method"].text: row for row in table.rows}


@pytest.fixture
def audio(make, group):
    """Source and others on the audio domains of the paper; `count` of 64 are right in each."""

    def runs(*rows, protocol="per_domain/audio", domains=AUDIO, **changes):
        found = []
        for label, method, count, options in (("source", "source", 32, {}), *rows):
            shared = {"domains": domains, "options": options, "named": [""] * 4 * len(domains)}
            right = [count] * len(domains)
            found.append((label, make(method, protocol, right=right, **shared, **changes)))
        return group(*found)

    return runs


def test_every_table_of_the_paper_is_whole_and_right():
    paper = read_paper("dasp")
    tables = paper["tables"]
    for number, data, name, domain, value in GOLDEN:
        (table,) = [t for t in tables if (t["number"], t["data"]) == (number, data)]
        columns = paper["columns"][table["protocol"].split("/")[-1]]
        found = dict(zip(columns, table["rows"][name], strict=True)) | {"": table["averages"][name]}
        assert found[domain] == value, (number, name)
    assert [t["number"] for t in tables] == [1, 2, 2, 3, 4, 4, 6, 7, 8, 9, 10]
    for table in tables:
        assert len(table["rows"]) == len(table["averages"]) == 7
        values = [*table["averages"].values(), *(v for row in table["rows"].values() for v in row)]
        assert all(0 <= value <= 100 for value in values)
    without = [r for r in published_rows() if r.name == "dasp without asymmetric adaptation"]
    assert [row.average for row in without] == [54.3, 71.5, 61.8]


def test_averages_agree_with_their_columns_but_for_the_misprints():
    off, told = {}, set()
    for table in read_paper("dasp")["tables"]:
        told |= {(table["number"], table["data"], name) for name in table.get("misprints", ())}
        for name, row in table["rows"].items():
            mean = sum(row) / len(row)
            if abs(mean - table["averages"][name]) > 0.1 + 1e-9:
                off[table["number"], table["data"], name] = round(mean, 2)
    assert off == MISPRINTS
    assert told == set(MISPRINTS)
    for row in read_paper("ablation")["rows"]:
        assert sum(row["values"]) / 3 == pytest.approx(row["average"], abs=0.1)


def test_rows_that_appear_twice_agree():
    seen = {}
    for row in published_rows():
        place = (row.data, row.protocol, row.name)
        if not math.isnan(row.average):
            assert seen.setdefault(place, row.average) == row.average, place
    gains = [(row.data, row.protocol, row.gain) for row in published_rows() if row.name == "dasp"]
    assert len({gain[:2] for gain in gains}) == len(set(gains))  # claimed and printed ones


def test_accuracies_stand_side_by_side_on_the_published_data_alone(audio):
    data = {"name": "kinetics50", "samples": 64, "noise": "synthetic"}
    table = published_table(audio(("dasp", "dasp", 48, {}), data=data), "per_domain/audio")
    row = rows_of(table)["dasp"]
    assert [m[0] for m in row["published, Kinetics50-C"].means] == [72.9, 3.6]
    apart = [mean for mean, _ in row["here − Kinetics50-C"].means]
    assert apart == pytest.approx([75.0 - 72.9, 25.0 - 3.6])
    assert "published, VGGSound-C" not in row
    assert "CVPR 2026, batch 64, table 2." in table.caption
    assert [cell.published for cell in table.columns.values()] == [False, False, True, False]
    mine = audio(  # of other data only gains
        ("dasp", "dasp", 48, {}), ("mine", "dasp", 48, {"lr": 1.0}), ("brimpr", "brimpr", 40, {})
    )
    table = published_table(mine, "per_domain/audio")
    rows = rows_of(table)
    assert len(rows["dasp"]["published, VGGSound-C"].means) == 1
    assert rows["dasp"]["gain here"].means[0][0] == 25.0
    assert math.isnan(rows["mine"]["published, VGGSound-C"].means[0][0])  # options of its own
    assert rows["brimpr"]["published, Kinetics50-C"].means[0][0] == 2.6  # by its own paper
    assert "brimpr as claimed in its own paper, AAAI 2026" in table.caption


def test_an_ablation_is_found_by_its_options_and_needs_the_whole_stream(audio, make, group):
    options = {"adapter_kinds": "both", "roles": "same"}
    mine = audio(("any name", "dasp", 48, options), protocol="continual/audio")
    row = rows_of(published_table(mine, "continual/audio"))["any name"]
    assert row["published, Kinetics50-C"].means[0][0] == pytest.approx(71.5 - 69.3)
    rebalanced = audio(("dasp", "dasp", 48, {"rebalance": 0.8}), protocol="continual/audio")
    row = rows_of(published_table(rebalanced, "continual/audio"))["dasp"]
    assert math.isnan(row["published, Kinetics50-C"].means[0][0])
    # nothing is compared with part of a stream or another severity
    part = audio(("dasp", "dasp", 48, {}), domains=AUDIO[:3])
    assert published_table(part, "per_domain/audio") is None
    mild = group(make(protocol="per_domain/audio", domains=AUDIO, severity=3))
    assert published_table(mild, "per_domain/audio") is None
