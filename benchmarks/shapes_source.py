"""Measure the shipped source models on sounding shapes, clean and under every corruption.

    python benchmarks/shapes_source.py --weights src/dasp/models/pretrained/sounding_shapes_[0-9]*

prints clean accuracy (fused, each modality alone), accuracy by corruption at severity 5 and the
mean over corruptions at each severity; of models with three sensors also those of depth. Nothing
here adapts.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from dasp.corruptions import corrupt_depth, corrupt_frame, corrupt_sound, names
from dasp.data.shapes import SoundingShapes, audio_input, depth_input, video_input
from dasp.models import load_trained

CORRUPT = {"video": corrupt_frame, "audio": corrupt_sound, "depth": corrupt_depth}
INPUT = {"video": video_input, "audio": audio_input, "depth": depth_input}


class Material:
    """Clean frames, sounds, depths and labels of a set, drawn once."""

    def __init__(self, size, flavour, split):
        self.shapes = SoundingShapes(split, size, flavour)
        self.raw = {
            "video": np.stack([self.shapes.frame(i) for i in range(size)]),
            "audio": np.stack([self.shapes.wave(i) for i in range(size)]),
            "depth": np.stack([self.shapes.depth(i) for i in range(size)]),
        }
        self.ids = [self.shapes.sample_id(i) for i in range(size)]
        self.labels = torch.tensor([self.shapes.label(i) for i in range(size)])

    def damaged(self, modality, name, severity):
        values = [
            CORRUPT[modality](value, name, severity, 0, sample)
            for value, sample in zip(self.raw[modality], self.ids, strict=True)
        ]
        return INPUT[modality](np.stack(values))


def encode(model, modality, inputs):
    parts = [model.encode({modality: part})[modality] for part in inputs.split(128)]
    return torch.cat(parts)


def accuracy(model, tokens, labels):
    right = 0
    for start in range(0, len(labels), 128):
        part = {name: value[start : start + 128] for name, value in tokens.items()}
        guess = model.fuse(part).logits.argmax(dim=1)
        right += int((guess == labels[start : start + 128]).sum())
    return round(100 * right / len(labels), 1)


@torch.no_grad()
def measure(models, material, severities, only):
    modalities = [m for m in material.raw if all(m in model.modalities for model in models)]
    clean = {m: INPUT[m](material.raw[m]) for m in modalities}
    tokens = [{m: encode(model, m, clean[m]) for m in clean} for model in models]
    rows = {"clean": [accuracy(m, t, material.labels) for m, t in zip(models, tokens, strict=True)]}
    for alone in clean:
        rows[f"clean {alone} alone"] = [
            accuracy(m, {alone: t[alone]}, material.labels)
            for m, t in zip(models, tokens, strict=True)
        ]
    for severity in severities:
        for modality in modalities if only is None else (only,):
            figures = []
            for name in names(modality):
                inputs = material.damaged(modality, name, severity)
                figures.append(
                    [
                        accuracy(m, t | {modality: encode(m, modality, inputs)}, material.labels)
                        for m, t in zip(models, tokens, strict=True)
                    ]
                )
                if severity == 5:
                    rows[f"{modality} {name} 5"] = figures[-1]
                if only is not None:
                    rows[f"{modality} {name} {severity}, alone"] = [
                        accuracy(m, {modality: encode(m, modality, inputs)}, material.labels)
                        for m in models
                    ]
            rows[f"{modality} mean {severity}"] = np.mean(figures, axis=0).round(1).tolist()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, nargs="+", required=True)
    parser.add_argument("--size", type=int, default=1008)
    parser.add_argument("--flavour", default="balanced")
    parser.add_argument("--split", default="test")
    parser.add_argument("--only", choices=list(INPUT), help="damage this modality, show it alone")
    parser.add_argument("--severities", type=int, nargs="+", default=[5, 4, 3, 2, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    models = [load_trained(path) for path in options.weights]
    material = Material(options.size, options.flavour, options.split)
    found = measure(models, material, options.severities, options.only)
    for row, figures in found.items():
        print(f"{row:28}", *(f"{figure:6.1f}" for figure in figures), flush=True)
    print(json.dumps({"samples": options.size, "seconds": round(time.perf_counter() - start)}))


if __name__ == "__main__":
    main()
