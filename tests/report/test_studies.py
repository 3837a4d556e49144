import json

import pytest

from dasp.report.folder import read_folder
from dasp.report.sections import sections_of
from dasp.report.shown import show


@pytest.fixture
def shown(tmp_path, save_plan, save_results):
    """Return what a plan shows of results and of other files."""

    def draw(results=(), others=(), **plan):
        save_results(results, tmp_path)
        for place, content in enumerate(others):
            (tmp_path / f"{place}.json").write_text(json.dumps(content))
        names = [f"{result['key']}.json" for result in results]
        names += [f"{place}.json" for place in range(len(others))]
        save_plan(tmp_path, "mine", names, **plan)
        return show(sections_of(read_folder(tmp_path))[0])

    return draw


def names_of(shown):
    return [item.name for item in shown.parts[0].items]


def test_forgetting(make, shown):
    results = [make(label, clean_after=200) for label in ("source", "dasp")]
    found = shown(results, show=["forgetting"])
    assert names_of(found) == ["forgetting", "forgetting-interleaved"]


def test_forgetting_that_was_not_judged_is_left_out(make, shown):
    found = shown([make("source"), make("dasp")], show=["forgetting"])
    assert found.parts[0].title == "Options and cost"


def test_sensitivity(make, shown):
    rows = [make("source"), make("dasp")]
    rows += [make(f"dasp delta={v}", method="dasp", options={"delta": v}) for v in (0.01, 0.1)]
    assert names_of(shown(rows, show=["sensitivity"])) == [
        "sensitivity-dasp-interleaved",
        "sensitivity",
    ]


def test_batch_sizes_are_drawn_together(make, shown):
    results = [make(label, batch_size=n) for label in ("source", "dasp") for n in (16, 32)]
    assert names_of(shown(results, show=["batch_size"])) == ["batch-size-interleaved", "batch-size"]


def test_indicators_and_what_they_found(make_indicators, shown):
    files = [make_indicators(model) for model in ("a", "b")]
    found = shown(others=files, kind="indicators", show=[])
    assert "indicators-naming-by-damaged" in names_of(found)
    assert found.finding.startswith("Damage is named rightly in ")
    assert "100 % of domains by higher entropy" in found.finding


def test_efficiency_takes_its_accuracy_from_all_runs_of_the_folder(make, make_efficiency, shown):
    results = [make("source"), make("dasp")]
    files = [make_efficiency("source", slower=1.0), make_efficiency("dasp", slower=3.0)]
    shown(results)
    found = shown(others=files, kind="efficiency", show=["efficiency"])
    assert "passes" in names_of(found)
    assert names_of(found)[0].startswith("efficiency-")
    assert found.finding == "Time beside Source: dasp 3.0 ×."
