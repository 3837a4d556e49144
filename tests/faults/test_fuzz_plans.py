"""Whatever its bytes: a file is read, or refused by one of our errors that names it.

200 cases each in the suite; `make soak` sets DASP_FUZZ=10000.
"""

import json
import os
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dasp.bench.plan import SHOWN, Plan, load_plans
from dasp.cli.main import main
from dasp.core.errors import DaspError
from dasp.report.sections import BY_GROUP, BY_SECTION

CASES = int(os.environ.get("DASP_FUZZ", "200"))
many = settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
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


def test_a_plan_may_ask_for_what_a_report_can_show():
    assert sorted(SHOWN) == sorted(BY_GROUP + BY_SECTION)


def test_the_command_says_it_in_one_line(tmp_path, capfd):
    path = tmp_path / "own.toml"
    path.write_text('show = ["nonsense"]')
    assert main(["bench", str(path)]) == 2
    assert len(capfd.readouterr().err.strip().splitlines()) == 1
