import json

import pytest

from dasp.core.errors import InputError
from dasp.report.runs import read_results, run_of


def test_reads_sub_folders_and_leaves_unfinished_files_alone(tmp_path, make, save_results):
    save_results([make("source")], tmp_path / "a")
    save_results([make("dasp")], tmp_path / "b" / "c")
    (tmp_path / ".half.part.json").write_text("{")
    results, warnings = read_results(tmp_path)
    assert {result["cell"]["label"] for result in results} == {"source", "dasp"}
    assert warnings == []


@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b'{"format": "else"}', b"\xff\xfe", b"null"])
def test_a_damaged_file_is_named_and_left_out(tmp_path, make, save_results, content):
    save_results([make()], tmp_path)
    (tmp_path / "broken.json").write_bytes(content)
    results, warnings = read_results(tmp_path)
    assert len(results) == 1
    assert len(warnings) == 1
    assert warnings[0].startswith("broken.json was left out")


@pytest.mark.parametrize(
    "path",
    [
        ("key",),
        ("cell", "seed"),
        ("cell", "model", "name"),
        ("result", "domains"),
        ("result", "batches", "biased"),
        ("measured",),
    ],
)
def test_a_missing_field_is_named(make, path):
    result = make()
    inner = result
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    with pytest.raises(InputError, match=f"'{path[-1]}' is missing"):
        run_of(result)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("accuracy",), 12.0),
        (("right",), 3),
        (("seen",), 0),
        (("batches", "updated"), [True]),
        (("batches", "scores", "audio"), [0.1]),
        (("domains", 0, "right"), 1),
        (("domains", 0, "first_batch"), 10_000),
    ],
)
def test_counts_that_contradict_each_other_are_refused(make, path, value):
    result = make()
    inner = result["result"]
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(InputError, match="contradict"):
        run_of(result)


def test_fields_of_the_wrong_kind_are_refused(make):
    result = make()
    result["result"]["batches"]["right"][0] = "many"
    with pytest.raises(InputError, match="right kind"):
        run_of(result)


def test_newer_fields_do_no_harm(make):
    result = make()
    result["result"]["batches"]["loss"] = []
    result["result"]["domains"][0]["loss"] = 1.0
    assert run_of(result).label == "dasp"


def test_accuracy_comes_from_the_counts(make):
    run = run_of(make())
    assert run.accuracy == 100 * run.right / run.seen


def test_no_results(tmp_path):
    with pytest.raises(InputError, match=r"no results here.*dasp bench"):
        read_results(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps({"methods": []}))
    with pytest.raises(InputError, match=r"plan\.json was left out"):
        read_results(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_results(tmp_path / "nowhere")
