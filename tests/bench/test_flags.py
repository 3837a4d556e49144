"""What indicators flag: counted rightly, once, against levels of training samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dasp.bench.features import Features
from dasp.bench.flag_measure import (
    CLEAN_ORDERS,
    THRESHOLDS,
    Watch,
    flagged,
    levels_of,
    look_at_source,
)
from dasp.bench.flags import CLEAN_SAMPLES, FORMAT, flag_files, run_flags
from dasp.bench.kinds import files_of, run_any
from dasp.bench.plan_files import load_plan
from dasp.bench.references import find_model
from dasp.bench.results import read_result
from dasp.core.errors import OptionError
from dasp.core.seeding import numpy_generator
from dasp.methods.indicators import COMBINATIONS, INDICATORS
from dasp.methods.levels import deviations
from dasp.streams import Domain


@pytest.fixture
def flags(plan, monkeypatch):
    monkeypatch.setattr("dasp.bench.flags.CLEAN_SAMPLES", 12)
    return replace(plan, kind="flags", corruptions=("contrast", "rain"), batch_sizes=(8, 4))


def test_a_file_a_batch_size_and_nothing_twice(flags, place):
    paths = run_any(flags, place, show=False)
    assert [path.name for path in paths] == files_of(flags) == flag_files(flags)
    for path, size in zip(paths, (8, 4), strict=True):
        assert path.name.startswith(f"flags-5-batch{size}-small-0-")
        content = read_result(path, FORMAT)
        assert content["cell"]["source"]["split"] == "train"
        assert content["cell"]["source"]["samples"] == 12
        result = content["result"]
        assert result["indicators"] == [*INDICATORS, *COMBINATIONS]
        for order in ("shuffled", "sorted"):
            found = result["orders"][order]
            assert found["clean"]["batches"] == CLEAN_ORDERS * (20 // size)
            assert found["healthy"]["batches"] == 2 * (20 // size)
            names = [domain["name"] for domain in found["domains"]]
            assert names == ["audio/rain/5", "video/contrast/5"]
            for counts in (found["clean"], found["healthy"], *found["domains"]):
                grid = np.array(counts["flagged"])
                assert grid.shape == (len(result["indicators"]), len(THRESHOLDS))
                assert (np.diff(grid, axis=1) <= 0).all()  # the higher the threshold, the fewer
                assert (grid <= counts["batches"]).all()
    before = [path.stat().st_mtime_ns for path in paths]
    assert run_flags(flags, place, show=False) == paths
    assert [path.stat().st_mtime_ns for path in paths] == before


def test_the_counts_are_those_of_the_model(flags, place):
    chosen = replace(flags, corruptions=("contrast",), batch_sizes=(8,))
    (path,) = run_flags(chosen, place, show=False)
    found = read_result(path, FORMAT)["result"]["orders"]["shuffled"]["domains"][0]
    features = Features(flags.data.open(), find_model(flags.models[0]), None)
    watch, clean = Watch(features, 0), look_at_source(features, 12, 0)
    domain, levels = Domain("video", "contrast", 5), levels_of(clean, 8, 0)
    order = numpy_generator(0, "order", str(domain)).permutation(20)
    look = watch.look(domain)
    expected = np.zeros((len(INDICATORS) + len(COMBINATIONS), len(THRESHOLDS)), int)
    for rows in (order[:8], order[8:16]):
        z = deviations(look[torch.from_numpy(rows)], clean, levels)
        expected += [[value["video"] > t for t in THRESHOLDS] for value in z.values()]
    assert found["flagged"] == expected.tolist()


def test_sorted_batches_hold_few_classes(flags):
    watch = Watch(Features(flags.data.open(), find_model(flags.models[0]), None), 0)
    rows = torch.cat(list(watch.batches(Domain("video", "fog", 5), "sorted", 4)))
    assert watch.labels[rows].tolist() == sorted(watch.labels.tolist())[:20]
    first, *_, last = watch.batches(None, "shuffled", 20)
    assert sorted(first.tolist()) == sorted(last.tolist()) == list(range(20))
    assert first.tolist() != last.tolist()


def test_healthy_and_damaged_are_told_apart():
    batches = [{"it": {"audio": 5.0, "video": 1.2}}, {"it": {"audio": 0.0, "video": 30.0}}]
    hits, others = flagged(batches, "audio")
    assert hits[0, THRESHOLDS.index(4.0)].tolist() == [True, False]
    assert others[0, 0].tolist() == [True, True]
    assert others[0, -1].tolist() == [False, True]
    none, any_of_them = flagged(batches, None)
    assert not none.any()
    assert any_of_them[0, THRESHOLDS.index(2.0)].tolist() == [True, True]


def test_every_setting_is_in_the_key(flags):
    changed = [flags, replace(flags, seeds=(1,)), replace(flags, corruptions=("fog",))]
    names = {name for plan in changed for name in flag_files(plan)}
    assert len(names) == 6


def test_wrong_names_are_refused_before_anything_starts(flags, place):
    with pytest.raises(OptionError, match="contrast"):
        run_flags(replace(flags, corruptions=("contrasts",)), place, show=False)
    assert not place.store.exists()


def test_the_plan_of_the_package():
    plan = load_plan("robust/indicators")
    assert len(files_of(plan)) == 3 * 3 * 2
    assert CLEAN_SAMPLES == 128
