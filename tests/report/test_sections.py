import json

from dasp.report.folder import read_folder
from dasp.report.groups import group_results
from dasp.report.sections import sections_of, setting_names


def file_of(result):
    return f"{result['key']}.json"


def test_a_section_a_plan_and_the_rest_last(tmp_path, make, save_results, save_plan):
    results = [make("source"), make("dasp"), make("tent"), make("read")]
    save_results(results, tmp_path)
    source, dasp, tent, read = map(file_of, results)
    save_plan(tmp_path, "paper/one", [source, dasp, "gone.json"])
    save_plan(tmp_path, "two", [source, tent], place=2)
    one, two, other = sections_of(read_folder(tmp_path))
    assert one.name == "paper-one"
    assert {run.label for run in one.runs} == {"source", "dasp"}
    assert {run.label for run in two.runs} == {"source", "tent"}
    assert (one.missing, two.missing, other.missing) == (1, 0, 0)
    assert other.plan.title == "Other runs"
    assert other.plan.files == [read]


def test_without_plans_there_is_one_section_of_all_runs(make, sections_from):
    (section,) = sections_from([make("source"), make("dasp")])
    assert section.name == ""
    assert section.plan.title == "All runs"
    assert section.asked == ["comparison"]


def test_names_of_sections_are_distinct(tmp_path, make, save_results, save_plan):
    save_results([make()], tmp_path)
    save_plan(tmp_path, "other", ["a.json"])
    save_plan(tmp_path, "other", ["b.json"], place=2)
    names = [section.name for section in sections_of(read_folder(tmp_path))]
    assert names == ["other", "other-2", "other-3"]


def test_other_kinds_are_asked_for(tmp_path, make_indicators, make_efficiency, save_plan):
    (tmp_path / "i.json").write_text(json.dumps(make_indicators()))
    (tmp_path / "e.json").write_text(json.dumps(make_efficiency()))
    save_plan(tmp_path, "mine", ["i.json"], kind="indicators", show=[])
    mine, other = sections_of(read_folder(tmp_path))
    assert mine.asked == ["indicators"]
    assert len(mine.indicators) == 1
    assert other.asked == ["efficiency"]
    assert len(other.efficiencies) == 1


def test_settings_are_named_by_what_differs(make):
    groups = group_results([make(), make(severity=3), make(severity=3, batch_size=16)])
    assert setting_names(groups) == [
        "batch 32, severity 5",
        "batch 32, severity 3",
        "batch 16, severity 3",
    ]
    assert setting_names(groups[:1]) == [""]
