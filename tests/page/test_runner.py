import threading
import time

import pytest

from dasp.core.errors import OptionError
from dasp.page.board import Board, Mark
from dasp.page.runner import ENDED, Runner


def shown(runner):
    news, _ = runner.board.since(Mark())
    return news


def until(true, patience=20.0):
    """Wait until something holds; how long it takes is not what is tested."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


@pytest.fixture
def run():
    runners = []

    def start(feed, playing=False):
        runners.append(Runner(feed, Board(), playing))
        runners[-1].start()
        return runners[-1]

    yield start
    for runner in runners:
        runner.stop()


def test_a_step_is_one_batch(run, counting):
    runner = run(counting())
    for n in range(4):
        runner.obey({"do": "step"})
        until(lambda n=n: len(shown(runner)["points"]) == n + 1)
    time.sleep(0.05)
    assert runner.feed.number == 4


def test_it_plays_until_it_is_paused(run, counting):
    runner = run(counting(), playing=True)
    runner.obey({"do": "speed", "value": 8})
    until(lambda: len(shown(runner)["points"]) > 2)
    runner.obey({"do": "pause"})
    assert not shown(runner)["state"]["playing"]
    time.sleep(0.05)  # for the batch in hand
    before = runner.feed.number
    time.sleep(0.4)
    assert runner.feed.number == before
    runner.obey({"do": "play"})
    until(lambda: runner.feed.number > before)


def test_reset_empties_the_board_and_goes_on_from_the_source(run, counting):
    runner = run(counting())
    for n in range(4):
        runner.obey({"do": "step"})
        until(lambda n=n: len(shown(runner)["points"]) == n + 1)
    runner.obey({"do": "reset"})
    until(lambda: not shown(runner)["points"])
    assert runner.feed.resets == 1
    runner.obey({"do": "step"})
    until(lambda: [p["n"] for p in shown(runner)["points"]] == [0])


def test_the_end_of_a_stream_pauses_and_says_so(run, counting):
    runner = run(counting(last=2), playing=True)
    runner.obey({"do": "speed", "value": 8})
    until(lambda: shown(runner)["state"]["note"] == ENDED)
    assert not shown(runner)["state"]["playing"]
    runner.obey({"do": "reset"})
    until(lambda: shown(runner)["state"]["note"] == "")


def test_an_exception_is_shown_and_the_runner_lives(run, counting):
    feed = counting()
    good, feed.next = feed.next, lambda: 1 / 0
    runner = run(feed, playing=True)
    until(lambda: "ZeroDivisionError" in shown(runner)["state"]["note"])
    assert not shown(runner)["state"]["playing"]
    feed.next = good
    runner.obey({"do": "step"})
    until(lambda: shown(runner)["points"])
    until(lambda: shown(runner)["state"]["note"] == "")


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"do": "fly"}, "unknown wish 'fly'"),
        ({"do": ["play"]}, "unknown wish"),
        ({}, "unknown wish"),
        ({"do": "speed"}, "speed is one of"),
        ({"do": "speed", "value": True}, "speed is one of"),
        ({"do": "speed", "value": [1]}, "speed is one of"),
        ({"do": "corrupt", "severity": 9}, "severity"),
    ],
)
def test_a_wish_that_cannot_be_changes_nothing(run, counting, wish, words):
    runner = run(counting())
    before = shown(runner)["state"]
    with pytest.raises(OptionError, match=words):
        runner.obey(wish)
    assert shown(runner)["state"] == before


def test_wishes_from_many_threads_all_arrive(run, counting):
    runner = run(counting())

    def ask():
        for severity in range(20):
            runner.obey({"do": "corrupt", "severity": severity % 6})

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shown(runner)["state"]["wishes"] == 80


def test_who_only_looks_on_can_ask_for_nothing(run, counting):
    runner = run(counting(can=()))
    with pytest.raises(OptionError, match="only looks on"):
        runner.obey({"do": "pause"})
