"""Each benchmark at a tiny size, the command for all of them, and the pages made of their files."""

import json
import platform
import sys
from functools import partial

import encoders
import fill_pages
import grid
import growth
import loading
import measuring
import operation
import pytest
import ranks
import run
import store
from measuring import Seconds, against, code_digest, machine, random_inputs, take_turns

from dasp.models import CavMae, faster

sys.path.insert(0, str(measuring.ROOT / "studies" / "full_evaluation"))

import arithmetic
import scaling
import step
import triage_cost

NARROW = {"embed_dim": 12, "num_heads": 2, "depth": 1, "num_classes": 5}


def figures(module, tmp_path, monkeypatch, *flags):
    path = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", [module.__file__, *flags, "--json", str(path)])
    module.main()
    content = json.loads(path.read_text())
    assert content["command"].startswith("python benchmarks/")
    assert platform.node() not in path.read_text()
    return content["figures"]


def test_small_benchmarks(tmp_path, monkeypatch):
    monkeypatch.setattr(operation, "CavMae", lambda num_classes: CavMae(**NARROW))
    monkeypatch.setattr(grid, "TOKEN_LEVEL", ("source", "read"))
    monkeypatch.setattr(grid, "MAIN_PROTOCOLS", ("continual/audio",))
    monkeypatch.setattr(loading, "cases", lambda *_: [("x", {"y": loading.Way(lambda: 0.0)})])
    found = figures(store, tmp_path, monkeypatch, "--rows", "64", "--rounds", "1")
    assert found["write"]["plain file"]["ratio"] == 1
    found = figures(operation, tmp_path, monkeypatch, "--rounds", "1", "--batch", "2")
    assert set(found["toy"]) == {"floor", "log", "checkpoint"}
    found = figures(grid, tmp_path, monkeypatch, "--samples", "4", "--vit", "0")
    assert found["equal"]
    found = figures(loading, tmp_path, monkeypatch, "--rounds", "1")
    assert found["x"]["y"]["waits"] == 1
    small = ("--rounds", "1", "--width", "12", "--depth", "1", "--batch", "4", "--classes", "5")
    assert figures(ranks, tmp_path, monkeypatch, *small)["messages"] > 0


def test_a_stream_is_loaded_and_adapted_to():
    data = loading.SoundingShapes("test", 4)
    ways = loading.streamed(data, loading.find_model("sounding_shapes_0"), 2)
    way = ways["this process"]
    way()
    way()
    assert 0 < way.adapting < way.total


def test_steps_of_dasp_are_forced_and_counted():
    model, met = CavMae(**NARROW), {"audio": 0.25, "video": 0.25, "nothing": 0.5}
    counted = {case: step.arithmetic(step.build(case, model)) for case in step.CASES}
    assert counted["source"] < counted["nothing"] < counted["audio"]
    times = {case: [Seconds(place + 1.0, 1.0)] for place, case in enumerate(step.CASES)}
    found = step.figures_of(times, dict.fromkeys(step.CASES, 100.0), counted, met)
    assert found["stream"]["ratio"] == 0.25 * 2 + 0.25 * 3 + 0.5 * 4
    shares = step.shares(lambda: step.build("video", model)(step.vit_inputs(2)))
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)


def test_triage_learns_in_one_way_and_not_in_the_others():
    model = CavMae(**NARROW)
    clean = triage_cost.encoded(model, step.vit_inputs(32))
    handles = {way: triage_cost.build(way, model, clean) for way in triage_cost.WAYS}
    assert [handles[way](step.vit_inputs(2)).updated for way in handles] == [True, *[False] * 3]
    counted = [step.arithmetic(handles[way]) for way in ("without learning", "triage")]
    assert counted[0] < counted[1]
    assert set(triage_cost.growth((3,), True, 1)) == {"3, triage", "3, without learning"}


def test_of_two_encoders_with_batch_norm_the_flagged_one_runs_twice():
    drawn = partial(random_inputs, dict.fromkeys(triage_cost.Convolutional.modalities, (3, 64, 64)))
    found = triage_cost.costs(triage_cost.Convolutional(), drawn, 2, 1)
    assert 1.5 < found["without learning"]["arithmetic"] < 1.51
    assert found["without learning, nothing flagged"]["arithmetic"] < 1.01


