"""Whatever its bytes: a file is read, or refused by one of our errors that names it.

Plans, lists, event logs, states and messages of the page: 200 cases each in the suite; `make soak`
sets DASP_FUZZ=10000.
"""

import json
import os
from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dasp
from dasp.bench.plan import Plan, load_plans
from dasp.cli.main import main
from dasp.core.errors import DaspError, DataError, StateError
from dasp.data import open_manifest
from dasp.models import Toy
from dasp.page.follow import LogFeed
from dasp.page.runner import Feed, Runner

CASES = int(os.environ.get("DASP_FUZZ", "200"))
many = settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
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


# A scalar, a list or a table as TOML would have it; keys and strings are quoted as in JSON.
toml_value = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


def as_toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, float):
        return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(str(value), repr(value))
    return json.dumps(value) if isinstance(value, str) else str(value)


PLAN = b"""title = "Mine"
protocols = ["interleaved"]
seeds = [0, 1]
models = ["sounding_shapes_0"]
[data]
samples = 64
[methods.source]
[methods.tent]
lr = 1e-3
"""


def read_plan(path):
    message = path.name
    with suppress(DaspError):
        try:
            load_plans(path)
        except DaspError as error:
            message = str(error).strip()
            raise
    assert path.name in message
    assert "\n" not in message


@many
@given(content=st.binary(max_size=200) | changes.map(lambda c: mutated(PLAN, c)))
@example(content=b"\xff\xfe")
@example(content=b"plans = 3")
@example(content=b'plans = ["own.toml"]')
def test_plans_of_any_bytes(tmp_path, content):
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    read_plan(path)


FIELDS = sorted(Plan.__dataclass_fields__)


@many
@given(fields=st.dictionaries(st.sampled_from(FIELDS), toml_value, max_size=3))
@example(fields={"samples": True})
@example(fields={"title": 3})
def test_plans_with_any_values(tmp_path, fields):
    path = tmp_path / "own.toml"
    path.write_text("".join(f"{name} = {as_toml(value)}\n" for name, value in fields.items()))
    read_plan(path)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[data]\nsamples = true", "samples"),
        ('show = ["nonsense"]', "show"),
        ('[data]\non_bad = "maybe"', "on"),
        ("title = 3", "title"),
        ("seeds = [-1]", "seeds"),
        ("seeds = [1.5]", "seeds"),
        ("batch_sizes = [0]", "batch"),
        ("severities = [9]", "severit"),
        ("[data]\nsamples = 1000000000000", "samples"),
        ('protocols = ["interleavd"]', "interleaved"),
        ("[methods.tent]\nlr = -1", "lr"),
        ("[methods.tent]\nsmell = 1", "smell"),
    ],
)
def test_a_malformed_plan_is_refused_and_the_field_named(tmp_path, text, field):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(DaspError, match=field):
        [plan.jobs() for plan in load_plans(path).values()]


def test_the_command_says_it_in_one_line(tmp_path, capfd):
    path = tmp_path / "own.toml"
    path.write_text('show = ["nonsense"]')
    assert main(["bench", str(path)]) == 2
    assert len(capfd.readouterr().err.strip().splitlines()) == 1


LIST = json.dumps(
    {"data": [{"video_id": "a", "wav": "a/a.wav", "video_path": "frames", "labels": "/m/1"}] * 2}
).encode()


@many
@given(content=st.binary(max_size=200) | changes.map(lambda c: mutated(LIST, c)))
@example(content=b"[" * 100_000)
@example(content=b'{"data": [{"video_id": "a\\u0000", "wav": "x", "labels": "m"}]}')
@example(
    content=json.dumps({"data": [{"video_id": "a" * 300, "wav": "x", "labels": "m"}]}).encode()
)
def test_lists_of_any_bytes(tmp_path, content):
    path = tmp_path / "test.json"
    path.write_bytes(content)
    (tmp_path / "labels.csv").write_text("index,mid,display_name\n0,/m/1,one\n")
    try:
        open_manifest(tmp_path, None, "test", list_file=path, label_file=tmp_path / "labels.csv")
    except DataError as error:
        assert str(tmp_path) in str(error)  # noqa: PT017
        str(error).encode()


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
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


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "state.safetensors"
    tta = dasp.adapt(Toy(embed_dim=8, num_classes=3, seed=1), "dasp")
    tta.save(path)
    return tta, path.read_bytes()


@many
@given(content=st.binary(max_size=200) | changes)
def test_states_of_any_bytes(tmp_path, saved, content):
    tta, whole = saved
    content = content if isinstance(content, bytes) else mutated(whole, content)
    path = tmp_path / "state.safetensors"
    path.write_bytes(content)
    before = tta.memory.capture().tensors
    if content == whole:
        tta.load(path)
        return
    with pytest.raises(StateError, match=r"state\.safetensors"):
        tta.load(path)
    after = tta.memory.capture().tensors  # a rate that is not chosen yet is NaN
    torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)
