"""Random generators seeded by their purpose, so that results do not depend on order or workers."""

import hashlib

import numpy as np

from dasp.core.errors import OptionError

GOLDEN = 0x9E3779B1  # 2**32 / golden ratio: multiples of it spread evenly


def numpy_generator(seed: int, *purpose: str) -> np.random.Generator:
    """Return the generator of (seed, purpose), which always yields the same draws.

    `purpose` is a sequence of names such as ("video/fog/3", "clip_0017").
    """
    check_seed(seed)
    for name in purpose:
        if not isinstance(name, str):
            raise OptionError(
                f"the purpose of a generator (corruption, sample_id) consists of strings, "
                f"not {name!r}: use str({name!r})."
            )
    text = "\x1f".join((str(seed), *purpose))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def batch_seed(seed: int, batch_index: int) -> int:
    """Return the seed of a method's generator for one batch of the stream.

    torch's CPU generator uses 32 bits of a seed, so the stream of each `seed` starts far from the
    others in that range. With seed 0 this is the batch index itself, as in the reference figures.
    """
    check_seed(seed)
    return (seed * GOLDEN + batch_index) % 2**32


def check_seed(seed: int) -> None:
    """Raise an error for a seed that a generator cannot take."""
    if not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise OptionError(f"seed must be an integer from 0 to {2**31 - 1}, not {seed!r}.")
