"""One stream, one or more adaptations side by side, and what a page shows of them. No web here."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.errors import OptionError
from dasp.core.types import Inputs, Outcome, Tokens
from dasp.methods import Adaptation
from dasp.page.feed import Point, Update, Wish, number
from dasp.page.pictures import any_picture, wav_file
from dasp.page.readings import by_profile, limits, norms

WINDOW = 5  # batches over which the running accuracy is taken: few, so that it shows a recovery
SHOWN = 4  # samples of a batch that the page shows


@dataclass(frozen=True)
class Taken:
    """One batch of a stream, and what a page may show of its first samples."""

    inputs: Inputs
    labels: Tensor | None = None  # (B,), where they are known
    truth: Mapping[str, str] | None = None
    """What is wrong with each modality, in words; a modality not named is clean. None: unknown."""
    pictures: Sequence[Mapping[str, str]] = ()
    """Of each sample shown: {modality: data address}; where empty, made from the inputs."""
    sounds: Sequence[NDArray[np.float32]] = ()
    rate: int = 16000


class Stream(Protocol):
    """Where batches come from."""

    def controls(self) -> dict[str, Any]:
        """Say which controls there are, for `about`."""

    def state(self) -> dict[str, Any]:
        """Say how they stand."""

    def next(self) -> Taken | None:
        """Give the next batch; None at the end."""

    def restart(self) -> None:
        """Go back to the first batch."""

    def obey(self, wish: Wish) -> None:
        """Set a control, or raise OptionError."""


@dataclass
class Session:
    """A stream and its lanes, {name: adaptation}; the last lane's diagnosis is what is shown.

    With `encode`, a batch is encoded once for all lanes: they must share one frozen encoder.
    """

    stream: Stream
    lanes: Mapping[str, Adaptation]
    title: str
    mode: str = "own"
    legend: str = ""
    classes: Sequence[str] = ()
    encode: Callable[[Inputs], Tokens] | None = None
    follows: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if not self.lanes:
            raise OptionError("a page needs at least one adaptation to show.")
        self._watched = list(self.lanes)[-1]
        self._clear()

    def about(self) -> dict[str, Any]:
        """Say what never changes."""
        tta = self.lanes[self._watched]
        return {
            "title": self.title,
            "mode": self.mode,
            "legend": self.legend,
            "modalities": list(tta.method.model.modalities),
            "lanes": list(self.lanes),
            "watched": self._watched,
            "window": WINDOW,
            "score": "distance from clean" if by_profile(tta) else "redundancy",
            "log_score": by_profile(tta),
            "can": ["play", "pause", "step", "speed", "reset"],
            **self.stream.controls(),
        }

    def state(self) -> dict[str, Any]:
        """Say how the controls of the stream stand."""
        return self.stream.state()

    def obey(self, wish: Wish) -> None:
        """Set a control of the stream."""
        self.stream.obey(wish)

    def reset(self) -> None:
        """Return every lane to its source state and the stream to its start."""
        for tta in self.lanes.values():
            tta.reset()
        self.stream.restart()
        self._clear()

    def next(self) -> Update | None:
        """Take the next batch through every lane."""
        taken = self.stream.next()
        if taken is None:
            return None
        outcomes = self._run(taken.inputs)
        self._count(outcomes, taken.labels)
        point = self._point(taken, outcomes[self._watched])
        self._number += 1
        sounds = {i: wav_file(w, taken.rate) for i, w in enumerate(taken.sounds[:SHOWN])}
        return Update(point, self._samples(taken, outcomes), sounds)

    def _clear(self) -> None:
        self._number = 0
        self._recent: dict[str, deque[tuple[int, int]]] = {
            name: deque(maxlen=WINDOW) for name in self.lanes
        }
        self._total = dict.fromkeys(self.lanes, (0, 0))

    def _run(self, inputs: Inputs) -> dict[str, Outcome]:
        if self.encode is None:
            return {name: tta(inputs) for name, tta in self.lanes.items()}
        tokens = self.encode(inputs)
        return {name: tta.on_tokens(tokens) for name, tta in self.lanes.items()}

    def _count(self, outcomes: Mapping[str, Outcome], labels: Tensor | None) -> None:
        if labels is None:
            return
        for name, outcome in outcomes.items():
            right = int((outcome.logits.argmax(dim=1) == labels.to(outcome.logits.device)).sum())
            self._recent[name].append((right, len(labels)))
            before = self._total[name]
            self._total[name] = (before[0] + right, before[1] + len(labels))

    def _point(self, taken: Taken, outcome: Outcome) -> Point:
        tta, diagnosis = self.lanes[self._watched], outcome.diagnosis
        above = {} if diagnosis is None else limits(tta, diagnosis)
        present = list(taken.inputs)
        return {
            "n": self._number,
            "truth": None if taken.truth is None else dict(taken.truth),
            "missing": [m for m in tta.method.model.modalities if m not in present],
            "scores": {m: number(s) for m, s in diagnosis.scores.items()} if diagnosis else {},
            "limits": {m: number(limit) for m, limit in above.items()},
            "biased": sorted(diagnosis.biased) if diagnosis else [],
            "accuracy": {name: _share(list(own)) for name, own in self._recent.items()},
            "overall": {name: _share([own]) for name, own in self._total.items()},
            "norms": {part: number(norm) for part, norm in norms(tta).items()},
            "updated": outcome.updated,
            "loss": number(outcome.loss),
            "note": outcome.rejected or outcome.rollback,
        }

    def _samples(self, taken: Taken, outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
        size = len(next(iter(taken.inputs.values())))
        sure = {name: o.logits[:SHOWN].softmax(dim=1).cpu() for name, o in outcomes.items()}
        return [self._sample(place, taken, sure) for place in range(min(SHOWN, size))]

    def _sample(self, place: int, taken: Taken, sure: Mapping[str, Tensor]) -> dict[str, Any]:
        label = None if taken.labels is None else int(taken.labels[place])
        if taken.pictures:
            pictures: Mapping[str, str | None] = taken.pictures[place]
        else:
            pictures = {name: any_picture(value[place]) for name, value in taken.inputs.items()}
        predictions = {}
        for name, shares in sure.items():
            best = int(shares[place].argmax())
            predictions[name] = {
                "class": self._name(best),
                "share": number(float(shares[place, best])),
                "right": None if label is None else best == label,
            }
        return {
            "class": None if label is None else self._name(label),
            "pictures": {name: picture for name, picture in pictures.items() if picture},
            "predictions": predictions,
            "sound": place < len(taken.sounds),
        }

    def _name(self, place: int) -> str:
        return self.classes[place] if place < len(self.classes) else f"class {place}"


def _share(counts: Sequence[tuple[int, int]]) -> float | None:
    total = sum(count for _, count in counts)
    return number(sum(right for right, _ in counts) / total) if total else None
