"""What a visitor sees of `dasp monitor`: a log of a process that runs elsewhere."""

import dasp
from dasp.models.toy import Toy
from dasp.page.follow import LogFeed
from dasp.page.server import Page
from dasp.streams.synthetic import SyntheticWorld


def test_what_was_refused_stays_in_sight(visit, tmp_path):
    log = tmp_path / "events.jsonl"
    tta = dasp.adapt(Toy(seed=1), "dasp", log=log)
    clean, broken, after = SyntheticWorld().stream(["clean"], batches=3, size=32)
    broken.inputs["audio"][0] = float("nan")
    for batch in (clean, broken, after):
        tta(batch.inputs)
    with Page(LogFeed(log), port=0) as page:
        tab = visit(page.url)
        tab.until("document.body.dataset.batches === '3'")
        assert tab.inner_text("#note").startswith("Batch 1: ")
        assert tab.inner_text("#place").startswith("batch 2, at ")
        assert tab.is_hidden("#run")
