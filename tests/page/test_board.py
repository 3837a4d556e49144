from hypothesis import given
from hypothesis import strategies as st

from dasp.page.board import SOUNDS, Board, Mark
from dasp.page.feed import Update

DEEDS = st.lists(st.sampled_from(["publish", "clear", "back", "look", "state"]), max_size=60)


class Browser:
    """Keeps what the page's script keeps."""

    def __init__(self):
        self.mark, self.points, self.state, self.samples = Mark(), [], None, None

    def look(self, board):
        news, self.mark = board.since(self.mark)
        if news is None:
            return
        self.points = news["points"] if news["fresh"] else self.points + news["points"]
        self.state = news.get("state", self.state)
        self.samples = news.get("samples", self.samples)


@given(deeds=DEEDS)
def test_whoever_looks_at_whatever_time_ends_with_the_same(deeds):
    board, often, number = Board(history=1000), Browser(), 0
    for place, deed in enumerate(deeds):
        if deed == "publish":
            board.publish(Update({"n": number}, [{"class": place}]))
            number += 1
        elif deed == "clear":
            board.clear()
            number = 0
        elif deed == "back":
            number //= 2
            board.publish(Update({"n": number}, keep=number))
            number += 1
        elif deed == "state":
            board.set_state({"place": place})
        else:
            often.look(board)
    late = Browser()
    for browser in (often, late):
        browser.look(board)
        assert [p["n"] for p in browser.points] == list(range(number))
        assert board.since(browser.mark) == (None, browser.mark)
    assert (often.state, often.samples) == (late.state, late.samples)


def test_a_browser_that_never_looks_costs_nothing_more_with_time():
    board = Board(history=50)
    told = []
    board.watch(lambda: told.append(1))
    slow = Browser()
    slow.look(board)
    for n in range(500):
        board.publish(Update({"n": n}, [{"class": n}], {0: bytes(10)}))
    slow.look(board)
    assert [p["n"] for p in slow.points] == list(range(450, 500))
    assert slow.samples["list"] == [{"class": 499}]
    kept = [n for n in range(500) if board.sound(f"1-{n}", 0) or board.sound(f"0-{n}", 0)]
    assert kept == list(range(500 - SOUNDS, 500))
    assert len(told) == 500


def test_sounds_are_found_by_batch_and_place():
    board = Board()
    board.publish(Update({"n": 0}, [{"class": 1}], {2: b"RIFF"}))
    news, _ = board.since(Mark())
    assert board.sound(news["samples"]["key"], 2) == b"RIFF"
    assert board.sound(news["samples"]["key"], 3) is None
    assert board.sound("7-7", 0) is None
