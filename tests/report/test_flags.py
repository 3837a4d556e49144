"""Rates of flags, the thresholds they are compared at, and what is drawn of them."""

import json

import pytest

from dasp.core.errors import InputError
from dasp.report.finding import finding
from dasp.report.flag_figures import best_indicator, flag_figures
from dasp.report.flag_tables import flag_tables
from dasp.report.flags import Rates, flag_groups, flags_of
from dasp.report.folder import read_folder
from dasp.report.sections import sections_of

NAMES = ["good", "mixed up", "blind"]


def counts(batches, *rows):
    return {"batches": batches, "flagged": [list(row) for row in rows]}


def order(clean_mixed, healthy_good=(1, 0, 0), hits=(100, 80, 50)):
    """A hundred batches each; thresholds 1, 2 and 4; "mixed up" flags clean data if sorted."""
    quiet = (2, 0, 0)
    return {
        "clean": counts(100, (5, 1, 0), clean_mixed, quiet),
        "healthy": counts(200, healthy_good, clean_mixed, (0, 0, 0)),
        "domains": [
            {"name": "audio/rain/5", **counts(100, hits, (100, 90, 90), (0, 0, 0))},
            {"name": "video/fog/5", **counts(100, (60, 40, 10), (100, 90, 90), (10, 0, 0))},
        ],
    }


@pytest.fixture
def content():
    def make(model="a", severity=5, size=64, **changes):
        result = {
            "modalities": ["audio", "video"],
            "indicators": NAMES,
            "thresholds": [1.0, 2.0, 4.0],
            "levels": {},
            "orders": {
                "shuffled": order((9, 1, 0), **changes),
                "sorted": order((100, 100, 100), **changes),
            },
        }
        for found in result["orders"].values():
            for domain in found["domains"]:
                domain["name"] = f"{domain['name'][:-1]}{severity}"
        return {
            "format": "dasp-flags-1",
            "key": f"{model}{severity}{size}",
            "cell": {
                "data": {"name": "sounding_shapes"},
                "model": {"name": model, "digest": model},
                "severity": severity,
                "batch_size": size,
                "seed": 0,
                "corruptions": [],
                "source": {"samples": 128},
            },
            "result": result,
            "measured": {},
        }

    return make


@pytest.fixture
def views(content):
    return [
        flags_of(content(model, severity, size))
        for model in "ab"
        for severity in (3, 5)
        for size in (16, 64)
    ]


def test_thresholds_bound_false_alarms_in_every_order_asked_for(views):
    mine = [view for view in views if view.batch_size == 64]
    shuffled, both = Rates(mine, ["shuffled"]), Rates(mine, ["shuffled", "sorted"])
    assert [shuffled.quiet_spot(i)[1] for i in range(3)] == [1, 1, 0]
    assert both.quiet_spot(1) == (1, 2)
    assert not both.is_quiet((1, 2))
    assert both.clean((1, 2)) == [50.0, 50.0]


def test_a_healthy_modality_flagged_is_a_false_alarm_too(content):
    view = flags_of(content(healthy_good=(9, 9, 0)))
    assert Rates([view], ["shuffled"]).quiet_spot(0) == (0, 2)


def test_rates_are_shares_of_batches_for_each_model(views, content):
    rates = Rates([flags_of(content("a")), flags_of(content("b", hits=(50, 40, 0)))], ["sorted"])
    assert rates.hits((0, 1)) == [60.0, 40.0]
    assert rates.hits((0, 1), 5, "audio/") == [80.0, 40.0]
    assert rates.hits((0, 1), 3) == []
    assert rates.wrong((0, 0)) == [0.5, 0.5]


def test_tables_by_size_and_order_mark_the_best_that_is_quiet(views):
    tables = {table.name: table for table in flag_tables(views)}
    assert list(tables) == [
        f"flags-batch{size}-{name}" for size in (64, 16) for name in ("shuffled", "sorted", "any")
    ]
    shuffled, by_class = tables["flags-batch64-shuffled"], tables["flags-batch64-sorted"]
    assert [column.title for column in shuffled.columns] == [
        "indicator", "threshold", "audio 5", "audio 3", "video 5", "video 3",
        "all hits", "clean, no flag", "wrong",
    ]  # fmt: skip
    assert [[cell.best for cell in row].count(True) for row in shuffled.rows] == [0, 5, 0]
    assert [[cell.best for cell in row].count(True) for row in by_class.rows] == [5, 0, 0]
    assert [row[1].quantities[0].value for row in by_class.rows] == [2.0, 2.0, 1.0]
    assert "128 training samples" in shuffled.caption


def test_what_cannot_be_quiet_is_neither_best_nor_drawn(views):
    assert NAMES[best_indicator(views)] == "good"
    hits, domains = flag_figures(views)
    assert "mixed up" in hits.drawing
    assert "severity 5, mixed up" not in hits.drawing
    assert "severity 3, good: 60" in hits.drawing
    assert "severity 5, video fog: 40" in domains.drawing
    assert "blind" not in domains.drawing


def test_files_of_other_settings_stay_apart(content):
    other = content("b")
    other["cell"]["source"]["samples"] = 32
    assert len(flag_groups(map(flags_of, (content("a"), content("c"), other)))) == 2


def test_a_section_of_flags_is_shown_and_summed_up(tmp_path, content, save_plan, show_from):
    (tmp_path / "f.json").write_text(json.dumps(content()))
    save_plan(tmp_path, "mine", ["f.json"], kind="flags", show=[])
    (section,) = sections_of(read_folder(tmp_path))
    assert section.asked == ["flags"]
    assert finding(section) == (
        "Most damage is flagged by good: in 60 % of damaged batches of 64, with 2 % false alarms "
        "at most, shuffled or sorted."
    )
    (shown,) = show_from([content("a"), content("b")])
    assert [part.title for part in shown.parts] == ["What each indicator flags"]


def test_damaged_files_are_refused(content):
    broken = content()
    broken["result"]["orders"]["sorted"]["clean"]["flagged"][0][0] = 101
    with pytest.raises(InputError, match="contradict"):
        flags_of(broken)
    del broken["result"]["thresholds"]
    with pytest.raises(InputError, match="thresholds"):
        flags_of(broken)
    with pytest.raises(InputError, match="dasp-flags-1"):
        flags_of({"format": "other"})
