from dataclasses import replace
from pathlib import Path

import pytest

from dasp.bench.material import DataOptions
from dasp.bench.plan import Entry, Plan
from dasp.bench.prepare import Place

SMALL = Path(__file__).with_name("small.py")


@pytest.fixture
def plan():
    """Six short runs: three methods, two protocols."""
    return Plan(
        data=DataOptions(samples=20),
        models=(f"{SMALL}:build",),
        methods={
            "source": Entry("source"),
            "tent": Entry("tent", {"lr": 1e-3}),
            "dasp": Entry("dasp", {"lr": 1e-2, "delta": 0.0}),
        },
        protocols=("continual/video", "interleaved"),
        batch_sizes=(8,),
        corruptions=("contrast", "brightness"),
    )


@pytest.fixture
def one_run(plan):
    return replace(plan, methods={"dasp": plan.methods["dasp"]}, protocols=("interleaved",))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "results", tmp_path / "store", workers=0)
