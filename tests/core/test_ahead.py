"""Items drawn ahead: the same ones in order, errors where they belong, nothing left behind."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dasp.core.ahead import drawn_ahead

WAIT = 10.0  # seconds until a test gives up, never reached


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "drawn ahead"]


@given(some.lists(some.integers()), some.integers(0, 4))
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


@pytest.mark.parametrize("depth", [0, 1, 2])
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


def test_an_error_of_the_caller_ends_the_thread():
    def fails():
        with drawn_ahead(iter(range(100))) as drawn:
            next(drawn)
            raise RuntimeError("method failed")

    with pytest.raises(RuntimeError, match="method failed"):
        fails()
    assert not threads()