def test_encoders_are_timed_and_growth_is_fitted(monkeypatch):
    plain = CavMae(**NARROW).eval().requires_grad_(False)
    found = encoders.speed({"float32": plain, "bfloat16": faster(plain, "bfloat16")}, 2, 1)
    assert set(found["batch 2"]) == {"encode, bfloat16", "step, bfloat16"}
    monkeypatch.setattr(growth, "CHUNK", 2)
    seconds, memory = growth.stream_curves(("source", "dasp"), 3, 1)
    assert growth.curve("x", "y", seconds)["fits"]["dasp"]["slope"] > 0
    assert len(memory[1]["all three"]) == 3
    assert growth.in_fork(growth.step_memory, "source", 8) >= 0
    bent = growth.straightness([1, 2, 4, 8], [3.0 * x**2 for x in (1, 2, 4, 8)])
    assert (bent["deviation"] > 0.2, bent["exponent"]) == (True, pytest.approx(2))


def test_the_store_encodes_23_times_instead_of_126_times_per_method():
    def reckon(encode, adapt):
        costs = {"encode audio": encode, "encode video": encode, "write tokens": 0}
        costs |= {"read tokens": 0} | dict.fromkeys(grid.TOKEN_LEVEL, adapt)
        times = {name: [Seconds(cost, cost)] for name, cost in costs.items()}
        return grid.reckoned(times, grid.grid_plan(32, "sounding_shapes_0"))["ratio"]

    assert reckon(1, 0) == pytest.approx(126 * len(grid.TOKEN_LEVEL) / 23, rel=1e-4)
    assert reckon(0, 1) == 1


def test_the_full_evaluation_is_counted(monkeypatch):
    monkeypatch.setattr(arithmetic, "VIT_B", (64, 3))
    count = arithmetic.step("read")
    assert arithmetic.at_vit_b(count) == pytest.approx(count(64, 3), rel=1e-6)
    work = scaling.full_evaluation("kinetics50")
    assert len({job.run.key for _, job in work}) == len(work)
    mine = [j for _, j in work if (j.run.method, j.run.severity, j.run.seed) == ("tent", 3, 0)]
    assert sum(map(scaling.samples_of, mine)) == 63 * 2466
    tokens = sum(scaling.size(spec, 1) for spec in scaling.arrays(work) if spec.encoded)
    assert tokens == 4 * 768 * (76 * 196 + 31 * 512)
    assert scaling.schedule([3, 3, 2, 2, 2], 2) == 7


def test_ways_take_turns_and_ratios_are_taken_round_by_round():
    calls = []
    ways = {name: lambda name=name: calls.append(name) for name in "abc"}
    take_turns(ways, rounds=2)
    assert "".join(calls) == "abcbcacab"
    base = [Seconds(1.0, 1.0), Seconds(10.0, 1.0), Seconds(2.0, 1.0)]
    mine = [Seconds(1.2, 3.0), Seconds(11.0, 2.0), Seconds(2.6, 4.0)]
    assert against(mine, base) == {"ratio": 1.2, "low": 1.1, "high": 1.3, "processor_ratio": 3.0}
    assert {"processor", "cores", "memory_gib", "torch"} <= machine().keys()


def test_goals_and_what_is_kept(tmp_path):
    assert all(one.path.exists() for one in run.SUITE)
    assert {goal.result for goal in run.GOALS} <= {one.name for one in run.SUITE}
    cases = {"cases": {"a": {"ratio": 1.1}, "b": {"ratio": 1.4}, "c": {"other": 9}}}
    assert run.Goal("x", "cases/*/ratio", "", at_most=1.25).measured(cases) == 1.4
    assert run.Goal("x", "cases/*/ratio", "", at_least=1.2).measured(cases) == 1.1
    one, path = run.Benchmark("samples", 1.0, "--calls 3"), tmp_path / "samples.json"
    content = {"command": "python benchmarks/samples.py --calls 3", "code": code_digest(one.path)}
    for change, done in (({}, True), ({"code": "other"}, False), ({"command": "x"}, False)):
        path.write_text(json.dumps(content | change))
        assert one.is_done(path, quick=False) is done


@pytest.mark.parametrize("path", fill_pages.PAGES, ids=lambda path: path.stem)
def test_pages_say_what_the_files_say(path, tmp_path):
    text = path.read_text()
    assert fill_pages.filled(text, measuring.RESULTS) == text, "run python tools/fill_pages.py"
    assert "Not measured" in fill_pages.figures("nothing/here", tmp_path)
