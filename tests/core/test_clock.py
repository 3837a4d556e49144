"""Where time goes: nested work counts once, and shares add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dasp.core import clock as clock_module
from dasp.core.clock import Clock, shares, timed


@pytest.fixture
def ticking(monkeypatch):
    """A clock on the wall that only moves when it is told to."""
    now = [0.0]
    monkeypatch.setattr(clock_module.time, "perf_counter", lambda: now[0])

    def pass_(seconds):
        now[0] += seconds

    return pass_


def test_inner_work_is_not_counted_twice(ticking):
    clock = Clock()
    with clock.on("decode"):
        ticking(1)
        with clock.on("corrupt"):
            ticking(2)
            with clock.on("draw"):
                ticking(4)
        with clock.on("corrupt"):
            ticking(8)
        ticking(16)
    assert clock.seconds == {"decode": 17, "corrupt": 10, "draw": 4}


def test_work_that_fails_counts_too(ticking):
    clock = Clock()

    def fails():
        with clock.on("decode"):
            ticking(3)
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        fails()
    with clock.on("decode"):
        ticking(1)
    assert clock.seconds == {"decode": 4}


def test_news_are_told_once(ticking):
    clock = Clock()
    clock.add({"load": 1.0})
    assert clock.news() == {"load": 1.0}
    clock.add({"adapt": 2.0})
    assert clock.news() == {"adapt": 2.0}
    assert clock.news() == {}
    assert clock.seconds == {"load": 1.0, "adapt": 2.0}


def test_waiting_is_counted_and_the_items_pass(ticking):
    def slow():
        for item in "ab":
            ticking(5)
            yield item

    clock = Clock()
    found = []
    for item in timed(slow(), clock):
        ticking(100)
        found.append(item)
    assert found == ["a", "b"]
    assert clock.seconds == {"load": 10}


@given(some.dictionaries(some.sampled_from(["load", "adapt", "encode"]), some.floats(0.01, 1e6)))
def test_shares_add_up(seconds):
    told = [int(part.split()[1][:-1]) for part in shares(seconds).split(" · ") if part]
    assert len(told) == len(seconds)
    assert not told or abs(sum(told) - 100) <= len(told)
