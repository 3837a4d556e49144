"""Bootstrap intervals of a mean of whole numbers, exact: no resample is drawn, all are counted."""

import math

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
_REACH = 12.0  # standard deviations on each side; what lies beyond has no weight that counts
_ROUNDING = 1e-9


def mean_interval(values: NDArray[np.int64], level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of whole numbers, (n,).

    A resample is n draws with replacement, so its sum is distributed as the n-fold convolution of
    the values' own frequencies; a Fourier transform gives that whole. The same ends as endlessly
    many resamples, free of chance: the order of the values is of no account, and those of the
    negated values mirror them.

    >>> mean_interval(np.array([0, 0, 1, 1]))
    (0.0, 1.0)
    """
    n, least = len(values), int(values.min())
    offsets = values - least
    mean, deviation = n * float(offsets.mean()), math.sqrt(n) * float(offsets.std())
    first = math.floor(mean - _REACH * deviation)
    length = 2 ** math.ceil(math.log2(2 * _REACH * deviation + int(offsets.max()) + 2))
    one = np.bincount(offsets, minlength=length) / n
    wrapped = np.fft.irfft(np.fft.rfft(one) ** n, length)  # sums, modulo the length
    chances = np.roll(wrapped, -(first % length))  # of first, first + 1, …
    tail = (1 - level) / 2 - _ROUNDING
    low = int(np.argmax(np.cumsum(chances) >= tail))
    high = length - 1 - int(np.argmax(np.cumsum(chances[::-1]) >= tail))
    shift = first + n * least
    return (low + shift) / n, (high + shift) / n
