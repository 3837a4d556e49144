"""Code blocks of the documentation that claim to run, run."""

import re
from functools import partial
from pathlib import Path

import torch.distributed as dist

import dasp
from dasp.methods.dasp_variants import VARIANTS

ROOT = Path(__file__).parents[1]


def python_blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


def test_the_page_on_own_models():
    names = {}
    for block in python_blocks("docs/own_model.md"):
        exec(block, names)
    assert names["out"].logits.shape == (64, 5)


def test_the_page_on_faster_encoders():
    names = {}
    for block in python_blocks("docs/faster_encoders.md"):
        exec(block, names)
    assert names["tta"].model.faster_encoders == "int8"
    assert isinstance(names["fast"], type(names["model"]))


def test_the_page_on_operation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in python_blocks("docs/operation.md"):
        exec(block, names)
    assert names["done"] == 0
    assert names["tta"].counters["missing"]["audio"] == 1
    assert names["tta"].counters["saves"] == 2
    assert "dasp_batches_total 10" in Path("dasp.prom").read_text()


def test_the_page_on_many_devices(tmp_path, monkeypatch):
    """As the only rank of a group."""
    begin = partial(dist.init_process_group, rank=0, world_size=1)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    monkeypatch.setattr(dist, "init_process_group", partial(begin, store=store))
    names = {}
    try:
        exec(python_blocks("docs/distributed.md")[0], names)
    finally:
        dist.destroy_process_group()
    assert names["out"].logits.shape == (64, 8)
    assert names["tta"].method.group.size == 1


def test_the_page_on_the_robust_variant(batches, toy):
    names = {"dasp": dasp, "model": toy, "clean_batches": batches * 4}
    for block in python_blocks("docs/robust.md"):
        exec(block, names)
    assert names["tta"].method.diagnoser.fitted
    text = (ROOT / "docs/robust.md").read_text()
    for option, value in VARIANTS["robust"].items():
        if value != VARIANTS["released"][option]:
            assert f"| `{option}` |" in text


def test_the_page_on_the_diagnosis(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names = {}
    for block in python_blocks("docs/diagnosis.md"):
        exec(block, names)
    found = names["deviations"](
        names["batch"], names["look"](names["train"].inputs), names["levels"]
    )
    assert found["profile"]["video"] > 10 > found["profile"]["audio"]
    assert "flags-5-batch64-sounding_shapes_2" in capsys.readouterr().out


def test_the_page_on_adding_a_method():
    names = {}
    for block in python_blocks("docs/add_a_method.md"):
        exec(block, names)
    assert names["tta"].trainable.count > 0


def test_the_page_on_data():
    from dasp.corruptions.base import registry

    exec("\n".join(python_blocks("docs/data.md")), {})
    assert registry("video")._entries.pop("half_dark").family == "mine"


def test_the_five_lines_of_the_readme(batches, toy, capsys):
    names = {"model": toy, "stream": batches}
    exec(python_blocks("README.md")[0], names)
    assert names["out"].diagnosis is not None
    assert capsys.readouterr().out


def test_every_method_and_file_stands_in_the_readme():
    import dasp

    text = (ROOT / "README.md").read_text()
    for name in (
        "source",
        "tent",
        "eata",
        "sar",
        "read",
        "abpem",
        "sumi",
        "tsa",
        "pta",
        "brimpr",
        "dasp",
    ):
        assert f"| `{name}` |" in text
        assert name in dasp.METHODS
    for path in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / path).exists(), path
