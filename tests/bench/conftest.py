import json
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dasp.bench.datasets import DataOptions
from dasp.bench.engines import Workspace
from dasp.bench.features import Features
from dasp.bench.plan import MethodRow, Plan
from dasp.bench.references import find_model

SMALL = Path(__file__).with_name("small.py")


@pytest.fixture
def plan():
    """Six short runs: three methods, two protocols."""
    return Plan(
        data=DataOptions(samples=20),
        models=(f"{SMALL}:build",),
        methods={
            "source": MethodRow("source"),
            "tent": MethodRow("tent", {"lr": 1e-3}),
            "dasp": MethodRow("dasp", {"lr": 1e-2, "delta": 0.0}),
        },
        protocols=("continual/video", "interleaved"),
        batch_sizes=(8,),
        corruptions=("contrast", "brightness"),
    )


@pytest.fixture
def one_run(plan):
    return replace(plan, methods={"dasp": plan.methods["dasp"]}, protocols=("interleaved",))


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path / "results", tmp_path / "store", workers=0)


@pytest.fixture
def elsewhere(workspace, tmp_path):
    """Another workspace, for a run to compare with."""
    return replace(workspace, results=tmp_path / "other", store=tmp_path / "other_store")


@pytest.fixture
def features(plan, workspace):
    return Features(plan.data.open(), find_model(plan.models[0]), workspace.open_store())


@pytest.fixture
def counted():
    """Give what was counted in each run, by its key, of results by row."""

    def read(rows):
        return {r.run.key: json.dumps(asdict(r)["counts"]) for rs in rows.values() for r in rs}

    return read


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "watched"
    path.mkdir()
    return path


@pytest.fixture
def watched(plan, folder):
    """Four runs of a method that can be watched and held."""
    row = {"watched": MethodRow(f"{SMALL}:Watched", {"folder": str(folder), "lr": 1e-3})}
    return replace(plan, methods=row, protocols=("continual/video",), seeds=(0, 1, 2, 3))


@pytest.fixture
def begun(folder):
    """Give (seed, process, node) of each time that a watched run has begun, the first first."""

    def read():
        names = sorted(path.name.split("-") for path in folder.glob("begun-*"))
        return [(int(seed), int(process), node) for _, _, seed, process, node in names]

    return read


@pytest.fixture
def wait_until():
    """Wait until something is true; an error instead of a hang."""

    def wait(true):
        end = time.monotonic() + 120
        while not true():
            assert time.monotonic() < end
            time.sleep(0.02)

    return wait


@pytest.fixture
def meanwhile():
    """Act in a thread while the block goes on in this one."""

    @contextmanager
    def act(function):
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        yield
        thread.join()

    return act
