"""The bars: rows of the running cells, and what their time goes by on."""

import queue

from dasp.bench.progress import ROWS, Bars


def described(bars):
    return [task.description for task in bars._progress.tasks]


def test_what_time_goes_by_on_is_shown(capsys):
    news = queue.Queue()
    with Bars(show=True) as bars:
        bars.phase("corrupt", [{"decode": 1.0, "corrupt": 2.0}, None, {"corrupt": 1.0}], 3)
        with bars.listening(news, 4, 1, 3):
            news.put(("interleaved dasp", 1, {"load": 3.0, "adapt": 97.0}))
            news.put(("interleaved tent", 2, {"load": 0.0, "encode": 50.0, "adapt": 50.0}))
    shown = described(bars)
    assert shown[0] == "corrupt  decode 25% · corrupt 75%"
    assert shown[1] == "adapt (1 of 3 cells were done)  load 2% · adapt 74% · encode 25%"
    assert len(shown) == 2  # the rows of the cells are taken away
    assert "3/4" in capsys.readouterr().err


def test_few_rows_are_shown_at_once():
    news = queue.Queue()
    seen = []
    with Bars(show=False) as bars, bars.listening(news, 100, 0, 10):
        for number in range(2 * ROWS):
            news.put((f"cell {number}", 1, {"adapt": 1.0}))
        while not news.empty():
            seen.append(len(bars._progress.tasks))
    assert max(seen, default=0) <= 1 + ROWS
    assert described(bars) == ["adapt (10 cells)  adapt 100%"]
