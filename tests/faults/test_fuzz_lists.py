"""A list of any bytes is read, or refused by an error that names it.

200 cases each in the suite; `make soak` sets DASP_FUZZ=10000.
"""

import json
import os

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dasp.core.errors import DataError
from dasp.data import open_manifest

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
