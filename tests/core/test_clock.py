"""Time per stage, and items drawn ahead by a thread."""

import threading

import pytest

from dasp.core import clock as clock_module
from dasp.core.clock import Clock, drawn_ahead, shares, timed

WAIT = 10.0  # seconds until a test gives up, never reached


@pytest.fixture
def ticking(monkeypatch):
    """Return a function that moves the time forward, which otherwise stands still."""
    past = [0.0]
    monkeypatch.setattr(clock_module.time, "perf_counter", lambda: sum(past))
    return past.append


def test_inner_work_is_not_counted_twice(ticking):
    clock = Clock()

    def fails():  # which counts as well
        with clock.on("corrupt"):
            ticking(8)
            raise OSError("bad")

    with clock.on("decode"):
        ticking(1)
        with clock.on("corrupt"):
            ticking(2)
            with clock.on("draw"):
                ticking(4)
        with pytest.raises(OSError, match="bad"):
            fails()
        ticking(16)
    assert clock.seconds == {"decode": 17, "corrupt": 10, "draw": 4}


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


def test_shares_of_nothing_and_of_idle_stages():
    assert shares({}) == shares({"load": 0.0}) == ""
    assert shares({"load": 1.0, "encode": 0.0, "adapt": 3.0}) == "load 25% · adapt 75%"


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("drawn ahead")]


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize("items", [[], [None], [3, 1, 2]])
def test_items_and_their_order_are_the_same(items, depth):
    with drawn_ahead(iter(items), depth) as drawn:
        assert list(drawn) == items
    assert not threads()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_so_many_are_made_ahead_and_no_more(depth):
    made, full = [], threading.Event()

    def numbers():
        for number in range(10):
            made.append(number)
            if len(made) == depth + 1:
                full.set()
            yield number

    with drawn_ahead(numbers(), depth) as drawn:
        assert next(drawn) == 0
        assert full.wait(WAIT)  # one was taken, so there is room for `depth` others
        assert not threads()[0].join(0.05)
        assert len(made) == depth + 1
    assert len(made) <= depth + 2


@pytest.mark.parametrize("depth", [0, 2])
def test_an_error_comes_out_where_the_item_is_asked_for(depth):
    def numbers():
        yield 1
        raise OSError("disk gone")

    with drawn_ahead(numbers(), depth) as drawn:
        assert next(drawn) == 1
        with pytest.raises(OSError, match="disk gone"):
            next(drawn)
    assert not threads()


@pytest.mark.parametrize("depth", [0, 2])
def test_a_broken_loop_ends_the_thread_and_closes_what_it_read(depth):
    closed = []

    def numbers():
        try:
            yield from range(10**9)
        finally:
            closed.append(True)

    source = numbers()
    with drawn_ahead(source, depth) as drawn:
        for number in drawn:
            if number == 3:
                break
    source.close()
    assert closed == [True]
    assert not threads()
