import json
import os
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import DataError, OptionError
from dasp.service import events
from dasp.service.events import EventLog, older, read

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(string.printable),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def batch(place, **more):
    return {"event": "batch", "batch": place, **more}


@given(values=st.lists(VALUES, max_size=6))
def test_whatever_is_written_is_json_and_comes_back(values, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    log = EventLog(path)
    for place, value in enumerate(values):
        log.write(batch(place, value=value))

    lines = path.read_text().splitlines() if values else []
    parsed = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert len(parsed) == len(values)
    if values:
        assert read(path) == parsed


@given(cut=st.integers(0, 200))
def test_a_log_cut_anywhere_reads_as_far_as_it_is_whole_and_goes_on(cut, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    for place in range(4):
        EventLog(path).write(batch(place, text="ä" * 5))
    whole = path.read_bytes()
    cut = min(cut, len(whole))
    path.write_bytes(whole[:cut])
    left = whole[:cut].count(b"\n")
    assert [event["batch"] for event in read(path)] == list(range(left))
    EventLog(path).write(batch(9))
    assert [event["batch"] for event in read(path)] == [*range(left), 9]


def test_a_resumed_run_replaces_what_it_runs_again(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    for event in (
        {"event": "start", "batch": 0},
        *(batch(place, life=1) for place in range(5)),
        {"event": "reset", "batch": 4},
        {"event": "resume", "batch": 3},
        *(batch(place, life=2) for place in (3, 4)),
    ):
        log.write(event)
    found = read(log.path)
    assert [(e["batch"], e["life"]) for e in found if e["event"] == "batch"] == [
        (0, 1), (1, 1), (2, 1), (3, 2), (4, 2),
    ]  # fmt: skip
    assert [e["event"] for e in found].count("reset") == 0
    log.write({"event": "start", "batch": 0})
    assert len(read(log.path)) == 1


def test_two_files_of_bounded_size_are_read_as_one(tmp_path):
    log = EventLog(tmp_path / "events.jsonl", limit=200)
    for place in range(50):
        log.write(batch(place))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 400
    places = [event["batch"] for event in read(log.path)]
    assert places == list(range(places[0], 50))
    assert len(places) > 5
    assert older(log.path).exists()
    log.write(batch(50, text="x" * 300))  # longer than the limit: written all the same
    assert read(log.path)[-1]["batch"] == 50


def test_damage_and_files_that_are_no_logs_are_named_and_left_alone(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event": "batch", "batch": 0}\nhalf\n{"event": "batch", "batch": 2}\n')
    with pytest.raises(DataError, match=r"events.jsonl, line 2 is not an event: b'half'"):
        read(path)
    with pytest.raises(DataError, match="no event log at"):
        read(tmp_path / "none.jsonl")
    for text in ("print(1)\nprint(2)", "one line without an end"):
        (tmp_path / "mine").write_text(text)
        with pytest.raises(OptionError, match="is not an event log"):
            EventLog(tmp_path / "mine")
        assert (tmp_path / "mine").read_text() == text
    with pytest.raises(OptionError, match="is a directory"):
        EventLog(tmp_path)


def test_a_line_is_json_and_leaves_nothing_if_there_is_no_room(tmp_path, monkeypatch):
    log = EventLog(tmp_path / "new" / "events.jsonl")
    log.write(batch(0, loss=float("nan"), scores={"audio": float("inf")}, biased={"b", "a"}))
    assert read(log.path) == [batch(0, loss=None, scores={"audio": None}, biased=["a", "b"])]
    whole, write = log.path.read_bytes(), os.write
    monkeypatch.setattr(events.os, "write", lambda handle, data: write(handle, data[:7]))
    with pytest.raises(OSError, match="No space left"):
        log.write(batch(1))
    assert log.path.read_bytes() == whole
