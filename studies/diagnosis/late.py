"""Views of late-fusion models through `dasp.wrap`: the worlds and models of studies/wrap."""

import sys
from pathlib import Path

import numpy as np
import torch
from views import Arrays, alone, everything, view

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "wrap"))
import late_fusion

FUSIONS = late_fusion.FUSIONS
NAMES = tuple(f"late_{fusion}" for fusion in FUSIONS)
SAMPLES, FIT, SEED = 2048, 512, 0
STARTS = {"validation": 100_000, "test": 200_000}  # seeds of the samples


def write(name: str, split: str, folder: Path) -> None:
    """Train a model and write its views: clean.npz, fit.npz and one file per damage."""
    folder = folder / name
    if (folder / "clean.npz").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    world = late_fusion.World(SEED)
    late = late_fusion.trained(name.removeprefix("late_"), world, SEED)
    model = late_fusion.wrapped(late, world).eval()
    with torch.no_grad():
        inputs, labels = world.draw(STARTS[split], SAMPLES)
        tokens = _encoded(model, inputs)
        for sensor in late_fusion.SENSORS:
            for damage, apply in late_fusion.DAMAGES.items():
                damaged = apply(inputs[sensor], torch.Generator().manual_seed(1))
                own = _encoded(model, {sensor: damaged})[sensor]
                joint = view(model, {**tokens, sensor: own}, late_fusion.SENSORS)["logits"]
                found: Arrays = {"right": joint.argmax(axis=1) == labels.numpy()}
                found |= alone(model, sensor, own)
                np.savez(folder / f"{sensor}-{damage}.npz", **found)
        known, classes = world.draw(9_000, FIT)
        np.savez(folder / "fit.npz", **everything(model, _encoded(model, known), classes))
        np.savez(folder / "clean.npz", **everything(model, tokens, labels))


def _encoded(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: own.numpy() for name, own in model.encode(inputs).items()}
