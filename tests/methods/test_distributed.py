"""Ranks that share a stream give what one process gives on the joined batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dasp
from dasp.core.errors import OptionError
from dasp.models import Toy

PROGRAM = Path(__file__).with_name("shared_streams.py")
SOURCES = str(Path(dasp.__file__).parents[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run the program; all processes write what they found into this folder."""
    place = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(PROGRAM), str(place)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def found(folder):
    """What the ranks of a group of so many found, by rank; of the one process alone: [it]."""
    return {n: [torch.load(folder / f"{n}-{r}.pt") for r in range(n)] for n in (1, 2, 3)}


def joined(ranks, *path):
    """The rows of all ranks, in their order."""
    for step in path:
        ranks = [rank[step] for rank in ranks]
    return torch.cat(ranks)


def near(first, second, tolerance):
    torch.testing.assert_close(first, second, atol=tolerance, rtol=0, equal_nan=True)


@pytest.mark.parametrize("size", [2, 3])
def test_many_are_as_one(size, found):
    """Logits, losses, diagnoses, weights, averages, optimizer; and all ranks have the same bits."""
    names = [name for name, run in found[size][0].items() if "alone" in run]
    assert len(names) >= 5
    for name in names:
        check_stream(name, found[1][0][name], [rank[name] for rank in found[size]])


def check_stream(name, one, ranks):
    tolerance = 1e-6 if "float32" in name else 1e-11
    assert name in ("source", "triage, no learning") or any(
        call["updated"] for call in one["calls"]
    )
    for place, call in enumerate(one["calls"]):
        near(joined(ranks, "calls", place, "logits"), call["logits"], tolerance)
        for rank in ranks:
            own = rank["calls"][place]
            assert own["updated"] == call["updated"]
            assert own["biased"] == call["biased"]
            assert own["scores"] == ranks[0]["calls"][place]["scores"]
            assert own["scores"] == (call["scores"] and pytest.approx(call["scores"], abs=1e-6))
            assert own["loss"] == (call["loss"] and pytest.approx(call["loss"], abs=tolerance))
    for modality, logits in one["alone"].items():
        near(joined(ranks, "alone", modality), logits, tolerance)
    for key, value in one["state"].items():
        near(ranks[0]["state"][key], value, 1e-5 if "float32" in name else 1e-9)
        assert all(same_bits(rank["state"][key], ranks[0]["state"][key]) for rank in ranks)


def same_bits(first, second):
    return torch.equal(first.nan_to_num(), second.nan_to_num())


@pytest.mark.parametrize("size", [2, 3])
def test_spoilt_samples_of_one_rank_are_refused_by_all(size, found):
    one, ranks = found[1][0]["faults"], [rank["faults"] for rank in found[size]]
    for name in ("good", "nan", "overflow", "again"):
        near(joined(ranks, "calls", name, "logits"), one["calls"][name]["logits"], 1e-6)
        assert all(r["calls"][name]["scores"] == ranks[0]["calls"][name]["scores"] for r in ranks)
    *others, last = ranks
    assert last["calls"]["nan"]["rejected"].startswith("NaN or Inf in audio, 7 of")
    assert "1 of" in last["calls"]["overflow"]["rejected"]
    for rank in others:
        assert rank["calls"]["nan"]["rejected"] == (
            "NaN or Inf on another rank, 7 of all 17 samples"
        )
        assert "on another rank, 1 of all 17 samples" in rank["calls"]["overflow"]["rejected"]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("fault", ["raises", "shape", "late", "latest"])
def test_an_error_on_one_rank_stops_all_and_changes_nothing(size, fault, found):
    *others, last = (rank["faults"] for rank in found[size])
    assert last["calls"][fault] == found[1][0]["faults"]["calls"][fault] or fault == "raises"
    assert last["calls"][fault].startswith(("InputError: ", "ValueError: "))
    for rank in others:
        call = rank["calls"][fault]
        assert call["rejected"] == f"another rank failed: rank {size - 1}, {last['calls'][fault]}"
        assert torch.isfinite(call["logits"]).all()
        assert not call["updated"]
    for rank in (*others, last):
        assert all(
            same_bits(value, state[key])
            for state in rank["states"]
            for key, value in rank["states"][0].items()
        )


def test_only_methods_that_are_exact_share_a_stream(found):
    for rank in found[2]:
        for name in dasp.METHODS:
            said = rank["out of step"]["said"][name]
            if dasp.METHODS[name].sharded is True:
                assert said is True
            else:
                assert "cannot share a stream among ranks: it" in said
        assert "does not set `sharded = True`" in rank["out of step"]["said"]["own method"]
        assert "it trains BatchNorms" in rank["out of step"]["said"]["batch norms"]


def test_ranks_out_of_step_are_told_so_and_go_on(found):
    first, second = (rank["out of step"]["said"] for rank in found[2])
    differ = "RankError: the ranks differ in "
    for said in (first, second):
        assert said["options"].startswith(f"{differ}delta: 0.2 on rank 0, 0.1 on rank 1")
        assert said["group"].startswith(
            'OptionError: group must be "world", a process group or None'
        )
        assert said["model"].startswith(f"{differ}the model's weights")
        assert said["reset on one rank"].startswith(f"{differ}batches learned: 1 on rank 0, 0 on")
        assert said["modalities"].startswith(f"{differ}the order of modalities")
        assert "does not use source data" in said["fit"]
        assert "same number of batches on each rank" in said["fits of different length"]
        assert said["afterwards"] is True
    assert first["unknown"].startswith("PeerError: another rank failed: rank 1, OptionError: unkno")
    assert second["unknown"].startswith("OptionError: unknown method 'dsap'")
    states = [rank["out of step"]["state"] for rank in found[2]]
    assert all(same_bits(value, states[1][key]) for key, value in states[0].items())


def test_one_rank_writes_and_all_go_on_from_it(found):
    for rank in (*found[1], *found[2]):
        saving = rank["saving"]
        assert saving["done"] == 4
        assert all(saving["same"].values())
        assert saving["events"].count("batch") == 4
        for expected, own in zip(saving["expected"], saving["found"], strict=True):
            assert torch.equal(expected["logits"], own["logits"])


@pytest.mark.parametrize("size", [2, 3])
def test_a_lost_rank_is_an_error_of_the_others(size, found, folder):
    for rank in range(size - 1):
        left = torch.load(folder / f"lost-{size}-{rank}.pt")
        assert left["said"].startswith("RankError: another rank cannot be reached")
        assert left["same"]


def test_a_group_needs_processes():
    with pytest.raises(OptionError, match="init_process_group"):
        dasp.adapt(Toy(), "dasp", group="world")
