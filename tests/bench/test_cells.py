"""One run: what a method is given, batch by batch, and what is counted."""

import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import dasp
from dasp.bench.cells import (
    _call,
    _source_inputs,
    batches_of,
    count,
    needed_features,
    run_job,
    start,
    stream_length,
)
from dasp.bench.datasets import BuiltIn, DataOptions
from dasp.bench.features import AHEAD, Features, FeatureSpec
from dasp.bench.plan import MethodRow
from dasp.bench.references import find_model
from dasp.bench.runner import run_plan
from dasp.core.types import Diagnosis, Outcome
from dasp.streams.domains import Domain
from dasp.streams.protocols import CLEAN, Condition, Visit

SMALL = Path(__file__).with_name("small.py")


@pytest.fixture
def source(plan):
    return replace(plan, methods={"source": MethodRow("source")}, corruptions=("fog", "rain"))


def jobs(plan, **changes):
    return [job for _, job in replace(plan, **changes).jobs()]


def only_job(plan, **changes):
    (job,) = jobs(plan, **changes)
    return job


def by_protocol(plan, workspace):
    (results,) = run_plan(plan, workspace, show=False).values()
    return {result.run.protocol: result.counts for result in results}


def test_every_run_is_counted_globally(plan, workspace):
    for label, results in run_plan(plan, workspace, show=False).items():
        assert len(results) == 2
        for result in results:
            counts = result.counts
            counts.check()
            assert counts.seen == 40
            assert [domain.batches for domain in counts.domains] == [3, 3]
            assert counts.batches.seen == [8, 8, 4] * 2
            assert (counts.batches.scores is not None) == (label == "dasp")
            assert counts.updates == (0 if label == "source" else 6)
            assert result.measured["versions"]["dasp"] == dasp.__version__
            assert result.measured["machine"]["device"] == "cpu"
            assert result.measured["seconds"]["adapt"] > 0


def test_source_is_what_the_model_says_in_the_order_of_the_data(source, features, workspace):
    both = replace(source, protocols=("interleaved",), seeds=(0, 1))
    one, two = run_plan(both, workspace, show=False)["source"]
    assert one.counts.batches.right != two.counts.batches.right  # the seed decides the order
    visits = both.jobs()[0][1].visits()
    for first, second, visit in zip(one.counts.domains, two.counts.domains, visits, strict=True):
        ((_, inputs),) = features.batches(visit.conditions, False, np.arange(20), 20)
        with torch.no_grad():
            right = features.model(inputs).argmax(1) == features.labels
        assert first.sample_hits(20).tolist() == right.tolist()
        assert second.hits == first.hits


def test_evaluating_clean_samples_changes_nothing_else(plan, workspace):
    plan = replace(plan, protocols=("interleaved",))
    without = run_plan(plan, workspace, show=False)
    for label, (result,) in run_plan(replace(plan, clean_after=12), workspace, show=False).items():
        (plain,) = without[label]
        assert result.counts.domains == plain.counts.domains
        assert plain.counts.clean_after is None
        clean = dict(result.counts.clean_after)
        assert clean.pop("seen") == 12
        assert set(clean) == {"joint", "audio", "video"}
        for right in clean.values():
            assert len(right) == 3
            assert label != "source" or len(set(right)) == 1


def test_source_is_as_right_in_mixed_batches_as_in_pure_ones(source, workspace):
    found = by_protocol(replace(source, protocols=("mixed", "interleaved", "clean")), workspace)
    pure = {d.name: d.hits for name in ("clean", "interleaved") for d in found[name].domains}
    mixed = found["mixed"]
    assert [(d.name, d.hits) for d in mixed.domains] == list(pure.items())
    assert {domain.batches for domain in mixed.domains} == {0}  # none is of one domain alone
    assert mixed.batches.seen == [8] * 7 + [4]


