"""What the feature store saves, reckoned from the costs of the parts."""

import pytest
from grid import TOKEN_LEVEL, grid_plan, reckoned
from measuring import Seconds


def reckon(encode, adapt):
    costs = {"encode audio": encode, "encode video": encode, "write tokens": 0, "read tokens": 0}
    costs |= dict.fromkeys(TOKEN_LEVEL, adapt)
    times = {name: [Seconds(cost, cost)] for name, cost in costs.items()}
    return reckoned(times, grid_plan(32, "sounding_shapes_0"))["ratio"]


def test_encoding_alone_is_done_23_times_instead_of_126_times_a_method():
    assert reckon(encode=1, adapt=0) == pytest.approx(126 * len(TOKEN_LEVEL) / 23, rel=1e-4)


def test_a_store_saves_nothing_where_encoding_is_free():
    assert reckon(encode=0, adapt=1) == 1
