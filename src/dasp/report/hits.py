"""Which samples a run had right: a bit each, in the data set's own order."""

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import InputError


def unpack_hits(packed: str, seen: int, right: int) -> NDArray[np.bool_]:
    """Return which of `seen` samples were right, (seen,), from hexadecimal digits of their bits.

    >>> unpack_hits("a0", 3, 2).tolist()
    [True, False, True]
    """
    try:
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(packed), dtype=np.uint8))
    except ValueError as error:
        raise InputError(f"its hits are not hexadecimal ({error}); run this cell again.") from None
    if len(bits) != -(-seen // 8) * 8 or int(bits.sum()) != right or bits[seen:].any():
        raise InputError(
            f"its hits ({len(bits)} bits, {int(bits.sum())} of them set) contradict its counts "
            f"({right} of {seen} right); run this cell again."
        )
    return bits[:seen].astype(bool)
