"""Streams as sensors send them: what a method is given, and what is counted."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from dasp.bench.cell import Count, batches, batches_of
from dasp.bench.features import Features, Part, parts_of
from dasp.bench.plan import Entry
from dasp.bench.references import find_model
from dasp.bench.results import read_result
from dasp.bench.runner import run_plan
from dasp.bench.start import stream_length
from dasp.core.types import Batch, Diagnosis, Outcome
from dasp.data import Sample
from dasp.models import Toy
from dasp.streams.domains import Domain
from dasp.streams.visits import CLEAN, Condition, Visit

FOG, RAIN = Domain("video", "fog", 5), Domain("audio", "rain", 5)
PAIR = Condition((FOG, RAIN))


@pytest.fixture
def features(plan, place):
    return Features(plan.data.open(), find_model(plan.models[0]), place.open_store())


@pytest.fixture
def source(plan):
    return replace(plan, methods={"source": Entry("source")}, corruptions=("fog", "rain"))


def only(features, condition, encoded=False, rows=(3, 1)):
    """The one batch of some rows under a condition."""
    ((_, inputs),) = features.batches([condition], encoded, np.array(rows), len(rows))
    return inputs


def results(plan, place):
    found = [read_result(path) for path in run_plan(plan, place, show=False)]
    return {content["cell"]["protocol"]: content["result"] for content in found}


def test_a_pair_is_both_damages_at_once(features):
    inputs = only(features, PAIR)
    for name, domain in (("video", FOG), ("audio", RAIN)):
        assert torch.equal(inputs[name], only(features, Condition((domain,)))[name])
        assert not torch.equal(inputs[name], only(features, CLEAN)[name])


@pytest.mark.parametrize("modality", ["audio", "video"])
def test_a_missing_modality_is_not_in_the_batch(features, modality):
    inputs = only(features, Condition((FOG, RAIN), missing=(modality,)))
    assert set(inputs) == {"audio", "video"} - {modality}


@pytest.mark.parametrize("modality", ["audio", "video"])
def test_a_constant_sensor_sends_zeros_that_are_encoded_like_any_input(features, modality):
    dead = Condition(constant=(modality,))
    inputs, tokens = only(features, dead), only(features, dead, encoded=True)
    assert inputs[modality].shape == only(features, CLEAN)[modality].shape
    assert not inputs[modality].any()
    with torch.no_grad():
        expected = features.model.encode({modality: inputs[modality]})[modality]
    torch.testing.assert_close(tokens[modality], expected)
    (other,) = {"audio", "video"} - {modality}
    assert torch.equal(tokens[other], only(features, CLEAN, encoded=True)[other])


def test_only_what_a_condition_uses_is_made():
    parts = parts_of([PAIR, Condition((FOG,), missing=("audio",))], ("audio", "video"), True)
    assert parts == {Part("video", FOG, True), Part("audio", RAIN, True)}
    assert parts_of([Condition(constant=("audio",))], ("audio", "video"), True) == {
        Part("audio", None, False),
        Part("video", None, True),
    }


def test_a_mixed_batch_holds_samples_of_several_domains(source, features):
    (cell,) = replace(source, protocols=("mixed",)).cells()
    (visit,) = cell.visits()
    found = list(batches(features, visit, cell, encoded=False))
    numbers = np.concatenate([numbers for numbers, _ in found])
    assert sorted(numbers) == list(range(3 * 20))  # clean, rain and fog, each sample once
    assert {batch.domain for _, batch in found} == {"mixed"}
    chosen, batch = found[0]
    assert len(set(chosen // 20)) == 3
    for place, number in enumerate(chosen):
        own = only(features, visit.conditions[number // 20], rows=(number % 20,))
        assert all(torch.equal(batch.inputs[name][place], own[name][0]) for name in own)
        assert batch.labels[place] == features.labels[number % 20]


def test_source_is_as_right_in_mixed_batches_as_in_pure_ones(source, place):
    found = results(replace(source, protocols=("mixed", "interleaved", "clean")), place)
    pure = {d["name"]: d for p in ("interleaved", "clean") for d in found[p]["domains"]}
    mixed = {d["name"]: d for d in found["mixed"]["domains"]}
    assert list(mixed) == ["clean", "audio/rain/5", "video/fog/5"]
    for name, domain in mixed.items():
        assert (domain["hits"], domain["seen"]) == (pure[name]["hits"], 20)
        assert domain["batches"] == 0  # no batch is of this domain alone
    assert found["mixed"]["batches"]["seen"] == [8] * 7 + [4]
    assert sum(d["right"] for d in mixed.values()) == found["mixed"]["right"]


def test_a_domain_that_recurs_comes_in_another_order(source, features):
    (cell,) = replace(source, protocols=("recurring",)).cells()
    orders = [
        np.concatenate([numbers for numbers, _ in batches(features, visit, cell, encoded=False)])
        for visit in cell.visits()
        if visit.name == "audio/rain/5"
    ]
    assert len(orders) == 20
    assert not any(np.array_equal(*both) for both in pairwise(orders))
    (cell,) = replace(source, protocols=("interleaved",)).cells()
    first = next(batches(features, next(cell.visits()), cell, encoded=False))[0]
    assert np.array_equal(first, orders[0][:8])


@pytest.mark.parametrize(
    ("protocol", "length"),
    [("mixed", 8), ("pairs", 6), ("stretches", 12), ("recurring", 120), ("long", 15_000)],
)
def test_the_length_of_every_stream_is_known_beforehand(source, protocol, length):
    (cell,) = replace(source, protocols=(protocol,)).cells()
    assert batches_of(cell, 20) == length
    assert stream_length(cell, 20) == length  # one step a batch, never reset


def test_every_protocol_runs_to_its_end(plan, place):
    protocols = ("pairs", "dirichlet", "sorted", "stretches", "gradual", "constant/audio")
    quick = replace(plan, methods={"dasp": plan.methods["dasp"]}, corruptions=("fog", "rain"))
    for protocol, result in results(replace(quick, protocols=protocols), place).items():
        stops = result["domains"]
        assert result["seen"] == 20 * len(stops)
        assert result["rejections"] == 0
        assert sum(stop["batches"] for stop in stops) == len(result["batches"]["scores"]["audio"])
        clean = sum(stop["name"] == "clean" for stop in stops)
        assert clean == (len(stops) / 2 if protocol == "stretches" else 0)


def test_a_missing_modality_has_no_score():
    count = Count(samples=2)
    both, one = {"audio": 0.5, "video": 0.25}, {"video": 0.75}
    for condition, scores in ((CLEAN, both), (Condition(missing=("audio",)), one)):
        count.enter(Visit([condition], reset=False))
        outcome = Outcome(torch.eye(2), Diagnosis(scores, {}, frozenset()))
        count.add(np.array([1, 0]), Batch({}, torch.tensor([0, 0])), outcome)
        count.leave()
    result = count.result([])
    assert result["batches"]["scores"] == {"audio": [0.5, None], "video": [0.25, 0.75]}
    assert [domain["name"] for domain in result["domains"]] == ["clean", "audio/missing"]
    assert [domain["hits"] for domain in result["domains"]] == ["40", "40"]


def test_rollbacks_are_kept_only_where_there_are_any():
    found = []
    for reasons in ([None, None], [None, "one class rules"]):
        count = Count(samples=2)
        count.enter(Visit([CLEAN], reset=False))
        for row, reason in enumerate(reasons):
            outcome = Outcome(torch.eye(2)[:1], rollback=reason)
            count.add(np.array([row]), Batch({}, torch.tensor([0])), outcome)
        count.leave()
        found.append(count.result([]))
    without, back = found
    assert back.pop("rollbacks") == [{"batch": 1, "reason": "one class rules"}]
    assert list(back) == list(without)
    assert back == without


class Sensors:
    """A material of three sensors, of which one has no corruptions."""

    identity = {"name": "sensors", "samples": 5}  # noqa: RUF012

    def labels(self):
        return [0, 1, 2, 3, 4]

    def samples(self, modality, domain):
        level = float(domain is not None)
        return [Sample({modality: torch.full((4, 12), level)}, 0, str(i)) for i in range(5)]


@pytest.mark.parametrize("encoded", [False, True])
def test_a_third_modality_goes_along(encoded):
    names = ("audio", "video", "depth")
    features = Features(Sensors(), Toy(modalities=names), None)
    assert tuple(only(features, PAIR, encoded)) == names
    assert set(only(features, Condition((FOG,), missing=("audio",)), encoded)) == {"video", "depth"}
    dead = only(features, Condition((FOG,), constant=("depth",)))
    assert [float(dead[name].mean()) for name in names] == [0, 1, 0]
