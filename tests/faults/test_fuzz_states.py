"""A state of any bytes is refused by an error that names it, and nothing changes.

200 cases each in the suite; `make soak` sets DASP_FUZZ=10000.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dasp
from dasp.core.errors import StateError
from dasp.models import Toy

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
    after = tta.memory.capture().tensors
    assert all(value.equal(after[name]) for name, value in before.items())
