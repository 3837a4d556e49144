"""Generators made from what they are for, so that no result depends on order or workers."""

import hashlib

import numpy as np

from dasp.core.errors import OptionError

SEED_LIMIT = 2**31


def numpy_generator(seed: int, *purpose: str) -> np.random.Generator:
    """Return the generator of (seed, purpose): the same draws whoever asks, whenever.

    `purpose` is a path of names such as ("video/fog/3", "clip_0017").

    >>> int(numpy_generator(0, "video/fog/3", "a").integers(1000)) == int(
    ...     numpy_generator(0, "video/fog/3", "a").integers(1000))
    True
    """
    check_seed(seed)
    text = "\x1f".join((str(seed), *purpose))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def batch_seed(seed: int, batch_index: int) -> int:
    """Return the seed of a method's generator for one batch of the stream.

    With seed 0 this is the batch index itself, as in the reference figures.
    """
    check_seed(seed)
    return (seed << 32) + batch_index


def check_seed(seed: int) -> None:
    """Refuse a seed that a generator cannot take."""
    if not isinstance(seed, int) or not 0 <= seed < SEED_LIMIT:
        raise OptionError(f"seed must be a whole number from 0 to {SEED_LIMIT - 1}, not {seed!r}.")
