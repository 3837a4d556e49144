"""What could be gained at most with labels: by weights of predictions, and by a new classifier.

    python studies/triage/ceiling.py sounding_shapes sounding_shapes_0
    python studies/triage/ceiling.py grid grid_0 --root DIR --samples 64

For each modality, averages over its corruptions at severity 5, on the *validation* samples of
streams.py: accuracy of the joint prediction from corrupted tokens (source) and from tokens moved to
the clean mean (aligned), of the healthy modality alone, and of the product of these two and the
treated modality alone to the powers that are best for this domain (weights). Those powers are
chosen with labels, on the samples that are counted, so no method that weights these predictions
gains more. Last, the same with a linear discriminant of the damaged mean tokens in place of the
treated modality alone (classifier): for each fifth of the samples it is trained with the labels of
the other four.
"""

from itertools import product

import numpy as np
import torch
import tyro

from dasp.bench.datasets import DataOptions
from dasp.bench.features import Features, FeatureSpec
from dasp.bench.references import find_model
from dasp.bench.store import Store
from streams import ALL, Options, conditions

JOINT, HEALTHY, TREATED = (
    (0.0, 0.5, 1.0),
    (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0),
    (0.0, 0.25, 0.5, 1.0, 2.0),
)
FOLDS, PRIOR, RIDGE = 5, 4.0, 0.1  # of the discriminant: samples at the centre, share of variance


@torch.no_grad()
def domain_accuracies(features: Features, modality: str, condition: dict) -> dict[str, float]:
    """Return the accuracy of each kind of prediction on one domain."""

    def tokens(name: str) -> torch.Tensor:
        spec = FeatureSpec(name, condition.get(name), encoded=True)
        return torch.tensor(np.array(features.get(spec)))

    def log_shares(**given: torch.Tensor) -> torch.Tensor:
        return features.model.fuse(given).logits.log_softmax(dim=1)

    def accuracy(logits: torch.Tensor) -> float:
        return 100 * float((logits.argmax(dim=1) == features.labels).float().mean())

    seen = {name: tokens(name) for name in features.modalities}
    clean = torch.tensor(np.array(features.get(FeatureSpec(modality, None, encoded=True))))
    moved = seen[modality] + clean.mean(dim=(0, 1)) - seen[modality].mean(dim=(0, 1))
    source, aligned = log_shares(**seen), log_shares(**{**seen, modality: moved})
    healthy = log_shares(**{name: own for name, own in seen.items() if name != modality})
    treated = log_shares(**{modality: moved})
    learned = discriminant(seen[modality].mean(dim=1).double(), features.labels)

    def best(own: torch.Tensor) -> float:
        powers = product(JOINT, HEALTHY, TREATED)
        return max(accuracy(j * aligned + h * healthy + t * own) for j, h, t in powers)

    return {
        "source": accuracy(source),
        "aligned": accuracy(aligned),
        "healthy alone": accuracy(healthy),
        "best weights": best(treated),
        "with a classifier trained with labels": best(learned),
    }


def discriminant(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return log p (n, C) of each row (n, D), by class means and covariance of four fifths."""
    classes, part = int(labels.max()) + 1, torch.arange(len(rows)) % FOLDS
    found = rows.new_zeros(len(rows), classes)
    for number in range(FOLDS):
        known, held = part != number, part == number
        centre = rows[known].mean(dim=0)
        own = torch.nn.functional.one_hot(labels[known], classes).to(rows)
        means = own.T @ (rows[known] - centre) / (own.sum(dim=0)[:, None] + PRIOR)
        left = rows[known] - centre - means[labels[known]]
        within = left.T @ left / len(left)
        within += RIDGE * within.diagonal().mean() * torch.eye(len(within)).to(within)
        towards = torch.linalg.solve(within, means.T)
        found[held] = (rows[held] - centre) @ towards - (means.T * towards).sum(dim=0) / 2
    return found.log_softmax(dim=1)


def main(options: Options) -> None:
    """Print the averages of each modality."""
    torch.set_num_threads(1)
    data = DataOptions(options.data, options.root, ALL[options.data], "validation", seed=1).open()
    features = Features(data, find_model(options.model), Store(options.store))
    for modality in features.modalities:
        found = [
            domain_accuracies(features, modality, condition)
            for condition in conditions(options, features.modalities, f"continual/{modality}")
        ]
        means = {kind: np.mean([own[kind] for own in found]) for kind in found[0]}
        print(modality, ", ".join(f"{kind} {value:.2f}" for kind, value in means.items()))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
