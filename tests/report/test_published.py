import math

import pytest

from dasp.report.published import claims_table, published_table, published_tables, read_paper

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
    titles = [column.heading for column in table.columns]
    return {row[0].text: dict(zip(titles, row, strict=True)) for row in table.rows}


@pytest.fixture
def audio(make, group):
    """Source and others on the audio domains of the paper; `counts` of 64 are right in each."""

    def runs(*rows, **changes):
        found = []
        for label, method, count, options in (("source", "source", 32, {}), *rows):
            result = make(
                method,
                changes.get("protocol", "per_domain/audio"),
                domains=changes.get("domains", AUDIO),
                right=[count] * len(changes.get("domains", AUDIO)),
                named=[""] * 4 * len(changes.get("domains", AUDIO)),
                options=options,
                **({"data": changes["data"]} if "data" in changes else {}),
            )
            found.append((label, result))
        return group(*found)

    return runs


@pytest.mark.parametrize(("number", "data", "name", "domain", "value"), GOLDEN)
def test_numbers_of_the_paper(number, data, name, domain, value):
    (table,) = [t for t in published_tables() if (t.number, t.data) == (number, data)]
    row = table.rows[name]
    assert (row.domains[domain] if domain else row.average) == value


def test_every_table_is_whole():
    found = [(t.number, len(t.rows)) for t in published_tables()]
    tables = [(number, 7) for number in (1, 2, 2, 3, 4, 4, 6, 7, 8, 9, 10)]
    assert found == [*tables, *[(5, 6)] * 3]
    for table in published_tables():
        for row in table.rows.values():
            assert all(0 <= value <= 100 for value in (row.average, *row.domains.values()))
    ablation = [t.rows["dasp without asymmetric adaptation"] for t in published_tables()[-3:]]
    assert [row.average for row in ablation] == [54.3, 71.5, 61.8]


def test_averages_agree_with_their_columns_but_for_the_misprints():
    off, told = {}, set()
    for table in published_tables():
        told |= {(table.number, table.data, name) for name in table.misprints}
        for name, row in table.rows.items():
            mean = sum(row.domains.values()) / max(1, len(row.domains))
            if row.domains and abs(mean - row.average) > 0.1 + 1e-9:
                off[table.number, table.data, name] = round(mean, 2)
    assert off == MISPRINTS
    assert told == set(MISPRINTS)
    for row in read_paper("ablation")["rows"]:
        assert sum(row["values"]) / 3 == pytest.approx(row["average"], abs=0.1)


def test_tables_that_repeat_a_row_agree():
    seen = {}
    for table in published_tables():
        for name, row in table.rows.items():
            place = (table.data, table.protocol, name)
            assert seen.setdefault(place, row.average) == row.average, place


def test_claimed_gains_are_those_of_the_tables():
    papers = read_paper("elsewhere")
    claim = papers["claims"][0]
    assert claim["method"] == "dasp"
    gains = {(t.data, t.protocol): t.gain("dasp") for t in published_tables()}
    for place, gain in zip(papers["settings"], claim["gains"], strict=True):
        assert gains[place["data"], place["protocol"]] == gain


def test_on_the_published_data_accuracies_stand_side_by_side(audio):
    data = {"name": "kinetics50", "samples": 64, "noise": "synthetic"}
    table = published_table(audio(("dasp", "dasp", 48, {}), data=data), "per_domain/audio")
    row = rows_of(table)["dasp"]
    published = next(t for t in published_tables() if t.number == 2 and t.data == "kinetics50")
    average, gain = published.rows["dasp"].average, published.gain("dasp")
    assert [m[0] for m in row["published, Kinetics50-C"].means] == [average, gain]
    apart = [mean for mean, _ in row["here − Kinetics50-C"].means]
    assert apart == pytest.approx([75.0 - average, 25.0 - gain])
    assert "published, VGGSound-C" not in row
    assert "Published on all 2,466 clips" in table.caption
    assert "Not the published recordings here: noise" in table.caption
    assert [c.published for c in table.columns] == [False, False, True, False]


def test_on_other_data_only_gains_do(audio):
    mine = audio(("dasp", "dasp", 48, {}), ("mine", "dasp", 48, {"lr": 1.0}))
    rows = rows_of(published_table(mine, "per_domain/audio"))
    assert len(rows["dasp"]["published, VGGSound-C"].means) == 1
    assert rows["dasp"]["gain here"].means[0][0] == 25.0
    assert math.isnan(rows["mine"]["published, VGGSound-C"].means[0][0])  # options of its own
    claimed = rows_of(claims_table(mine))
    assert claimed["dasp"]["measured here, per-domain audio"].means[0][0] == 25.0
    assert claimed["dasp"]["published, Kinetics50-C, per-domain audio"].means[0][0] == 3.6


def test_an_ablation_is_found_by_its_options(audio):
    options = {"adapter_kinds": "both", "roles": "same"}
    mine = audio(("any name", "dasp", 48, options), protocol="continual/audio")
    row = rows_of(published_table(mine, "continual/audio"))["any name"]
    assert row["published, Kinetics50-C"].means[0][0] == pytest.approx(71.5 - 69.3)
    rebalanced = audio(("dasp", "dasp", 48, {"rebalance": 0.8}), protocol="continual/audio")
    row = rows_of(published_table(rebalanced, "continual/audio"))["dasp"]
    assert math.isnan(row["published, Kinetics50-C"].means[0][0])


def test_nothing_is_compared_with_part_of_a_stream_or_another_severity(audio, make, group):
    part = audio(("dasp", "dasp", 48, {}), domains=AUDIO[:3])
    assert published_table(part, "per_domain/audio") is None
    assert claims_table(part) is None
    mild = group(make(protocol="per_domain/audio", domains=AUDIO, severity=3))
    assert published_table(mild, "per_domain/audio") is None
