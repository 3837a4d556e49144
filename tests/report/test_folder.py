import json

import pytest

from dasp.core.errors import InputError
from dasp.report.folder import read_folder


def test_reads_sub_folders_and_leaves_unfinished_files_alone(tmp_path, make, save_results):
    save_results([make("source")], tmp_path / "a")
    save_results([make("dasp")], tmp_path / "b" / "c")
    (tmp_path / ".half.part.json").write_text("{")
    folder = read_folder(tmp_path)
    assert {run.label for run in folder.runs.values()} == {"source", "dasp"}
    assert {name.split("/")[0] for name in folder.files} == {"a", "b"}
    assert folder.warnings == []


@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b'{"format": "else"}', b"\xff\xfe", b"null"])
def test_a_damaged_file_is_named_and_left_out(tmp_path, make, save_results, content):
    save_results([make()], tmp_path)
    (tmp_path / "broken.json").write_bytes(content)
    folder = read_folder(tmp_path)
    assert len(folder.runs) == 1
    assert len(folder.warnings) == 1
    assert folder.warnings[0].startswith("broken.json was left out")


def test_results_of_the_first_format_are_still_read(tmp_path, make, save_results):
    save_results([make() | {"format": "dasp-result-1"}], tmp_path)
    assert len(read_folder(tmp_path).runs) == 1


def test_plans_and_other_kinds(tmp_path, make_indicators, make_efficiency, save_plan):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "i.json").write_text(json.dumps(make_indicators()))
    (tmp_path / "deep" / "e.json").write_text(json.dumps(make_efficiency()))
    (tmp_path / "deep" / "x.json").write_text('{"format": "dasp-efficiency-1"}')
    save_plan(tmp_path / "deep", "mine", ["i.json", "gone.json"], place=2)
    save_plan(tmp_path / "deep", "first", ["e.json"], place=1)
    folder = read_folder(tmp_path)
    assert list(folder.indicators) == ["deep/i.json"]
    assert list(folder.efficiencies) == ["deep/e.json"]
    assert [plan.name for plan in folder.plans] == ["first", "mine"]
    assert folder.plans[1].files == ("deep/i.json", "deep/gone.json")
    assert [warning.split(" ")[0] for warning in folder.warnings] == ["deep/x.json"]


def test_a_plan_run_alone_and_in_a_list_stands_once(tmp_path, make, save_results, save_plan):
    save_results([make()], tmp_path)
    for place in (1, 7):
        save_plan(tmp_path, "same", ["a.json"], place=place)
    save_plan(tmp_path, "same", ["b.json"], place=8)
    assert [plan.files for plan in read_folder(tmp_path).plans] == [("a.json",), ("b.json",)]


@pytest.mark.parametrize("change", [{"files": None}, {"files": 3}, {"show": None}])
def test_a_damaged_plan_record_is_named(tmp_path, make, save_results, save_plan, change):
    save_results([make()], tmp_path)
    path = save_plan(tmp_path, "mine", [])
    content = json.loads(path.read_text()) | change
    path.write_text(json.dumps({name: value for name, value in content.items() if value}))
    folder = read_folder(tmp_path)
    assert folder.plans == []
    assert folder.warnings[0].startswith("plans/01-mine.json was left out")


def test_no_results(tmp_path):
    with pytest.raises(InputError, match=r"no results here.*dasp bench"):
        read_folder(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps({"methods": []}))
    with pytest.raises(InputError, match=r"plan\.json was left out"):
        read_folder(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_folder(tmp_path / "nowhere")
