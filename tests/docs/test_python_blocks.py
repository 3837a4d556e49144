"""Every Python block of every page runs, in the order of the page.

A block that cannot (it needs data or several machines) has `<!-- not run: why -->` before it and is
compiled only. What a page takes for granted stands in `given`.
"""

import ast
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

import dasp


@pytest.fixture
def given(page, batches, toy):
    known = {"model": toy, "stream": batches, "inputs": batches[0], "clean_batches": batches * 4}
    if page.stem == "data":
        image, wave = np.full((64, 64, 3), 128, np.uint8), np.zeros(16_000, np.float32)
        return {"image": image, "wave": wave}
    return known | {"dasp": dasp} if page.stem == "triage" else {}


@pytest.fixture
def one_rank(tmp_path, monkeypatch):
    """Let a page that begins a process group be its only rank."""
    begin = partial(dist.init_process_group, rank=0, world_size=1)
    monkeypatch.setattr(
        dist,
        "init_process_group",
        lambda backend: begin(backend, store=dist.FileStore(str(tmp_path / "ranks"), 1)),
    )
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def own_names():
    """Take back what pages register."""
    from dasp.corruptions.base import registry

    entries = [dasp.METHODS, registry("video")]
    before = [dict(names) for names in entries]
    yield
    for names, old in zip(entries, before, strict=True):
        names.clear()
        names.update(old)


def run(page, page_blocks, names):
    """Run a page's blocks on `names`; a traceback names the page and its line."""
    for block in page_blocks:
        if block.language == "python":
            code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
            if block.runs:
                exec(code, names)


@pytest.mark.usefixtures("own_names", "one_rank")
def test_the_page_runs(page, page_blocks, given, root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("studies", "results"):  # pages read from them
        (tmp_path / folder).symlink_to(root / folder)
    names = dict(given, __name__="page")
    run(page, page_blocks, names)
    assert LEAVES.get(page.stem, bool)(names)
    said = capsys.readouterr().out
    assert all(words in said for words in SAYS.get(page.stem, ()))


def works(names):
    counters = names["tta"].counters
    assert (names["done"], counters["missing"]["audio"], counters["saves"]) == (0, 1, 2)
    return "dasp_batches_total 10" in Path("dasp.prom").read_text()


def points_at_video(names):
    clean = names["look"](names["train"].inputs)
    found = names["deviations"](names["batch"], clean, names["levels"])["profile"]
    return found["video"] > 10 > found["audio"]


LEAVES = {
    "adaptation": lambda names: not names["down"].weight.any(),
    "add_a_method": lambda names: names["tta"].trainable.count > 0,
    "data": lambda names: names["half_dark"] is not None,
    "diagnosis": points_at_video,
    "distributed": lambda names: names["tta"].method.group.size == 1,
    "faster_encoders": lambda names: names["tta"].model.faster_encoders == "int8",
    "operation": works,
    "own_model": lambda names: names["out"].logits.shape == (64, 5),
    "page": lambda names: names["page"].url.startswith("http://127.0.0.1:"),
    "triage": lambda names: names["tta"].method.fitted,
    "tutorial": lambda names: Path("learned.safetensors").stat().st_size > 0,
}
SAYS = {
    "README": ["source: 58.", "dasp: 7", "triage: 7"],
    "diagnosis": ["sounding_shapes_2"],
    "methods": [*dasp.METHODS],
    "tutorial": ["biased: none learned: False", "biased: {'audio'} learned: True",
                 "the same answer: True"],
}  # fmt: skip


def test_options_on_the_pages_are_those_of_the_code(root):
    theirs = dasp.methods.hyperparameters(dasp.METHODS["dasp"])
    text = (root / "docs/triage.md").read_text()
    for option in dasp.methods.hyperparameters(dasp.METHODS["triage"]):
        assert option in theirs or f"`{option}" in text
    text = (root / "docs/methods.md").read_text()
    table = text.split("| method | its own, with defaults |")[1].split("\n\n")[0]
    rows = {row.split("|")[1].strip(" `"): row for row in table.strip().splitlines()[1:]}
    for name, row in rows.items():
        signature = dasp.methods.hyperparameters(dasp.METHODS[name])
        for word in row.split("`")[3::2]:
            option, _, default = word.partition("=")
            assert option in signature, f"{name}: {option}"
            if default:
                assert signature[option].default == ast.literal_eval(default), f"{name}: {option}"
