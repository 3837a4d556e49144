"""Every Python block of every page runs, in the order of the page.

A block that cannot (it needs data or several machines) has `<!-- not run: why -->` before it and is
compiled only. What a page takes for granted stands in `given`.
"""

import ast
import runpy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import dasp


@pytest.fixture
def given(page, batches, toy):
    known = {"model": toy, "stream": batches, "inputs": batches[0], "clean_batches": batches * 4}
    if page.stem == "data":
        image, wave = np.full((64, 64, 3), 128, np.uint8), np.zeros(16_000, np.float32)
        return {"image": image, "wave": wave}
    if page.stem == "any_model":
        return examples()
    return known | {"dasp": dasp} if page.stem == "triage" else {}


def examples():
    """Return the models of examples/ and inputs for each, as the page calls them."""
    folder = Path(__file__).parents[2] / "examples"
    kinds = ("cnn_batchnorm", "existing_model", "four_sensors", "dual_encoder", "hugging_face")
    cnn, late, four, dual, pair = (runpy.run_path(str(folder / f"{kind}.py")) for kind in kinds)
    trunk = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU())
    return {
        "cnn": cnn["TwoCnns"]().eval(),
        "cnn_inputs": {"spectrogram": drawn(1, 8, 12), "picture": drawn(3, 8, 8)},
        "late": late["LateFusion"]().eval(),
        "late_inputs": {"audio": drawn(1, 64), "video": drawn(1, 8, 8)},
        "sensors": four["Activity"]().eval(),
        "sensor_inputs": {name: drawn(50, size) for name, size in four["SIZES"].items()},
        "dual": dual["Dual"]().eval(),
        "dual_inputs": {"image": drawn(3, 32, 32), "audio": drawn(20, 32)},
        "pair": pair["build"](),
        "pair_inputs": {"audio": drawn(96, 32), "video": drawn(3, 32, 32)},
        "classifier": nn.Sequential(trunk, nn.Flatten(), nn.Linear(72, 5)).eval(),
        "images": drawn(3, 8, 8),
    }


def drawn(*shape, size=8):
    return torch.randn(size, *shape, generator=torch.Generator().manual_seed(0))


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
    "any_model": lambda names: names["out"].logits.shape == (8, 5) and names["out"].updated,
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


def test_each_kind_of_model_takes_at_most_five_lines(root, collect):
    parts = [ast.parse(b.code).body for b in collect(root / "docs/any_model.md") if b.language]
    assert len(parts) == 7
    assert all(len(statements) <= 5 for statements in parts)


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
