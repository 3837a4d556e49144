import json
import re
from importlib.resources import files

from hypothesis import given
from hypothesis import strategies as st

from dasp.report.folder import read_folder
from dasp.report.html import SCRIPTS
from dasp.report.run_data import SCORE, lengths, run_data
from dasp.report.runs import run_of
from dasp.report.sections import sections_of


def unpack(turns):
    return [place % 2 == 1 for place, length in enumerate(turns) for _ in range(length)]


@given(st.lists(st.booleans()))
def test_lengths_hold_every_flag(flags):
    assert unpack(lengths(flags)) == flags


def test_the_numbers_of_a_run_survive(make, sections_from):
    result = make(clean_after=200)
    batches = result["result"]["batches"]
    batches["rejected"][3], batches["scores"]["audio"][0] = "NaN in audio", None
    result["result"]["rollbacks"] = [{"batch": 5, "reason": "one class rules"}]
    data = run_data(sections_from([result]))
    run, kept = run_of(result), data["runs"][result["key"]]
    assert kept["right"] == run.batches.right
    assert unpack(kept["updated"]) == run.batches.updated
    assert kept["rejected"] == [(3, "NaN in audio")]
    assert kept["rollbacks"] == [(5, "one class rules")]
    assert kept["scores"]["audio"][0] is None
    assert abs(kept["scores"]["video"][5] / SCORE - run.batches.scores["video"][5]) <= 0.5 / SCORE
    named = unpack(kept["named"]["video"])
    assert [n for n, flag in enumerate(named) if flag] == [
        n for n, names in enumerate(run.batches.biased) if "video" in names
    ]
    assert kept["clean"]["joint"] == run.clean_after.right["joint"]
    stream = data["streams"][kept["stream"]]
    assert stream["seen"] == run.batches.seen
    assert [d[0] for d in stream["domains"]] == [d.name for d in run.domains]


def test_a_run_of_two_plans_stands_once(tmp_path, make, save_results, save_plan):
    result = make()
    save_results([result], tmp_path)
    for place, name in enumerate(("one", "two")):
        save_plan(tmp_path, name, [f"{result['key']}.json"], place=place)
    data = run_data(sections_of(read_folder(tmp_path)))
    assert data["runs"][result["key"]]["sections"] == [0, 1]
    assert [name for name, _ in data["sections"]] == ["plan-one", "plan-two"]


def test_what_runs_share_stands_once(results, sections_from):
    data = run_data(sections_from(results))
    assert len(data["runs"]) == len(results)
    assert len(data["streams"]) == 3  # video, audio, interleaved
    assert len(data["settings"]) == 1


def test_a_run_is_small(make, sections_from):
    result = make(domains=[f"video/fog{n}/5" for n in range(21)], samples=512)
    data = run_data(sections_from([result]))
    assert len(result["result"]["batches"]["right"]) == 336
    assert len(json.dumps(data["runs"], separators=(",", ":"))) < 8000


def test_the_script_reads_what_is_kept_and_no_more(make, sections_from):
    result = make()
    data = run_data(sections_from([result]))
    run = data["runs"][result["key"]]
    script = "".join(files("dasp.report").joinpath(name).read_text() for name in SCRIPTS)

    def used(name):
        return set(re.findall(rf"\b{name}\.(\w+)", script))

    assert used("data") == data.keys()
    assert used("run") == run.keys()
    assert used("stream") == data["streams"][0].keys()
    assert used(r"run\.cost") == run["cost"].keys()
    assert f"SCORE = {SCORE}" in script
