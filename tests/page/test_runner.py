import time
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import OptionError
from dasp.page.runner import ENDED, SOUNDS, History, Runner, Update

ACTIONS = st.lists(st.sampled_from(["publish", "clear", "back", "look", "state"]), max_size=60)


class Browser:
    """Keeps what the page's script keeps."""

    def __init__(self):
        self.seen, self.points, self.state, self.samples = -1, [], None, None

    def look(self, history, state=None):
        news, self.seen = history.since(self.seen, state)
        if news is not None:
            self.points = news["points"] if news["fresh"] else self.points + news["points"]
            self.state = news.get("state", self.state)
            self.samples = news.get("samples", self.samples)


@given(actions=ACTIONS)
def test_browsers_that_look_at_any_time_end_with_the_same(actions):
    history, often, number, state = History(limit=1000), Browser(), 0, None
    for place, action in enumerate(actions):
        if action == "publish":
            history.publish(Update({"n": number}, [{"class": place}]))
            number += 1
        elif action == "clear":
            history.clear()
            number = 0
        elif action == "back":
            number //= 2
            history.publish(Update({"n": number}, keep=number))
            number += 1
        elif action == "state":
            state = {"place": place}
        else:
            often.look(history, state)
    late = Browser()
    for browser in (often, late):
        browser.look(history, state)
        assert [p["n"] for p in browser.points] == list(range(number))
        assert history.since(browser.seen, state) == (None, browser.seen)
    assert (often.state, often.samples) == (late.state, late.samples)


def test_a_browser_that_never_looks_costs_no_memory():
    history, slow = History(limit=50), Browser()
    slow.look(history)
    for n in range(500):
        history.publish(Update({"n": n}, [{"class": n}], {2: bytes([n % 256])}))
    slow.look(history)
    assert [p["n"] for p in slow.points] == list(range(450, 500))
    assert slow.samples["list"] == [{"class": 499}]
    assert history.sound(slow.samples["key"], 2) == bytes([499 % 256])
    assert history.sound(slow.samples["key"], 3) is None
    assert [n for n in range(500) if history.sound(f"0-{n}", 2)] == list(range(500 - SOUNDS, 500))


def shown(runner):
    return runner.news(-1)[0]


def until(true, patience=20.0):
    """Wait until something holds; how long that takes is not tested."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


@pytest.fixture
def run():
    with ExitStack() as stack:

        def start(feed, playing=False):
            runner = Runner(feed, playing)
            stack.callback(runner.stop)
            return runner

        yield start


def test_it_steps_resets_plays_and_pauses(run, counting):
    runner = run(counting())
    for n in range(4):
        runner.control({"do": "step"})
        until(lambda n=n: len(shown(runner)["points"]) == n + 1)
    time.sleep(0.05)
    assert runner.feed.number == 4
    runner.control({"do": "reset"})
    until(lambda: not shown(runner)["points"])
    assert runner.feed.resets == 1
    runner.control({"do": "step"})
    until(lambda: [p["n"] for p in shown(runner)["points"]] == [0])
    runner.control({"do": "play"})
    runner.control({"do": "speed", "value": 8})
    until(lambda: len(shown(runner)["points"]) > 2)
    runner.control({"do": "pause"})
    time.sleep(0.2)  # the batch in hand
    before = runner.feed.number
    time.sleep(0.4)
    assert runner.feed.number == before
    runner.control({"do": "play"})
    until(lambda: runner.feed.number > before)


def test_a_feed_that_waits_shows_one_batch_until_somebody_acts(run, counting):
    feed = counting()
    feed.waits = True
    runner = run(feed, playing=True)
    until(lambda: len(shown(runner)["points"]) == 1)
    time.sleep(0.1)
    assert feed.number == 1
    assert shown(runner)["state"]["waiting"] is True
    runner.control({"do": "play"})
    until(lambda: feed.number > 1)
    assert shown(runner)["state"]["waiting"] is False


def test_a_control_can_start_over_and_a_batch_can_pause(run, counting):
    feed = counting()
    feed.control = lambda command: True
    runner = run(feed)
    runner.control({"do": "step"})
    until(lambda: shown(runner)["points"])
    runner.control({"do": "corrupt"})
    until(lambda: feed.resets == 1)
    feed.next = lambda: Update({"n": 0}, pause="enough")
    runner.control({"do": "play"})
    until(lambda: shown(runner)["state"]["note"] == "enough")
    assert not shown(runner)["state"]["playing"]


def test_commands_to_the_feed_do_not_speed_up_the_run(run, counting):
    runner = run(counting(), playing=True)
    runner.control({"do": "speed", "value": 0.5})
    for _ in range(20):
        runner.control({"do": "corrupt", "severity": 1})
        time.sleep(0.02)
    assert runner.feed.number <= 3
    assert shown(runner)["state"]["commands"] == 20


def test_the_end_of_a_stream_and_an_exception_pause_and_are_shown(run, counting):
    feed = counting(last=1)
    good, feed.next = feed.next, lambda: 1 / 0
    runner = run(feed, playing=True)
    until(lambda: "ZeroDivisionError" in shown(runner)["state"]["note"])
    assert not shown(runner)["state"]["playing"]
    feed.next = good
    runner.control({"do": "play"})
    until(lambda: shown(runner)["points"] and shown(runner)["state"]["note"] == ENDED)
    assert not shown(runner)["state"]["playing"]
    runner.control({"do": "reset"})
    until(lambda: shown(runner)["state"]["note"] == "")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("unknown command 'fly'", {"do": "fly"}),
        ("unknown command", {"do": "order"}),  # not one of this feed's
        ("unknown command", {"do": ["play"]}),
        ("unknown command", {}),
        ("speed is one of", {"do": "speed"}),
        ("speed is one of", {"do": "speed", "value": True}),
        ("speed is one of", {"do": "speed", "value": [1]}),
        ("severity", {"do": "corrupt", "severity": 9}),
    ],
)
def test_an_invalid_command_changes_nothing(run, counting, command, words):
    runner = run(counting())
    before = shown(runner)["state"]
    with pytest.raises(OptionError, match=words):
        runner.control(command)
    assert shown(runner)["state"] == before
    with pytest.raises(OptionError, match="read-only"):
        run(counting(can=())).control(command)
