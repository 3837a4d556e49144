"""The study of people and damage: what is counted, and that a fitted method knows its person."""

import runpy
from pathlib import Path

import pandas as pd
import pytest
import torch

import dasp
from dasp.core.sensors import SENSORS

STUDY = Path(__file__).parents[2] / "studies/people/people.py"


@pytest.fixture(scope="module")
def study():
    return runpy.run_path(str(STUDY))


def row(method, damaged, right, *flagged):
    return {"method": method, "fit": "nothing", "damaged": damaged, "right": right} | {
        name: name in flagged for name in SENSORS
    }


def test_flags_of_healthy_and_damaged_sensors_are_counted_apart(study):
    found = [row("source", "", 32), row("source", "gyroscope", 16)]
    found += [row("dasp", "", 48, "gyroscope"), row("dasp", "gyroscope", 32, "accelerometer")]
    (told,) = study["table"](pd.DataFrame(found)).to_dict("records")
    assert (told["healthy"], told["gyroscope"], told["accelerometer"]) == (100, 100, 0)
    assert (told["named"], told["wrong"]) == (0, 100)
    assert (told["gain, undamaged"], told["gain, damaged"]) == (25, 25)


def test_a_stream_is_flagged_batch_by_batch(study):
    generator = torch.Generator().manual_seed(0)

    def batch(scale=1.0):
        drawn = {name: torch.randn(64, 15, 125, generator=generator) for name in SENSORS}
        return drawn | {"gyroscope": scale * drawn["gyroscope"]}

    labels = torch.zeros(64, dtype=torch.long)
    stream = [("", batch(), labels), ("gyroscope", batch(20.0), labels)]
    batches = study["Batches"](batch(), stream)
    model = dasp.load_model("dsa_0")
    (clean, damaged) = study["flags"](model, study["OWN"], batches.own, batches)
    assert not any(clean[name] for name in SENSORS)
    assert damaged["gyroscope"]
    assert not damaged["accelerometer"]
