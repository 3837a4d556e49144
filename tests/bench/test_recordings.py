"""Data sets of recordings behind the registry: identity, damage, source data, and a small run."""

import numpy as np
import pytest
import torch

from dasp.bench.datasets import DataOptions
from dasp.bench.engines import Workspace
from dasp.bench.plan import MethodRow, Plan
from dasp.bench.runner import run_plan
from dasp.core.errors import OptionError
from dasp.core.sensors import SENSORS
from dasp.data.inertial import find_segments, people_of
from dasp.models import InertialNet, save_weights
from dasp.streams.domains import Domain


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    """The first segment in the order of a stream, of seven people."""
    root = tmp_path_factory.mktemp("dsa")
    people = (*people_of("train"), *people_of("test"))
    for activity in range(1, 20):
        for person in people:
            (root / f"a{activity:02d}" / person).mkdir(parents=True)
    for segment in find_segments(root, people)[: 19 * len(people)]:
        generator = np.random.default_rng(segment.label)
        values = generator.normal(size=(125, 45)) + generator.normal(size=45)
        np.savetxt(segment.path, values, fmt="%.4f", delimiter=",")
    return root


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    net = InertialNet(channels=dict.fromkeys(SENSORS, 15), widths=(8,), embed_dim=16)
    save_weights(net, tmp_path / "net.safetensors")
    return str(tmp_path / "net.safetensors")


@pytest.mark.parametrize(("name", "modality"), [("dsa", "gyroscope"), ("dsa_units", "left_leg")])
def test_people_and_sensors_are_chosen_by_name(body, name, modality):
    dataset = DataOptions(name, root=body, samples=38).open()
    assert dataset.identity["people"] == "p7+p8"
    assert sorted(dataset.labels()) == sorted(list(range(19)) * 2)
    clean = dataset.samples(modality, None)[3]
    damaged = dataset.samples(modality, Domain(modality, "unit_swapped", 5))[3]
    assert not clean.inputs[modality].equal(damaged.inputs[modality])
    with pytest.raises(OptionError, match=f"unknown sensor of {name}"):
        dataset.samples("video", None)
    one = DataOptions(name, root=body, split="p8", samples=19).open()
    assert {sample.id[:2] for sample in (one.samples(modality, None)[k] for k in range(19))} == {
        "p8"
    }
    assert one.identity != dataset.identity


def test_a_root_is_needed():
    for name in ("grid", "dsa", "dsa_units"):
        with pytest.raises(OptionError, match=r"give --root; `dasp data fetch (grid|dsa)`"):
            DataOptions(name).open()


def test_methods_are_fitted_with_other_people(body):
    dataset = DataOptions("dsa", root=body, samples=19).open()
    source = dataset.source(30)
    assert source.identity["samples"] == 30
    assert {segment.person for segment in source.segments} <= set(people_of("train"))
    own = DataOptions("dsa", root=body, split="p2", samples=19).open().source(500)
    assert "p2" not in {segment.person for segment in own.segments}
    everyone = DataOptions("dsa", root=body, split="train", samples=19).open()
    with pytest.raises(OptionError, match="leaves no training person"):
        everyone.source(8)


def test_a_stream_of_people_runs_and_its_results_name_them(body, model, tmp_path):
    plan = Plan(
        data=DataOptions("dsa", root=body, samples=38),
        models=(model,),
        methods={name: MethodRow(name) for name in ("source", "read", "dasp")},
        protocols=("interleaved/sensors", "missing/gyroscope", "clean", "once/sensors"),
        corruptions=(),
        batch_sizes=(38,),
    )
    workspace = Workspace(results=tmp_path / "results", store=tmp_path / "store", workers=1)
    found = run_plan(plan, workspace, "body", show=False)
    for results in found.values():
        assert [r.run.data["people"] for r in results] == ["p7+p8"] * 4
        assert {r.counts.seen for r in results} == {36 * 38, 38}
