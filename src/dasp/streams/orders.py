"""In which order the samples of a data set come."""

import numpy as np
from numpy.typing import NDArray

ORDERS = ("shuffled", "dirichlet", "sorted")
CONCENTRATION = 0.1  # of the Dirichlet: most samples of a class fall into one or two batches


def sample_order(
    order: str, labels: NDArray[np.int64], batch_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return a permutation (n,) of the samples whose labels (n,) are given.

    shuffled: evenly at random. dirichlet: each class in bursts, its samples spread over the
    batches by shares drawn from a Dirichlet of .1. sorted: one class after another.

    >>> labels = np.array([1, 0, 1, 0])
    >>> labels[sample_order("sorted", labels, 2, np.random.default_rng(0))].tolist()
    [0, 0, 1, 1]
    """
    count = len(labels)
    if order == "shuffled":
        return rng.permutation(count)
    place = labels
    if order == "dirichlet":
        slots = max(1, count // batch_size)
        shares = rng.dirichlet([CONCENTRATION] * slots, size=int(labels.max()) + 1)
        ends = shares.cumsum(axis=1)[labels]
        place = np.minimum((rng.random((count, 1)) >= ends).sum(axis=1), slots - 1)
    return np.lexsort((rng.random(count), place))
