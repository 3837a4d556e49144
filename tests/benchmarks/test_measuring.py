"""What all benchmarks share: turns, ratios, files, the machine; and lines fitted to curves."""

import json
import platform
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import machine
from measuring import Seconds, against, code_digest, command, take_turns, write_figures
from straightness import straightness

positive = st.floats(0.1, 100)


def test_the_machine_is_described_without_names_and_paths():
    text = json.dumps(machine())
    assert {"processor", "cores", "memory_gib", "torch", "load_at_start"} <= machine().keys()
    assert "/" not in text
    assert platform.node() not in text


def test_ways_take_turns_and_the_first_round_does_not_count():
    calls = []
    ways = {name: lambda name=name: calls.append(name) for name in "abc"}
    times = take_turns(ways, rounds=2)
    assert "".join(calls) == "abcbcacab"
    assert {name: len(own) for name, own in times.items()} == {"a": 2, "b": 2, "c": 2}


def test_a_ratio_is_taken_round_by_round():
    base = [Seconds(1.0, 1.0), Seconds(10.0, 1.0), Seconds(2.0, 1.0)]
    mine = [Seconds(1.2, 3.0), Seconds(11.0, 2.0), Seconds(2.6, 4.0)]
    found = against(mine, base)
    assert found == {"ratio": 1.2, "low": 1.1, "high": 1.3, "processor_ratio": 3.0}


def test_a_file_says_what_made_it(tmp_path, monkeypatch):
    path = tmp_path / "grid.json"
    words = ["/x/benchmarks/grid.py", "--samples", "64", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", words)
    write_figures(path, "A title", {"samples": 64}, {"a": 1.5})
    content = json.loads(path.read_text())
    assert content["benchmark"] == "grid"
    assert content["command"] == "python benchmarks/grid.py --samples 64" == command(words)
    assert content["code"] == code_digest("grid") != code_digest("step")
    assert (content["settings"], content["figures"]) == ({"samples": 64}, {"a": 1.5})
    assert content["machine"]["cores"] >= 1
    assert str(tmp_path) not in path.read_text()


@given(fixed=positive, slope=positive)
def test_a_straight_line_is_found(fixed, slope):
    xs = [1, 2, 5, 9]
    fit = straightness(xs, [fixed + slope * x for x in xs])
    assert fit["fixed"] == pytest.approx(fixed, rel=1e-2, abs=1e-2)
    assert fit["slope"] == pytest.approx(slope, rel=1e-2, abs=1e-2)
    assert fit["deviation"] < 1e-6


@given(factor=positive)
def test_a_bent_curve_is_told(factor):
    xs = [1, 2, 4, 8]
    fit = straightness(xs, [factor * x**2 for x in xs])
    assert fit["deviation"] > 0.2
    assert fit["exponent"] == pytest.approx(2)
