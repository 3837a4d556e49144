"""Results belong to the code and the data that made them: what changes a key, and what does not."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import dasp
from dasp.bench.datasets import DataOptions
from dasp.bench.engines import Workspace
from dasp.bench.plan import MethodRow, Plan
from dasp.bench.runner import run_plan

SMALL = Path(__file__).parents[1] / "bench" / "small.py"
MODEL = """
import torch
from small_parts import CavMae, SIZES

class Mine(CavMae):
    answer = 0

    def fuse(self, tokens):
        fused = super().fuse(tokens)
        fused.logits[:, self.answer] += 100
        return fused

def build():
    torch.manual_seed(0)
    return Mine(**SIZES, audio_length=64, image_size=64)

def other():
    model = build()
    model.answer = 7
    return model
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A folder of the user's own code, which one file imports from another."""
    (tmp_path / "small_parts.py").write_text(SMALL.read_text())
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ma", "mb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.py").write_text(MODEL)
    yield tmp_path
    sys.modules.pop("small_parts", None)


@pytest.fixture
def one():
    return Plan(
        data=DataOptions(samples=60),
        methods={"source": MethodRow("source")},
        protocols=("interleaved",),
        corruptions=("fog",),
        batch_sizes=(8,),
    )


def keys(plan):
    return [job.run.key for _, job in plan.jobs()]


def test_models_of_one_name_are_run_each_for_itself(user, one):
    second = user / "mb" / "model.py"
    second.write_text(MODEL.replace("answer = 0", "answer = 1"))
    files = [f"{user}/ma/model.py:build", f"{second}:build", f"{second}:other"]
    workspace = Workspace(user / "results", user / "store", workers=0)
    apart = replace(workspace, results=user / "apart")  # where each is called "model"
    alone = [run_plan(replace(one, models=(file,)), apart, show=False) for file in files]
    counts = [rows["source"][0].counts for rows in alone]
    assert len({str(count.domains) for count in counts}) == 3
    together = run_plan(replace(one, models=tuple(files)), workspace, show=False)["source"]
    assert [result.counts for result in together] == counts
    names = [result.run.model["name"] for result in together]
    assert names == ["ma/model:build", "mb/model:build", "model:other"]
    assert dasp.results(apart.results).model.nunique() == 3


def test_models_are_known_by_their_code_and_what_they_say(user, one):
    file = user / "ma" / "model.py"
    plan = replace(one, models=(f"{file}:build",))
    before = keys(plan)
    assert keys(plan) == before
    assert keys(replace(one, models=(f"{user}/mb/model.py:build",))) == before  # the same code
    assert keys(replace(one, models=(f"{file}:other",))) != before  # the same weights
    file.write_text(MODEL.replace("answer = 0", "answer = 2"))
    assert keys(plan) != before
    file.write_text(MODEL)
    assert keys(plan) == before
    inner = sys.modules["small_parts"].CavMae
    with pytest.MonkeyPatch.context() as patch:  # as if a file that it imports had been edited
        encode = inner.encode
        patch.setattr(
            inner,
            "encode",
            lambda self, inputs: {n: v * 0 for n, v in encode(self, inputs).items()},
        )
        assert keys(plan) != before
