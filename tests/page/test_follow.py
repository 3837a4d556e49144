import json

import pytest

import dasp
from dasp.core.errors import DataError
from dasp.models.toy import Toy
from dasp.page.follow import LogFeed
from dasp.service.events import EventLog
from dasp.streams.synthetic import SyntheticWorld


def fed(count=6):
    world = SyntheticWorld().stream(["clean", "audio", "video"], batches=count // 3, size=32)
    return [batch.inputs for batch in world]


def rest(feed):
    """Return all updates that are there now."""
    return list(iter(feed.next, None))


def numbers(updates):
    return [update.point["n"] for update in updates]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def test_it_shows_what_a_running_process_writes(path):
    tta = dasp.adapt(Toy(seed=1), "dasp", log=path)
    outs = [tta(inputs) for inputs in fed()[:3]]
    feed = LogFeed(path)
    found = rest(feed)
    assert feed.about()["title"] == "events.jsonl: dasp"
    assert feed.about()["modalities"] == ["audio", "video"]
    assert feed.about()["can"] == []
    outs += [tta(inputs) for inputs in fed()[3:]]
    found += rest(feed)
    assert numbers(found) == list(range(6))
    assert found[0].keep == 0
    for update, out in zip(found, outs, strict=True):
        assert update.point["biased"] == sorted(out.diagnosis.biased)
        assert update.point["skipped"] == out.skipped
        limit = min(out.diagnosis.scores.values()) + 0.05
        assert update.point["limits"]["audio"] == pytest.approx(limit, rel=1e-4)
    assert set(found[-1].point["norms"]) == {"audio", "video"}
    assert feed.next() is None


def test_a_limit_that_is_not_in_the_log_is_not_made_up(tmp_path):
    log = tmp_path / "log.jsonl"
    dasp.adapt(Toy(seed=1), "triage", log=log)(fed()[0])
    assert LogFeed(log).next().point["limits"] == {}


def test_a_new_run_and_a_resumed_one_replace_what_was(path):
    def begin():
        options = {"checkpoint": path.with_name("state.safetensors"), "checkpoint_every": 2}
        return dasp.adapt(Toy(seed=1), "dasp", log=path, **options)

    first = begin()
    for inputs in fed()[:3]:
        first(inputs)
    feed = LogFeed(path)
    assert len(rest(feed)) == 3
    second = begin()
    assert second.resume() == 2
    second(fed()[2])
    (again,) = rest(feed)
    assert (again.keep, again.point["n"]) == (2, 2)
    assert "resume" in again.point["note"]
    begin()(fed()[0])
    (anew,) = rest(feed)
    assert (anew.keep, anew.point["n"]) == (0, 0)


def line(place, **more):
    return {"event": "batch", "batch": place, "present": ["audio"], "missing": [], **more}


def test_a_full_log_that_is_moved_away_is_read_to_its_end(path):
    log = EventLog(path, limit=400)
    log.write(line(0))
    feed = LogFeed(path)
    found = rest(feed)
    for place in range(1, 30):
        log.write(line(place, text="x" * 60))
        if place % 2 == 0:
            found += rest(feed)
    found += rest(feed)
    assert numbers(found) == list(range(30))
    fresh = numbers(rest(LogFeed(path)))
    assert fresh == list(range(fresh[0], 30))
    assert len(fresh) > 1


def test_half_a_line_is_waited_for_and_nonsense_is_passed_over(path):
    whole = json.dumps(line(0)) + "\n"
    path.write_text(whole + "no json\n" + whole[:10])
    feed = LogFeed(path)
    assert numbers(rest(feed)) == [0]
    with path.open("a") as file:
        file.write(whole[10:].replace('"batch": 0', '"batch": 1'))
    assert numbers(rest(feed)) == [1]
    path.unlink()
    assert feed.next() is None
    path.write_text(json.dumps(line(7)) + "\n")
    assert numbers(rest(feed)) == [7]


def test_an_empty_log_is_left_as_it_is_and_other_events_are_notes_of_the_next_batch(path):
    with pytest.raises(DataError, match="no event log"):
        LogFeed(path)
    path.touch()
    assert LogFeed(path).next() is None
    assert path.read_bytes() == b""
    for event in (line(0), {"event": "error", "batch": 1, "error": "ValueError: no"}, line(2)):
        EventLog(path).write(event)
    notes = [update.point["note"] for update in rest(LogFeed(path))]
    assert notes == [None, "ValueError: no"]
