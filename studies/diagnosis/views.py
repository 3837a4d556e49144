"""What source models make of clean and damaged samples: one file of arrays per condition.

A *view* is all that a diagnosis is made from: for each modality a summary of its tokens, and
embedding and logits of the modality alone; and the prediction from all of them, from which the cost
of a damage is computed. Views are written to a folder, so that every statistic can be tried on the
same ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import dasp.bench.recordings  # noqa: F401 - registers its data sets
from dasp.bench.datasets import DataOptions
from dasp.bench.features import CHUNK, Features, FeatureSpec
from dasp.bench.references import find_model
from dasp.bench.store import Store
from dasp.methods.diagnosis import summaries
from dasp.streams import worn
from dasp.streams.domains import Domain, all_domains

FIT = 512  # clean training samples, from which those for `fit` are drawn
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A model, its data, and where clean samples for `fit` come from.

    `fit` is "train" (training samples), the name of a split that the model was not trained with, or
    "same": those samples take no part in the rest. Words are fitted with held-out ones, because
    the models know their training clips by heart.
    """

    model: str
    data: Mapping[str, Any]
    fit: str = "train"
    severities: tuple[int, ...] = (5,)

    @property
    def name(self) -> str:
        return Path(self.model).stem

    def domains(self, modalities: tuple[str, ...]) -> list[Domain]:
        if self.data.get("name") == "dsa":
            pairs = [(m, c) for m in modalities for c in worn.CORRUPTIONS]
            return [Domain(m, c, s) for s in self.severities for m, c in pairs]
        return [d for s in self.severities for d in all_domains(modalities, (), (s,))]


@torch.no_grad()
def view(model: nn.Module, tokens: Mapping[str, np.ndarray], names: tuple[str, ...]) -> Arrays:
    """Return embeddings and logits of some modalities fused: {"embedding", "logits"}."""
    parts = []
    for start in range(0, len(next(iter(tokens.values()))), CHUNK):
        rows = slice(start, start + CHUNK)
        parts.append(model.fuse({n: torch.from_numpy(np.array(tokens[n][rows])) for n in names}))
    keys = ("embedding", "logits")
    return {key: torch.cat([getattr(p, key).float() for p in parts]).numpy() for key in keys}


def alone(model: nn.Module, name: str, tokens: np.ndarray) -> Arrays:
    """Return the view of one modality, as {"name.summary": (n, 1 + S, D), …}."""
    found = view(model, {name: tokens}, (name,))
    summary = summaries({name: torch.from_numpy(np.array(tokens))})[name]
    found["summary"] = summary.float().numpy()
    return {f"{name}.{key}": value for key, value in found.items()}


def everything(model: nn.Module, tokens: Mapping[str, np.ndarray], labels: Tensor) -> Arrays:
    """Return the views of all modalities of clean samples, and their labels."""
    found: Arrays = {"labels": np.asarray(labels)}
    for name, own in tokens.items():
        found |= alone(model, name, own)
    joint = view(model, tokens, tuple(tokens))["logits"].argmax(axis=1)
    return found | {"right": joint == found["labels"]}


def write(subject: Subject, folder: Path, store: Path) -> None:
    """Write the views of a subject: clean.npz, fit.npz and one file per domain."""
    folder = folder / subject.name
    folder.mkdir(parents=True, exist_ok=True)
    model = find_model(subject.model).eval()
    names: tuple[str, ...] = tuple(model.modalities)  # type: ignore[arg-type]
    dataset = DataOptions(**subject.data).open()
    features = Features(dataset, model, Store(store))
    clean = {name: features.get(FeatureSpec(name, None, True)) for name in names}
    if not (folder / "clean.npz").exists():
        np.savez(folder / "clean.npz", **everything(model, clean, features.labels))
    if not (folder / "fit.npz").exists() and subject.fit != "same":
        if subject.fit == "train":
            source = dataset.source(FIT)
        else:
            source = DataOptions(**{**subject.data, "split": subject.fit, "samples": FIT}).open()
        known = Features(source, model, Store(store), features.model_digest)
        tokens = {name: known.get(FeatureSpec(name, None, True)) for name in names}
        np.savez(folder / "fit.npz", **everything(model, tokens, known.labels))
    for domain in subject.domains(names):
        path = folder / f"{str(domain).replace('/', '-')}.npz"
        if not path.exists():
            own = features.get(FeatureSpec(domain.modality, domain, True))
            joint = view(model, {**clean, domain.modality: own}, names)["logits"].argmax(axis=1)
            right = joint == features.labels.numpy()
            np.savez(path, right=right, **alone(model, domain.modality, own))


def subjects(split: str, recordings: Path | None) -> Iterator[Subject]:
    """Return the models of this study with the data of "validation" or "test"."""
    shapes = {"split": split, "samples": 1024}
    for number in range(3):
        yield Subject(f"sounding_shapes_{number}", shapes)
    yield Subject("sounding_shapes_sound_0", {**shapes, "flavour": "sound"})
    for number in range(3):
        yield Subject(f"sounding_shapes_depth_{number}", shapes)
    if recordings is not None:
        people = "p6" if split == "validation" else "p7"
        for number in range(3):
            worn_data = {"name": "dsa", "root": recordings / "dsa", "split": people}
            yield Subject(f"dsa_{number}", worn_data, "same")
        data = {"name": "grid", "root": recordings / "grid", "split": split, "samples": 256}
        held_out = "same" if split == "validation" else "validation"
        for number in range(3):
            yield Subject(f"grid_{number}", data, held_out)
