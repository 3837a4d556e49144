"""What a visitor sees of `dasp monitor`: a log of a process that runs elsewhere."""

import dasp
from dasp.models.toy import Toy
from dasp.page.follow import LogFeed
from dasp.page.server import Page
from dasp.streams.synthetic import SyntheticWorld

NOTE = "document.getElementById('note').textContent"


def test_what_was_refused_stays_in_sight_and_odd_lines_are_counted(visit, tmp_path, photograph):
    log = tmp_path / "events.jsonl"
    tta = dasp.adapt(Toy(seed=1), "dasp", log=log)
    clean, broken, after, last = SyntheticWorld().stream(["clean"], batches=4, size=32)
    broken.inputs["audio"][0] = float("nan")
    for batch in (clean, broken, after):
        tta(batch.inputs)
    with Page(LogFeed(log), port=0) as page:
        tab = visit(page.url)
        tab.until("document.body.dataset.batches === '3'")
        assert tab.inner_text("#note").startswith("Batch 1: ")
        assert tab.inner_text("#place").startswith("batch 2, at ")
        assert tab.is_hidden("#run")
        with log.open("ab") as file:
            file.write(b'no json\n\xff\n{"event": "batch", "batch": "<img src=x>"}\n')
        tab.until(f"{NOTE}.startsWith('3 odd lines of the log skipped')")
        assert tab.is_visible("#note")
        tta(last.inputs)
        tab.until("document.body.dataset.batches === '4'")  # it goes on
        assert tab.inner_text("#place").startswith("batch 3, at ")
        photograph(tab, "monitor-odd-lines")
