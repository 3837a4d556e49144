"""Measure source models on the built-in set, clean and under every corruption; nothing adapts.

    python tools/measure_models.py sounding_shapes_0 sounding_shapes_1 sounding_shapes_2

Prints clean accuracy (fused, each modality alone), accuracy by corruption at severity 5 and the
mean over corruptions at each severity, one column per model. `--only depth` damages one modality
only and also shows it alone.
"""

import argparse

import numpy as np
import torch

from dasp.bench.datasets import BuiltIn
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
    parser.add_argument("--size", type=int, default=1008, help="samples")
    parser.add_argument("--flavour", default="balanced")
    parser.add_argument("--split", default="test")
    parser.add_argument("--only", choices=["audio", "video", "depth"])
    parser.add_argument("--severities", type=int, nargs="+", default=[5, 4, 3, 2, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = BuiltIn(options.size, options.flavour, options.split)
    found = [
        measure(Features(data, find_model(name), None), options.severities, options.only)
        for name in options.models
    ]
    for row in found[0]:
        print(f"{row:28}", *(f"{own[row]:6.1f}" for own in found), flush=True)


if __name__ == "__main__":
    main()
