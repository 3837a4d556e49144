"""What source models show under shift: measured rightly, once, and resumed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dasp.bench.features import Features, Part
from dasp.bench.indicator_measure import (
    INDICATORS,
    Measure,
    named,
    noise_floor,
    whole_batches,
)
from dasp.bench.indicators import FORMAT, domains_of, items_of, run_indicators
from dasp.bench.kinds import files_of, run_any
from dasp.bench.plan import Entry
from dasp.bench.plan_files import load_plan
from dasp.bench.references import find_model
from dasp.bench.results import read_result
from dasp.bench.runner import run_plan
from dasp.core.errors import DataError, OptionError
from dasp.core.seeding import numpy_generator
from dasp.methods.redundancy import paper_redundancy, released_redundancy
from dasp.streams import Domain


@pytest.fixture
def views(plan):
    return replace(plan, corruptions=("contrast", "rain"), severities=(1, 5), batch_sizes=(8, 16))


def contents(paths):
    return {path.name: read_result(path, FORMAT)["result"] for path in paths}


def test_a_file_a_severity_and_batch_size(views, place):
    paths = run_indicators(views, place, show=False)
    cells = [read_result(path, FORMAT)["cell"] for path in paths]
    assert [(c["severity"], c["batch_size"]) for c in cells] == [(1, 8), (1, 16), (5, 8), (5, 16)]
    assert len(set(paths)) == 4
    for path, cell in zip(paths, cells, strict=True):
        domains = read_result(path, FORMAT)["result"]["domains"]
        severity = cell["severity"]
        assert [d["name"] for d in domains] == [
            "clean",
            f"audio/rain/{severity}",
            f"video/contrast/{severity}",
        ]
        assert [d["family"] for d in domains] == [None, "weather", "digital"]
        assert {d["batches"] for d in domains} == {20 // cell["batch_size"]}


def test_the_figures_are_those_of_the_model(views, place):
    paths = run_indicators(replace(views, severities=(5,), batch_sizes=(8,)), place, show=False)
    (result,) = contents(paths).values()
    seen = result["domains"][2]
    domain = Domain("video", "contrast", 5)
    model = find_model(views.models[0])
    features = Features(views.data.open(), model, None)
    tokens = {m: torch.from_numpy(features.get(Part(m, domain, True))) for m in model.modalities}
    with torch.no_grad():
        fused = {name: model.fuse({name: value}) for name, value in tokens.items()}
        joint = model.fuse(tokens).logits
    assert seen["joint"] == int((joint.argmax(1) == features.labels).sum())
    order = numpy_generator(0, "order", str(domain)).permutation(20)
    rows = [torch.from_numpy(order[:8]), torch.from_numpy(order[8:16])]
    released = [released_redundancy({n: f.embedding[r] for n, f in fused.items()}) for r in rows]
    for name, found in fused.items():
        p = found.logits.softmax(1)
        sight = seen["modalities"][name]
        assert sight["right"] == int((p.argmax(1) == features.labels).sum())
        used = torch.cat(rows)
        by_hand = -(p * p.log()).sum(1)[used].mean()
        assert sight["entropy"]["mean"] == pytest.approx(float(by_hand), abs=1e-5)
        assert sight["confidence"]["mean"] == pytest.approx(float(p.amax(1)[used].mean()), abs=1e-5)
        scores = [float(batch[name]) for batch in released]
        assert sight["released"]["mean"] == pytest.approx(np.mean(scores), abs=1e-5)
        assert sight["released"]["std"] == pytest.approx(np.std(scores, ddof=1), abs=1e-5)
        paper = [float(paper_redundancy(found.embedding[r])) for r in rows]
        assert sight["paper"]["mean"] == pytest.approx(np.mean(paper), abs=1e-5)


@pytest.mark.parametrize("form", ["released", "paper"])
def test_redundancy_is_what_dasp_sees(views, place, form):
    sight = replace(views, severities=(5,), batch_sizes=(8,))
    (result,) = contents(run_indicators(sight, place, show=False)).values()
    rows = {"dasp": Entry("dasp", {"variant": form})}
    run = replace(sight, methods=rows, protocols=("per_domain/video",), corruptions=("contrast",))
    (path,) = run_plan(run, place, show=False)
    scores = read_result(path)["result"]["batches"]["scores"]
    for name, sight in result["domains"][2]["modalities"].items():
        assert sight[form]["mean"] == pytest.approx(np.mean(scores[name][:2]), abs=1e-5)


def test_a_plan_of_this_kind_is_run_and_recorded(views, place):
    plan = replace(views, kind="indicators", severities=(5,))
    assert [path.name for path in run_any(plan, place, show=False)] == files_of(plan)


def test_the_plans_of_the_package():
    assert len(files_of(load_plan("paper/indicators"))) == 3 * 5
    assert len(files_of(load_plan("paper/indicators_batch"))) == 3 * 6
    assert len(files_of(load_plan("paper/indicators_sound"))) == 3


def test_what_is_done_is_not_done_again(views, place):
    paths = run_indicators(views, place, show=False)
    before = contents(paths)
    times = {path: path.stat().st_mtime_ns for path in paths}
    paths[1].unlink()
    assert run_indicators(views, place, show=False) == paths
    assert contents(paths) == before
    assert [p for p in paths if p.stat().st_mtime_ns != times[p]] == [paths[1]]


def test_two_plans_share_a_file(views, place):
    one = run_indicators(replace(views, severities=(5,)), place, show=False)
    other = run_indicators(replace(views, batch_sizes=(16,)), place, show=False)
    assert set(one) & set(other) == {one[1]}


def test_workers_do_not_change_a_bit(views, place, tmp_path):
    alone = contents(run_indicators(views, place, show=False))
    other = replace(place, results=tmp_path / "other", workers=2)
    assert contents(run_indicators(views, other, show=False)) == alone


def test_a_damaged_file_is_named(views, place):
    path = run_indicators(views, place, show=False)[0]
    path.write_text("{")
    with pytest.raises(DataError, match=path.name):
        run_indicators(views, place, show=False)


def test_wrong_names_are_refused_before_anything_starts(views, place):
    with pytest.raises(OptionError, match="contrast"):
        run_indicators(replace(views, corruptions=("contrasts",)), place, show=False)
    assert not place.store.exists()


def test_every_setting_is_in_the_key(views):
    changed = [views, replace(views, seeds=(1,)), replace(views, corruptions=("fog",))]
    changed.append(replace(views, data=replace(views.data, samples=21)))
    keys = [view.key for plan in changed for item in items_of(plan) for view in item.wanted]
    assert len(set(keys)) == len(keys) == 16


def test_only_modalities_with_corruptions_are_damaged():
    domains = domains_of(("touch", "audio"), 3, ())
    assert {d.modality for d in domains} == {"audio"}
    assert len(domains) == 6
    assert domains_of(("touch",), 3, ()) == []
    assert {d.modality for d in domains_of(("depth", "audio"), 3, ())} == {"depth", "audio"}


class Features3:
    """Tokens of three modalities, made from a seed; `video` of a domain is a constant."""

    labels = torch.arange(12) % 3

    def __init__(self, model, bad=False):
        self.model, self.bad, self.asked = model, bad, []

    def get(self, part):
        self.asked.append(part.modality)
        draws = numpy_generator(0, part.modality)
        tokens = draws.standard_normal((12, 4, self.model.embed_dim), np.float32)
        if part.domain is not None and part.modality == part.domain.modality:
            tokens = tokens * 0.01 + 1
        return tokens * np.float32("nan") if self.bad else tokens


@pytest.fixture
def three():
    from dasp.models import Toy

    return Toy(modalities=("audio", "video", "depth"), num_classes=3)


def test_any_number_of_modalities(three):
    features = Features3(three)
    measure = Measure(features, 0)
    clean, damaged = measure.domain(None, [4])[0], measure.domain(Domain("video", "fog", 1), [4])[0]
    assert set(clean["modalities"]) == {"audio", "video", "depth"}
    assert damaged["modalities"]["depth"]["right"] == clean["modalities"]["depth"]["right"]
    assert damaged["modalities"]["video"]["named"]["released"] == 3
    # alone: three clean, one damaged; together: three each
    assert len(features.asked) == 4 + 6


def test_values_that_are_not_finite_are_refused(three):
    with pytest.raises(DataError, match=r"audio in\s+clean"):
        Measure(Features3(three, bad=True), 0).domain(None, [4])


@pytest.mark.parametrize(
    ("rows", "released"), [(8, 0.354), (16, 0.252), (32, 0.176), (64, 0.125), (128, 0.088)]
)
def test_the_noise_floor(three, rows, released):
    measure = Measure(Features3(three), 0)
    measure.width, measure.features.labels = 96, torch.zeros(256)
    floor = noise_floor(measure, rows)
    assert floor["released"]["mean"] == pytest.approx(released, rel=0.02)
    assert floor["paper"]["mean"] == pytest.approx(1 / (rows - 1), rel=0.05)
    assert floor == noise_floor(measure, rows)


@given(st.integers(1, 60), st.integers(1, 70))
def test_batches_are_whole_and_disjoint(samples, size):
    found = list(whole_batches(np.arange(samples), size))
    assert torch.cat(found).tolist() == list(range(sum(map(len, found))))
    assert {len(rows) for rows in found} == {min(size, samples)}
    assert samples - sum(map(len, found)) < size


@given(arrays.arrays(np.int8, (3, 5)), st.sampled_from([1, -1]))
def test_only_the_extreme_one_is_named(values, sign):
    found = named(dict(zip("abc", values.tolist(), strict=True)), sign)
    for batch, name in zip((sign * values.astype(int)).T, found, strict=True):
        top = [n for n, value in zip("abc", batch, strict=True) if value == batch.max()]
        assert name == (top[0] if len(top) == 1 else None)


def test_confidence_points_the_other_way():
    assert {name for name, sign in INDICATORS.items() if sign < 0} == {"confidence"}
