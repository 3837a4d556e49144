"""Tell damage from another person: how often is a healthy sensor of somebody new flagged?

    python studies/people/people.py --root DIR                 # DIR: Daily and Sports Activities
    python studies/people/people.py --root DIR --methods dasp

The models were trained on people p1 to p5. The segments of p7 or p8 come in batches of 64: 512
undamaged ones, then 64 in each of the 36 domains of the interleaved stream at severity 5. Our own
method is fitted with 128 undamaged segments of the training people, with 128 of the person that is
streamed (other segments than those streamed), or not at all. Printed per method and way of
fitting, over all models and both people:

- healthy: the share of undamaged batches in which some sensor is flagged, and each sensor's own;
- named: the share of damaged batches in which the damaged sensor is flagged;
- wrong: the share of damaged batches in which another sensor is flagged;
- the gain of accuracy over the source model on the undamaged and on the damaged batches.

docs/diagnosis.md has the table.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
import tyro
from torch import Tensor

import dasp
from dasp.bench.datasets import DataOptions
from dasp.bench.plan import data_options
from dasp.core.sensors import SENSORS
from dasp.streams.domains import Domain
from dasp.streams.protocols import visits

PEOPLE, BATCH, FITTED, CLEAN = ("p7", "p8"), 64, 128, 512
OWN = "triage"  # the method that can be fitted
TRAINING, SAME, NONE = "training people", "the same person", "nothing"
Inputs = dict[str, Tensor]


class Batches(NamedTuple):
    """Batches of one person: what fits a method, and what is streamed."""

    own: Inputs  # 128 undamaged segments that are not streamed
    stream: list[tuple[str, Inputs, Tensor]]  # the damaged sensor ("" if none), inputs, labels


def inputs_of(data: Any, rows: range, domain: Domain | None = None) -> Inputs:
    """Return {sensor: (n, channels, steps)} of some segments, one sensor damaged."""
    found = {}
    for name in SENSORS:
        samples = data.samples(name, domain if domain and domain.modality == name else None)
        found[name] = torch.stack([samples[row].inputs[name] for row in rows])
    return found


def batches_of(root: Path, person: str, clean: int = CLEAN) -> Batches:
    """Return the batches of a person: undamaged ones first, then one per damage."""
    data = DataOptions("dsa", root, split=person).open()
    labels = torch.tensor(data.labels())
    stream = []
    for start in range(FITTED, FITTED + clean, BATCH):
        rows = range(start, start + BATCH)
        stream.append(("", inputs_of(data, rows), labels[rows.start : rows.stop]))
    rows = range(FITTED, FITTED + BATCH)
    for visit in visits("interleaved/sensors", 5):
        (domain,) = visit.conditions[0].domains
        inputs = inputs_of(data, rows, domain)
        stream.append((domain.modality, inputs, labels[rows.start : rows.stop]))
    return Batches(inputs_of(data, range(FITTED)), stream)


def flags(
    model: Any, method: str, fit: Inputs | None, batches: Batches
) -> Iterator[dict[str, Any]]:
    """Yield, for each batch, what is flagged and how many predictions are right."""
    tta = dasp.adapt(model, method, **data_options("dsa").get(method, {}))
    if fit is not None:
        tta.fit([fit])
    for damaged, inputs, labels in batches.stream:
        out = tta(inputs)
        biased = out.diagnosis.biased if out.diagnosis else frozenset()
        right = int((out.logits.argmax(dim=1) == labels).sum())
        yield {"damaged": damaged, "right": right, **{name: name in biased for name in SENSORS}}


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Return shares in % and gains in points of each method and way of fitting."""
    sensors = list(SENSORS)
    rows = {}
    source = found[found["method"] == "source"]
    for way, own in found[found["method"] != "source"].groupby(["method", "fit"], sort=False):
        clean, damaged = own[own["damaged"] == ""], own[own["damaged"] != ""]
        hit = pd.concat([damaged[damaged["damaged"] == n][n] for n in sensors])
        others = pd.DataFrame({n: damaged[n] & (damaged["damaged"] != n) for n in sensors})
        rows[way] = {
            "healthy": clean[sensors].any(axis=1).mean() * 100,
            **{n: clean[n].mean() * 100 for n in sensors},
            "named": hit.mean() * 100,
            "wrong": others.any(axis=1).mean() * 100,
            **{
                f"gain, {name}": (
                    part["right"].sum()
                    - source.loc[source["damaged"].eq("") == none, "right"].sum()
                )
                / len(part)
                / BATCH
                * 100
                for name, part, none in (("undamaged", clean, True), ("damaged", damaged, False))
            },
        }
    return pd.DataFrame(rows).T.round(1)


def main(
    root: Path,
    models: tuple[str, ...] = ("dsa_0", "dsa_1", "dsa_2"),
    methods: tuple[str, ...] = ("dasp", OWN),
    clean: int = CLEAN,
) -> None:
    """Print how often healthy and damaged sensors of new people are flagged.

    Args:
        root: Directory of Daily and Sports Activities.
        models: Source models.
        methods: Methods that diagnose; our own is fitted in three ways.
        clean: Undamaged segments per person, a multiple of 64.
    """
    torch.set_num_threads(1)
    training = DataOptions("dsa", root).open().source(FITTED)
    everybody = inputs_of(training, range(FITTED))
    found = []
    for person in PEOPLE:
        batches = batches_of(root, person, clean)
        for name in models:
            for method in ("source", *methods):
                ways: dict[str, Inputs | None] = {NONE: None}
                if method == OWN:
                    ways |= {TRAINING: everybody, SAME: batches.own}
                for way, fit in ways.items():
                    model = dasp.load_model(name)
                    known = {"person": person, "model": name, "method": method, "fit": way}
                    found += [known | row for row in flags(model, method, fit, batches)]
    print(table(pd.DataFrame(found)).to_string())


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
