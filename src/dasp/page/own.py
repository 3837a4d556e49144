"""A user's own stream on the page."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.errors import InputError, OptionError
from dasp.core.types import Batch
from dasp.page.feed import Wish
from dasp.page.session import SHOWN, Taken

SHORTEST_SOUND = 1000  # numbers in a row that are taken for a sound


class OwnStream:
    """Batches as `tta` takes them: inputs, (inputs, labels), or `dasp.core.types.Batch`.

    Inputs of shape (B, samples) count as sounds at `rate` and can be heard.
    """

    def __init__(self, batches: Iterable[Any], rate: int = 16000) -> None:
        self._batches, self._rate = batches, rate
        try:
            self.restart()
        except TypeError as error:
            raise InputError(f"a stream is a list or another iterable: {error}.") from error

    def controls(self) -> dict[str, Any]:
        """There is nothing to control but the run itself."""
        return {}

    def state(self) -> dict[str, Any]:
        """Nor has it a state."""
        return {}

    def obey(self, wish: Wish) -> None:
        """Refuse every wish."""
        raise OptionError(f"'{wish['do']}' is for the built-in stream; this one comes as it is.")

    def restart(self) -> None:
        """Begin anew; an iterator, which can be read once only, goes on where it is."""
        self._iterator: Iterator[Any] = iter(self._batches)

    def next(self) -> Taken | None:
        """Give the next batch, None at the end."""
        item = next(self._iterator, None)
        if item is None:
            return None
        if isinstance(item, Batch):
            truth = {"": item.domain} if item.domain else None
            return self._taken(item.inputs, item.labels, truth)
        if isinstance(item, Mapping):
            return self._taken(item, None, None)
        if isinstance(item, tuple | list) and len(item) >= 2 and isinstance(item[0], Mapping):
            return self._taken(item[0], item[1], None)
        raise InputError(
            f"a stream gives {{modality: tensor}}, or that and labels, not {type(item).__name__}."
        )

    def _taken(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None, truth: Mapping[str, str] | None
    ) -> Taken:
        for name, value in inputs.items():
            if not isinstance(value, Tensor):
                raise InputError(f"'{name}' must be a tensor, not {type(value).__name__}.")
        return Taken(inputs, labels, truth, sounds=_sounds(inputs), rate=self._rate)


def _sounds(inputs: Mapping[str, Tensor]) -> list[NDArray[np.float32]]:
    """Return the first waves among the inputs, at full scale at most."""
    for value in inputs.values():
        if value.ndim == 2 and value.shape[1] >= SHORTEST_SOUND and value.is_floating_point():
            waves = value[:SHOWN].detach().float().cpu().numpy()
            return [np.nan_to_num(wave / max(1.0, float(np.abs(wave).max()))) for wave in waves]
    return []
