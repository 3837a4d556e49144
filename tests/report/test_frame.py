import json
import subprocess
import sys

import pytest

import dasp
from dasp.bench.results import pack, read_folder, write_result


def test_one_row_per_plan_label_run_and_visit(make, write, tmp_path):
    shared = make("dasp", right=[32, 16])
    plans = {"one": [("source", make("source")), ("dasp", shared)], "two": [("ours", shared)]}
    frame = dasp.results(write(tmp_path, plans))
    assert len(frame) == 6
    mine = frame[frame["label"] == "ours"]
    names = ["plan", "visit", "domain", "damaged", "accuracy", "samples", "key"]
    assert mine[names].to_numpy().tolist() == [
        ["two", 0, "video/fog/5", "video", 50.0, 64, shared.run.key],
        ["two", 1, "audio/rain/5", "audio", 25.0, 64, shared.run.key],
    ]
    assert json.loads(mine["options"].iloc[0])["lr"] == 0.001
    mean = frame.groupby("label")[["right", "seen"]].sum()
    assert mean.loc["dasp"].tolist() == [48, 128]
    pack(tmp_path)
    assert not list((tmp_path / "runs").glob("*.json"))
    assert dasp.results(tmp_path).equals(frame)


def test_runs_of_no_plan_and_folders_below_are_read_as_well(make, make_cost, write, tmp_path):
    write_result(tmp_path / "none", make("tent"))
    write_result(tmp_path / "none", make_cost("tent"))
    frame = dasp.results(tmp_path / "none")
    assert frame[["plan", "label"]].drop_duplicates().to_numpy().tolist() == [["", "tent"]]
    assert len(frame) == 2  # a measurement of cost has no domains
    write(tmp_path / "a", {"one": [("dasp", make())]})
    write(tmp_path / "deep" / "b", {"two": [("read", make("read"))]})
    assert dasp.results(tmp_path)["plan"].drop_duplicates().tolist() == ["one", "two", "other"]


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "dasp-result-2"}', "\x00"])
def test_a_damaged_file_is_named_and_left_out(make, write, tmp_path, text):
    folder = write(tmp_path / "below", {"p": [("dasp", make())]})
    (folder / "runs" / "broken.json").write_text(text)
    found = read_folder(tmp_path)
    assert len(found.results) == 1
    (warning,) = found.warnings
    assert "below/runs/broken.json" in warning
    assert "Run the plan again" in warning


def test_a_damaged_pack_is_a_warning_beside_other_folders(make, write, tmp_path):
    good = write(tmp_path / "good", {"p": [("dasp", make())]})
    bad = write(tmp_path / "bad", {"q": [("tent", make("tent"))]})
    content = pack(bad).read_bytes()
    (bad / "runs.jsonl.gz").write_bytes(content[: len(content) // 2])
    found = read_folder(tmp_path)
    assert [plan.name for plan in found.plans] == ["p"]
    assert "damaged" in found.warnings[0]
    assert read_folder(good).warnings == []


def test_pandas_is_imported_late_and_missed_with_advice():
    code = (
        "import sys, dasp\n"
        "print('pandas' in sys.modules)\n"
        "sys.modules['pandas'] = None\n"
        "try: dasp.results('.')\n"
        "except dasp.DaspError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("False"), done.stderr
    assert "pip install 'dasp-tta[bench]'" in done.stdout
