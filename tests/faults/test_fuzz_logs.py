"""An event log of any bytes is read or refused, and the page follows it over any line.

200 cases each in the suite; `make soak` sets DASP_FUZZ=10000.
"""

import json
import os
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dasp
from dasp.core.errors import DaspError
from dasp.page.follow import LogFeed
from dasp.page.runner import Feed, Runner

CASES = int(os.environ.get("DASP_FUZZ", "200"))
many = settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def mutated(content, changes):
    """Return bytes with some of them replaced, removed or put in."""
    data = bytearray(content)
    for place, byte, kind in changes:
        at = int(place * len(data)) if data else 0
        if kind == "set" and data:
            data[min(at, len(data) - 1)] = byte
        elif kind == "cut":
            del data[at : at + byte]
        else:
            data[at:at] = bytes([byte])
    return bytes(data)


changes = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 255), st.sampled_from(["set", "cut", "put"])),
    min_size=1,
    max_size=6,
)
EVENTS = "".join(
    json.dumps(event) + "\n"
    for event in (
        {"event": "start", "time": 1.0, "batch": 0, "method": "dasp", "hyper": {},
         "modalities": ["a"]},
        {"event": "batch", "time": 2.0, "batch": 0, "index": 1, "size": 4, "present": ["a"],
         "missing": [], "scores": {"a": 0.5}, "biased": [], "updated": True, "loss": 0.1,
         "rejected": None, "rollback": None, "norms": {"a": 0.0}},
    )
).encode()  # fmt: skip


@many
@given(content=st.binary(max_size=200) | changes.map(lambda c: mutated(EVENTS, c)))
def test_event_logs_of_any_bytes(tmp_path, content):
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)
    with suppress(DaspError):
        dasp.events.read(path)


@many
@given(event=st.dictionaries(st.sampled_from(list(json.loads(EVENTS.splitlines()[1]))), values))
def test_the_page_follows_a_log_over_any_line(tmp_path, event):
    path = tmp_path / "events.jsonl"
    odd = json.dumps({"event": "batch", "batch": 1, **event}).encode() + b"\n"
    path.write_bytes(EVENTS + odd + b"\xff{}\n" + EVENTS.splitlines()[1] + b"\n")
    feed = LogFeed(path)
    shown = [update for _ in range(8) if (update := feed.next()) is not None]
    assert len(shown) >= 2, "the page halted at an odd line"
    json.dumps([update.point for update in shown], allow_nan=False)


class Still(Feed):
    def about(self):
        return {"can": ["play", "pause", "step", "speed", "reset"]}

    def next(self):
        return None


@many
@given(message=st.dictionaries(st.sampled_from(["do", "value"]), values))
def test_page_messages_of_any_kind(message):
    runner = Runner(Still(), playing=False)
    try:
        with suppress(DaspError):
            runner.control(message)
        json.dumps(runner.news(-1)[0], allow_nan=False)
    finally:
        runner.stop()
