"""Measure source models on a data set, clean and under every corruption; nothing adapts.

    python tools/measure_models.py sounding_shapes_0 sounding_shapes_1 sounding_shapes_2
    python tools/measure_models.py grid_0 grid_1 grid_2 --data grid --root DIR --severities

Prints clean accuracy (fused, each modality alone), accuracy by corruption at severity 5 and the
mean over corruptions at each severity, one column per model. `--only depth` damages one modality
only and also shows it alone; `--severities` without a number damages nothing. Recordings are read
from `--root`; all of a split is used unless `--size` says otherwise.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from dasp.bench.datasets import BUILT_IN, DataOptions
from dasp.bench.features import Features, FeatureSpec
from dasp.bench.references import find_model
from dasp.corruptions import names
from dasp.streams import Domain


def accuracy(model, tokens, labels):
    """Return percent right, 128 samples at a time."""
    right = 0
    for rows in torch.arange(len(labels)).split(128):
        guess = model.fuse({name: value[rows] for name, value in tokens.items()}).logits
        right += int((guess.argmax(dim=1) == labels[rows]).sum())
    return round(100 * right / len(labels), 1)


@torch.no_grad()
def measure(features, severities, only):
    """Return {row: accuracy} of one model."""
    model, labels = features.model, features.labels

    def encoded(modality, domain):
        return torch.from_numpy(features.get(FeatureSpec(modality, domain, encoded=True)))

    clean = {name: encoded(name, None) for name in model.modalities}
    rows = {"clean": accuracy(model, clean, labels)}
    for name, tokens in clean.items():
        rows[f"clean {name} alone"] = accuracy(model, {name: tokens}, labels)
    for severity in severities:
        for modality in model.modalities if only is None else (only,):
            found = []
            for name in names(modality):
                damaged = {modality: encoded(modality, Domain(modality, name, severity))}
                found.append(accuracy(model, clean | damaged, labels))
                if severity == 5:
                    rows[f"{modality} {name} 5"] = found[-1]
                if only is not None:
                    alone = accuracy(model, damaged, labels)
                    rows[f"{modality} {name} {severity}, alone"] = alone
            rows[f"{modality} mean {severity}"] = round(float(np.mean(found)), 1)
    return rows


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="of the package, or .safetensors files")
    parser.add_argument("--data", default=BUILT_IN)
    parser.add_argument("--root", type=Path, help="directory of recordings")
    parser.add_argument("--size", type=int, help="samples, by default 1008 built-in ones")
    parser.add_argument("--flavour", default="balanced")
    parser.add_argument("--split", default="test")
    parser.add_argument("--only", help="the modality to damage")
    parser.add_argument("--severities", type=int, nargs="*", default=[5, 4, 3, 2, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = 1008 if options.size is None and options.data == BUILT_IN else options.size
    data = DataOptions(
        options.data, options.root, size, options.split, flavour=options.flavour
    ).open()
    found = [
        measure(Features(data, find_model(name), None), options.severities, options.only)
        for name in options.models
    ]
    for row in found[0]:
        print(f"{row:28}", *(f"{own[row]:6.1f}" for own in found), flush=True)


if __name__ == "__main__":
    main()