@pytest.mark.parametrize("protocol", ["once", "once_mixed"])
def test_source_is_as_right_on_samples_that_come_once(source, workspace, protocol):
    repeated = {"once": "interleaved", "once_mixed": "mixed"}[protocol]
    found = by_protocol(replace(source, protocols=(protocol, repeated)), workspace)
    counts, all_of_them = found[protocol], found[repeated].domains
    counts.check()
    assert counts.seen == 20
    assert [d.name for d in counts.domains] == [d.name for d in all_of_them]
    visits = list(only_job(source, protocols=(protocol,)).visits())
    places = np.concatenate([visit.numbers(20, 0) // 20 + n for n, visit in enumerate(visits)])
    rows = np.concatenate([visit.numbers(20, 0) % 20 for visit in visits])
    for place, (domain, whole) in enumerate(zip(counts.domains, all_of_them, strict=True)):
        own = np.isin(np.arange(20), rows[places == place])
        assert domain.seen == own.sum()
        assert np.array_equal(domain.sample_hits(20), whole.sample_hits(20) & own)


def test_samples_that_come_once_are_dealt_alike_to_every_method_and_batch_size(plan, features):
    def dealing(job):
        batches = [[n for n, _ in batches_of(features, v, job, True)] for v in job.visits()]
        return [sorted(np.concatenate(own).tolist()) for own in batches]

    for protocol in ("once", "once_mixed"):
        first, *others = map(dealing, jobs(plan, protocols=(protocol,), batch_sizes=(1, 8)))
        assert others == [first] * 5


def test_a_domain_that_recurs_comes_in_another_order(source, features):
    job = only_job(source, protocols=("recurring",))
    orders = [
        np.concatenate([numbers for numbers, _ in batches_of(features, visit, job, encoded=False)])
        for visit in job.visits()
        if visit.name == "audio/rain/5"
    ]
    assert len(orders) == 20
    assert not any(np.array_equal(*both) for both in pairwise(orders))
    job = only_job(source, protocols=("interleaved",))
    first = next(batches_of(features, next(job.visits()), job, encoded=False))[0]
    assert np.array_equal(first, orders[0][:8])


@pytest.mark.parametrize(
    ("protocol", "batches", "length"),
    [
        ("per_domain/video", 6, 3),  # 20 samples in batches of 8, two domains
        ("interleaved", 6, 6),
        ("clean", 3, 3),
        ("mixed", 8, 8),
        ("once", 4, 4),  # ten samples each
        ("once_mixed", 3, 3),
        ("stretches", 12, 12),
        ("recurring", 120, 120),
        ("long", 15_000, 15_000),
    ],
)
def test_the_length_of_every_stream_is_known_beforehand(plan, protocol, batches, length):
    kept = () if protocol == "clean" else plan.corruptions
    row = {"sumi": MethodRow("sumi", {"steps": 2})}
    job = only_job(plan, methods=row, protocols=(protocol,), corruptions=kept)
    assert sum(visit.batches(20, 8) for visit in job.visits()) == batches
    assert stream_length(job) == 2 * length  # steps until the next reset


def test_every_protocol_runs_to_its_end(one_run, workspace):
    protocols = ("pairs", "dirichlet", "sorted", "stretches", "gradual", "constant/audio")
    quick = replace(one_run, corruptions=("fog", "rain"), protocols=protocols)
    quick = replace(quick, data=DataOptions(samples=12))
    for protocol, counts in by_protocol(quick, workspace).items():
        stops = counts.domains
        assert counts.seen == 12 * len(stops)
        assert counts.rejections == 0
        assert sum(stop.batches for stop in stops) == len(counts.batches.scores["audio"])
        clean = sum(stop.name == "clean" for stop in stops)
        assert clean == (len(stops) / 2 if protocol == "stretches" else 0)


@pytest.mark.parametrize("modality", ["audio", "video"])
def test_runs_go_on_without_a_modality(plan, workspace, modality):
    """With inputs, tokens and a diagnosis; the contract check tries every method."""
    stream = replace(
        plan,
        data=DataOptions(samples=8),
        protocols=(f"missing/{modality}",),
        corruptions=("fog", "rain", "wind"),
    )
    silent = {"audio": "video/fog/5+audio/missing", "video": "video/missing"}[modality]
    for (result,) in run_plan(stream, workspace, show=False).values():
        counts, scores = result.counts, result.counts.batches.scores
        names = [domain.name for domain in counts.domains]
        assert names == ["audio/rain/5", silent, "audio/wind/5"]
        assert (counts.seen, counts.rejections) == (24, 0)
        if scores is not None:
            assert [score is None for score in scores[modality]] == [False, True, False]
            (other,) = set(scores) - {modality}
            assert None not in scores[other]


def test_three_sensors_take_turns(plan, workspace):
    depth = ["depth/dropout/5", "depth/fog/5"]
    streams = {"per_domain/depth": depth, "interleaved/depth": [*depth, "video/fog/5"]}
    three = replace(plan, models=(f"{SMALL}:build_three",), corruptions=("dropout", "fog"))
    three = replace(three, protocols=tuple(streams), clean_after=8)
    for label, results in run_plan(three, workspace, show=False).items():
        for result in results:
            counts = result.counts
            assert [domain.name for domain in counts.domains] == streams[result.run.protocol]
            if label == "dasp":
                assert list(counts.batches.scores) == ["audio", "video", "depth"]
            if result.run.clean_after:
                assert set(counts.clean_after) == {"seen", "joint", "audio", "video", "depth"}


def counted(*outcomes):
    """Count two samples under each (condition, outcome), of which the second is right."""
    batch = np.array([1, 0]), np.array([False, True])
    stops = [(Visit([condition], False), [(*batch, outcome)]) for condition, outcome in outcomes]
    counts = count(stops, samples=2)
    counts.check()
    return counts


def test_scores_hits_rejections_and_rollbacks_are_counted():
    logits = torch.eye(2)
    both = Outcome(logits, Diagnosis({"audio": 0.5, "video": 0.25}, {}, frozenset()))
    one = Outcome(logits, Diagnosis({"video": 0.75}, {}, frozenset({"video"})))
    counts = counted((CLEAN, both), (Condition(missing=("audio",)), one))
    assert counts.batches.scores == {"audio": [0.5, None], "video": [0.25, 0.75]}
    assert counts.batches.biased == [[], ["video"]]
    assert [domain.name for domain in counts.domains] == ["clean", "audio/missing"]
    assert [domain.hits for domain in counts.domains] == ["80", "80"]
    back = Outcome(logits, rollback="one class rules")
    refused = Outcome(logits, rejected="NaN")
    counts = counted((CLEAN, both), (CLEAN, back), (CLEAN, refused))
    assert counts.rollbacks == [{"batch": 1, "reason": "one class rules"}]
    assert (counts.rejections, counts.batches.rejected[2]) == (1, "NaN")
    assert counts.batches.scores is None


def test_a_method_is_given_the_length_of_the_stream_unless_it_was_set(plan, features):
    rows = {"auto": MethodRow("sumi"), "set": MethodRow("sumi", {"stream_length": 99})}
    found = jobs(plan, methods=rows, protocols=("clean",), corruptions=())
    assert [start(job, features).method.stream_length for job in found] == [3, 99]


def test_a_method_is_fitted_with_clean_training_samples(plan, features):
    inputs = _source_inputs(features, 32)
    train = BuiltIn(32, split="train")
    for name, value in inputs.items():
        assert len(value) == 32
        for index in (0, 31):
            torch.testing.assert_close(value[index], train.samples(name, None)[index].inputs[name])
    rows = {"few": MethodRow("brimpr"), "many": MethodRow("brimpr", fit=48)}
    few, many = jobs(plan, methods=rows, protocols=("interleaved",))
    assert few.run.source == train.identity
    assert many.run.source["samples"] == 48
    twin = dasp.adapt(find_model(plan.models[0]), "brimpr")
    twin.fit([inputs])
    found = [start(job, features).method.joint_moments.mean for job in (few, many)]
    assert torch.equal(found[0], twin.method.joint_moments.mean)
    assert not torch.equal(*found)


def test_a_run_begins_from_the_source_model_whatever_ran_before(plan, features, monkeypatch):
    rows = {name: MethodRow(name, {"lr": 0.1}) for name in ("sumi", "brimpr", "tent")}
    every = jobs(plan, methods=rows, protocols=("interleaved",))
    fresh = [run_job(job, Features(features.dataset, find_model(job.model), None)) for job in every]
    weights = copy.deepcopy(features.model.state_dict())

    def stop(*given):
        _call(*given)
        raise KeyboardInterrupt

    for job, expected in zip(every, fresh, strict=True):
        with monkeypatch.context() as patched:
            patched.setattr("dasp.bench.cells._call", stop)
            with pytest.raises(KeyboardInterrupt):  # also after one that was stopped
                run_job(job, features)
        assert all(torch.equal(v, weights[n]) for n, v in features.model.state_dict().items())
        assert run_job(job, features).counts == expected.counts


def test_gathering_ahead_changes_no_bit(plan, features):
    assert features.ahead == AHEAD
    for job in jobs(plan, protocols=("mixed",), clean_after=5):
        features.ahead = AHEAD
        ahead = run_job(job, features).counts
        features.ahead = 0
        assert run_job(job, features).counts == ahead
    assert Features(features.dataset, features.model, None).ahead == 0


@pytest.mark.parametrize("tokens", ["float32", "float16"])
def test_only_the_arrays_that_a_job_reads_are_needed(one_run, tokens):
    def needed(protocol, method="dasp"):
        fogged = replace(one_run, corruptions=("fog", "rain"), tokens=tokens)
        job = only_job(fogged, methods={method: MethodRow(method)}, protocols=(protocol,))
        return set(needed_features(job, find_model(job.model)))

    fog, rain = Domain("video", "fog", 5), Domain("audio", "rain", 5)
    audio, clean_audio = (FeatureSpec("audio", domain, True, tokens) for domain in (rain, None))
    video, clean_video = (FeatureSpec("video", domain, True, tokens) for domain in (fog, None))
    assert needed("pairs") >= {video, audio}
    assert needed("interleaved") == {audio, clean_video, clean_audio, video}
    assert needed("missing/audio") == {audio, clean_video, video}
    raw = FeatureSpec("audio", None, False)  # of a constant, the shape
    assert needed("constant/audio") == {audio, clean_video, video, raw}
    assert raw in needed("interleaved", "tent")  # which tunes the encoder: no precision
    assert needed("interleaved", "triage") == needed("interleaved")
