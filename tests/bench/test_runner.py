"""Runs: what is counted, what survives a kill, what two runners do, what the store changes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import dasp
from dasp.bench.cell import run_cell
from dasp.bench.features import Features, Part
from dasp.bench.plan import with_methods
from dasp.bench.references import find_method, find_model
from dasp.bench.results import is_done, read_result
from dasp.bench.runner import run_plan
from dasp.core.errors import DataError
from dasp.streams import Domain

SMALL = Path(__file__).with_name("small.py")


def outcomes(paths):
    """What a run found, without what it cost."""
    return {path.name: read_result(path)["result"] for path in paths}


def test_every_cell_is_counted_globally(plan, place):
    paths = run_plan(plan, place, show=False)
    assert len(paths) == 6
    for path in paths:
        content = read_result(path)
        result, cell = content["result"], content["cell"]
        domains = 2
        assert result["seen"] == 20 * domains
        assert result["accuracy"] == pytest.approx(100 * result["right"] / result["seen"], abs=1e-3)
        assert sum(d["right"] for d in result["domains"]) == sum(result["batches"]["right"])
        assert [d["batches"] for d in result["domains"]] == [3, 3]
        assert result["batches"]["seen"] == [8, 8, 4] * 2
        assert (result["batches"]["scores"] is not None) == (cell["method"] == "dasp")
        assert result["updates"] == (0 if cell["method"] == "source" else 6)
        assert content["measured"]["versions"]["dasp"] == dasp.__version__


def bits(domain, samples):
    packed = np.frombuffer(bytes.fromhex(domain["hits"]), np.uint8)
    return np.unpackbits(packed, count=samples)


def test_which_samples_were_right_is_kept_in_the_order_of_the_data(plan, place):
    source = replace(plan, methods={"source": plan.methods["source"]}, seeds=(0, 1))
    contents = [read_result(path) for path in run_plan(source, place, show=False)]
    for content in contents:
        for domain in content["result"]["domains"]:
            assert bits(domain, 20).sum() == domain["right"]
    by_seed = {}
    for content in contents:
        hits = {d["name"]: d["hits"] for d in content["result"]["domains"]}
        by_seed.setdefault(content["cell"]["seed"], {}).update(hits)
    assert by_seed[0] == by_seed[1]  # Source judges each sample by itself, in whatever order


def test_judging_clean_samples_changes_nothing_else(plan, place):
    without = {p.name.rsplit("-", 1)[0]: read_result(p) for p in run_plan(plan, place, show=False)}
    for path in run_plan(replace(plan, clean_after=12), place, show=False):
        content, plain = read_result(path), without[path.name.rsplit("-", 1)[0]]
        assert content["result"]["domains"] == plain["result"]["domains"]
        clean = content["result"]["clean_after"]
        assert plain["result"]["clean_after"] is None
        assert clean["seen"] == 12
        for name in ("joint", "audio", "video"):
            assert len(clean[name]) == 1 + len(content["result"]["domains"])
            if content["cell"]["method"] == "source":
                assert len(set(clean[name])) == 1
    per_domain = replace(plan, clean_after=12, protocols=("per_domain/video",))
    assert {cell.clean_after for cell in per_domain.cells()} == {0}


def test_source_is_what_the_model_says(plan, place):
    path = run_plan(replace(plan, methods={"source": plan.methods["source"]}), place, show=False)[0]
    material, model = plan.data.open(), find_model(plan.models[0])
    features = Features(material, model, None)
    right = 0
    for name in ("contrast", "brightness"):
        domain = Domain("video", name, 5)
        inputs = {
            m: torch.from_numpy(features.get(Part(m, domain, False))) for m in ("audio", "video")
        }
        with torch.no_grad():
            right += int((model(inputs).argmax(1) == features.labels).sum())
    assert read_result(path)["result"]["right"] == right


def test_a_second_run_does_nothing(plan, place):
    paths = run_plan(plan, place, show=False)
    times = [path.stat().st_mtime_ns for path in paths]
    assert run_plan(plan, place, show=False) == paths
    assert [path.stat().st_mtime_ns for path in paths] == times


def test_workers_and_the_store_do_not_change_a_bit(plan, place, tmp_path):
    alone = outcomes(run_plan(plan, place, show=False))
    other = replace(place, results=tmp_path / "other", store=tmp_path / "fresh", workers=2)
    assert outcomes(run_plan(plan, other, show=False)) == alone
    material, model = plan.data.open(), find_model(plan.models[0])
    torch.set_num_threads(1)
    for cell in plan.cells():
        features = Features(material, model, None)  # no store: everything is made for each run
        result, _ = run_cell(cell, find_method(cell.method), features)
        assert json.loads(json.dumps(result)) == alone[cell.filename]


def test_audio_is_encoded_once_under_damaged_video(plan, place):
    run_plan(plan, place, show=False)
    kinds = sorted(path.name.split("-")[0] for path in place.store.glob("*.npy"))
    assert kinds == ["inputs"] * 3 + ["tokens"] * 3  # clean audio, two domains of video


def test_a_method_and_a_model_of_the_users_own(plan, place):
    chosen = with_methods(plan, ["source", f"{SMALL}:Mine"])
    paths = run_plan(chosen, place, show=False)
    labels = {read_result(path)["cell"]["label"] for path in paths}
    assert labels == {"source", "mine"}
    assert all(read_result(p)["cell"]["model"]["name"] == "small" for p in paths)


def test_a_damaged_result_is_named(plan, place):
    path = run_plan(plan, place, show=False)[0]
    path.write_text("{")
    with pytest.raises(DataError, match=path.name):
        is_done(place.results, plan.cells()[0])


def test_order_depends_on_the_seed(one_run, place):
    first = outcomes(run_plan(one_run, place, show=False))
    second = outcomes(run_plan(replace(one_run, seeds=(1,)), place, show=False))
    (one,), (other,) = first.values(), second.values()
    assert one["batches"] != other["batches"]


SCRIPT = """
import sys
from pathlib import Path
from dasp.bench.plan import Plan, Entry
from dasp.bench.material import DataOptions
from dasp.bench.prepare import Place
from dasp.bench.runner import run_plan
plan = Plan(
    data=DataOptions(samples=40), models=(sys.argv[2] + ":build",),
    methods={n: Entry(n, {"lr": 1e-3}) for n in ("source", "tent", "read", "dasp")},
    protocols=("continual/video", "interleaved"), batch_sizes=(8,),
    corruptions=("contrast", "brightness"),
)
folder = Path(sys.argv[1])
run_plan(plan, Place(folder / "results", folder / "store", workers=2), show=False)
"""


def start(folder):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(folder), str(SMALL)]
    return subprocess.Popen(command, env=environment, start_new_session=True)


def test_killed_five_times_it_ends_with_the_same_results(tmp_path):
    whole = tmp_path / "whole"
    assert start(whole).wait() == 0
    broken, chance = tmp_path / "broken", random.Random(0)
    for _ in range(5):
        process = start(broken)
        time.sleep(chance.uniform(2.5, 6.0))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert start(broken).wait() == 0
    expected = outcomes(sorted((whole / "results").glob("*.json")))
    assert len(expected) == 8
    assert outcomes(sorted((broken / "results").glob("*.json"))) == expected
    for path in (whole / "store").glob("*.npy"):
        assert np.array_equal(np.load(path), np.load(broken / "store" / path.name))


def test_two_runners_share_a_folder_without_double_work(tmp_path):
    both = [start(tmp_path), start(tmp_path)]
    assert [process.wait() for process in both] == [0, 0]
    paths = sorted((tmp_path / "results").glob("*.json"))
    assert len(paths) == 8
    finished = [read_result(path)["measured"]["finished"] for path in paths]
    again = start(tmp_path)
    assert again.wait() == 0
    assert [read_result(path)["measured"]["finished"] for path in paths] == finished


def test_the_example_of_an_own_method_runs_in_the_bench(plan, place):
    example = SMALL.parents[2] / "examples" / "own_method.py"
    chosen = with_methods(plan, [f"{example}:LastBlockTent"])
    chosen = replace(chosen, models=(f"{example}:build",), protocols=("continual/video",))
    (path,) = run_plan(chosen, place, show=False)
    assert read_result(path)["result"]["updates"] == 6
