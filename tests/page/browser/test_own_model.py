"""What a user sees of `dasp.page.serve`, and what happens to a sample that is dropped there."""

import numpy as np
import torch

import dasp
from dasp.models.toy import Toy
from dasp.page import serve


def test_a_dropped_sample_is_predicted_with_and_without_adaptation(visit, tmp_path, photograph):
    generator = torch.Generator().manual_seed(0)
    names = ("audio", "video")
    stream = [{n: torch.randn(16, 6, 12, generator=generator) for n in names} for _ in range(3)]
    good, wrong = tmp_path / "mine.npz", tmp_path / "mine.txt"
    np.savez(good, **{name: value[0].numpy() for name, value in stream[0].items()})
    wrong.write_text("not a sample")
    tta = dasp.adapt(Toy(seed=1), "dasp")
    with serve(
        tta, stream, classes=[f"thing {i}" for i in range(9)], browser=False, wait=False
    ) as p:
        tab = visit(p.url)
        tab.until("document.body.dataset.batches === '3'")
        assert tab.is_visible("#dropped")
        assert tab.is_hidden("#controls")
        tab.set_input_files("#files", good)
        tab.wait_for_selector("#answer table")
        said = tab.inner_text("#answer")
        assert "without adaptation" in said
        assert "Dasp" in said
        assert "thing" in said
        photograph(tab, "own-model")
        tab.set_input_files("#files", wrong)
        tab.wait_for_selector("#answer .warn")
        assert "read=" in tab.inner_text("#answer")
        tab.expected()  # the browser writes the refused request to its console
    assert tta.counters["batches"] == 3
