"""What a page can show: the types that pass between whatever runs and whoever looks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Point = dict[str, Any]
"""What the charts need of one batch, as JSON has it. `n` is its number since the last reset.

`truth` {modality: text}, or None where nobody knows; `scores`, `limits` {modality: number};
`biased` [modality]; `accuracy` (of the last batches), `overall` {lane: share}; `norms` {part:
distance from the source}; `updated`, `loss`, `missing`, `note`.
"""

Wish = Mapping[str, Any]
"""What a page asks for, such as {"do": "corrupt", "modality": "audio", ...}; parsed JSON."""


@dataclass(frozen=True)
class Update:
    """One batch, as a page sees it."""

    point: Point
    samples: list[dict[str, Any]] = field(default_factory=list)
    """Some samples of the batch: pictures, classes, predictions."""
    sounds: Mapping[int, bytes] = field(default_factory=dict)
    """WAV files of those samples, by their place."""
    keep: int | None = None
    """Where the stream went back: points from this number on no longer count. None: all do."""


class Feed(Protocol):
    """A source of updates. `next` and `reset` are called by one thread, `obey` by any."""

    follows: bool
    """True: what it shows runs elsewhere; it is watched, and cannot be stopped or stepped."""

    def about(self) -> dict[str, Any]:
        """Say what never changes: title, modalities, lanes, which controls there are."""

    def state(self) -> dict[str, Any]:
        """Say how the controls stand."""

    def next(self) -> Update | None:
        """Go one batch on; None if there is none (now, or any more)."""

    def reset(self) -> None:
        """Start over from the source state."""

    def obey(self, wish: Wish) -> None:
        """Set a control; raises OptionError, and changes nothing, if it cannot be."""


def number(value: float | None) -> float | None:
    """Return a number as JSON has it, with five digits: None where it is not finite.

    >>> number(float("nan")), number(0.1234567)
    (None, 0.12346)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")
