"""What a run gives a method beyond batches: the stream's length, and clean training samples."""

from dataclasses import replace

import pytest
import torch

import dasp
from dasp.bench.features import Features
from dasp.bench.material import BuiltIn
from dasp.bench.plan import Entry
from dasp.bench.references import find_method, find_model
from dasp.bench.results import plain, read_result
from dasp.bench.runner import run_plan
from dasp.bench.start import source_inputs, start, stream_length
from dasp.bench.store import digest


@pytest.fixture
def asking(plan):
    return replace(plan, methods={name: Entry(name) for name in ("dasp", "sumi", "brimpr")})


def cells(plan, **changes):
    return {(c.label, c.protocol): c for c in replace(plan, **changes).cells()}


@pytest.mark.parametrize(
    ("protocol", "steps", "length"),
    [
        ("per_domain/video", 1, 3),  # 20 samples in batches of 8
        ("continual/video", 1, 6),
        ("interleaved", 1, 6),
        ("interleaved", 2, 12),
        ("clean", 1, 3),
    ],
)
def test_the_length_is_that_of_the_stream_until_the_next_reset(asking, protocol, steps, length):
    corruptions = () if protocol == "clean" else asking.corruptions
    changed = replace(asking, protocols=(protocol,), corruptions=corruptions)
    cell = replace(changed.cells()[1], options={"steps": steps, "stream_length": None})
    assert stream_length(cell, 20) == length


def test_the_length_reaches_the_method_unless_it_was_given(asking):
    features = Features(asking.data.open(), dasp.load_model("toy"), None)
    cell = cells(asking)["sumi", "interleaved"]
    assert start(cell, find_method("sumi"), features).method.stream_length == 6
    given = replace(cell, options=cell.options | {"stream_length": 99})
    assert start(given, find_method("sumi"), features).method.stream_length == 99


def test_source_samples_are_clean_training_samples(asking, place):
    material = asking.data.open()
    features = Features(material, find_model(asking.models[0]), place.open_store())
    inputs = source_inputs(features, 32)
    train = BuiltIn(32, split="train")
    for name, value in inputs.items():
        assert len(value) == 32
        for index in (0, 31):
            expected = train.samples(name, None)[index].inputs[name]
            torch.testing.assert_close(value[index], expected)
    tta = start(cells(asking)["brimpr", "interleaved"], find_method("brimpr"), features)
    twin = dasp.adapt(find_model(asking.models[0]), "brimpr")
    twin.fit([inputs])
    assert torch.equal(tta.method.joint_moments.mean, twin.method.joint_moments.mean)
    assert material.source().identity["split"] == "train"


def test_where_source_samples_come_from_is_part_of_a_result(asking):
    found = cells(asking)
    brimpr, other = found["brimpr", "interleaved"], found["dasp", "interleaved"]
    assert brimpr.source["split"] == "train"
    assert brimpr.data == other.data
    assert brimpr.key != replace(brimpr, source=brimpr.source | {"seed": 1}).key
    settings = plain(other)
    assert settings.pop("source") == {}
    assert other.key == digest(settings)


def test_both_run_through_every_protocol_and_give_the_model_back(asking, place):
    paths = run_plan(asking, place, show=False)
    found = {read_result(p)["cell"]["label"]: read_result(p) for p in paths}
    for name in ("sumi", "brimpr"):
        result = found[name]["result"]
        assert result["seen"] == 40
        assert result["rejections"] == 0
    assert found["brimpr"]["result"]["updates"] == 6
    alone = replace(asking, methods={"brimpr": Entry("brimpr")}, protocols=("interleaved",))
    other = replace(place, results=place.results / "alone")
    (path,) = run_plan(alone, other, show=False)
    again = read_result(place.results / path.name)
    assert read_result(path)["result"] == again["result"]
