"""Run one stream through several adaptations side by side, and say what a page shows of them."""

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from dasp.core.errors import OptionError
from dasp.core.types import Diagnosis, Inputs, Outcome, Tokens
from dasp.data.shapes import NAMES, SoundingShapes
from dasp.methods import Adaptation, adapt
from dasp.methods.dasp import Dasp
from dasp.methods.robust import Robust
from dasp.models import load_model
from dasp.page.runner import RUN_COMMANDS, Command, Feed, Point, Update, finite
from dasp.page.streams import BATCH, SHOWN, BuiltInStream, StreamBatch, UserStream

CPU = torch.device("cpu")
WINDOW = 5  # batches of the running accuracy: few, so that a recovery is seen
# Chosen by `tools/tune.py` on this data set, see src/dasp/plans/options/sounding_shapes.toml.
READ_RATE, DASP_RATE = 1e-3, 3e-3
CLEAN_SAMPLES, CLEAN_BATCH = 128, 32  # given to `fit` of the robust method

VARIANTS = {
    "released": "DASP as its authors released it",
    "paper": "DASP as the paper's equations say",
    "robust": f"our method built on DASP, which has seen {CLEAN_SAMPLES} clean samples before",
}


@dataclass
class Session(Feed):
    """A stream and its lanes, {name: adaptation}; the page shows the last lane's diagnosis.

    With `encode`, each batch is encoded once for all lanes, which must share one frozen encoder.
    """

    stream: BuiltInStream | UserStream
    lanes: Mapping[str, Adaptation]
    title: str
    legend: str = ""
    classes: Sequence[str] = ()
    encode: Callable[[Inputs], Tokens] | None = None

    def __post_init__(self) -> None:
        if not self.lanes:
            raise OptionError("a page needs at least one adaptation to show.")
        self._watched = list(self.lanes)[-1]
        self._clear()

    def about(self) -> dict[str, Any]:
        """Return what is fixed: title, lanes, modalities, commands."""
        tta, own = self.lanes[self._watched], self.stream.about()
        return {
            "title": self.title,
            "legend": self.legend,
            "modalities": list(tta.method.model.modalities),
            "lanes": list(self.lanes),
            "watched": self._watched,
            "window": WINDOW,
            "profile": _scored_by_profile(tta),
            **own,
            "can": [*RUN_COMMANDS, *own["can"]],
        }

    def state(self) -> dict[str, Any]:
        """Return the state of the stream's controls."""
        return {} if isinstance(self.stream, UserStream) else self.stream.state()

    def control(self, command: Command) -> None:
        """Set a control of the stream; a user's own has none."""
        if isinstance(self.stream, BuiltInStream):
            self.stream.control(command)

    def reset(self) -> None:
        """Return every lane to its source state and the stream to its start."""
        for tta in self.lanes.values():
            tta.reset()
        self._clear()

    def next(self) -> Update | None:
        """Run the next batch through every lane; return None at the end of the stream."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        if self.encode is None:
            outcomes = {name: tta(batch.inputs) for name, tta in self.lanes.items()}
        else:
            with torch.no_grad():
                tokens = self.encode(batch.inputs)
            outcomes = {name: tta.on_tokens(tokens) for name, tta in self.lanes.items()}
        if batch.labels is not None:
            self._count(outcomes, batch.labels)
        point = self._point(batch, outcomes[self._watched])
        self._number += 1
        shares = {name: o.logits[:SHOWN].softmax(dim=1).cpu() for name, o in outcomes.items()}
        shown = range(len(shares[self._watched]))
        return Update(point, [self._sample(i, batch, shares) for i in shown], batch.sounds)

    def _clear(self) -> None:
        self._number, self._batches = 0, iter(self.stream)
        self._recent = {name: deque[tuple[int, int]](maxlen=WINDOW) for name in self.lanes}
        self._total = dict.fromkeys(self.lanes, (0, 0))  # (correct, seen), as in `_recent`

    def _count(self, outcomes: Mapping[str, Outcome], labels: Tensor) -> None:
        for name, outcome in outcomes.items():
            correct = int((outcome.logits.argmax(dim=1) == labels.to(outcome.logits.device)).sum())
            self._recent[name].append((correct, len(labels)))
            before, seen = self._total[name]
            self._total[name] = before + correct, seen + len(labels)

    def _point(self, batch: StreamBatch, outcome: Outcome) -> Point:
        tta, diagnosis = self.lanes[self._watched], outcome.diagnosis
        limits = {} if diagnosis is None else _thresholds(tta, diagnosis)
        return {
            "n": self._number,
            "truth": None if batch.truth is None else dict(batch.truth),
            "missing": [m for m in tta.method.model.modalities if m not in batch.inputs],
            "scores": {m: finite(s) for m, s in diagnosis.scores.items()} if diagnosis else {},
            "limits": {m: finite(limit) for m, limit in limits.items()},
            "biased": sorted(diagnosis.biased) if diagnosis else [],
            "accuracy": {name: _share(list(counts)) for name, counts in self._recent.items()},
            "overall": {name: _share([counts]) for name, counts in self._total.items()},
            "norms": {part: finite(norm) for part, norm in _norms(tta).items()},
            "loss": finite(outcome.loss),
            "note": outcome.rejected or outcome.rollback,
            "skipped": outcome.skipped,
        }

    def _sample(self, index: int, batch: StreamBatch, shares: Mapping[str, Tensor]) -> Point:
        def named(place: int) -> str:
            return self.classes[place] if place < len(self.classes) else f"class {place}"

        label = None if batch.labels is None else int(batch.labels[index])
        predictions = {}
        for name, lane in shares.items():
            share, best = lane[index].max(dim=0)
            right = None if label is None else int(best) == label
            own = {"class": named(int(best)), "share": finite(float(share)), "right": right}
            predictions[name] = own
        shown = {"class": None if label is None else named(label), "predictions": predictions}
        return shown | {"pictures": dict(batch.pictures[index]), "sound": index in batch.sounds}


def demo_session(
    variant: str = "released",
    stream: BuiltInStream | None = None,
    device: torch.device = CPU,
) -> Session:
    """Return Source, READ and DASP, all in their source state, on the built-in stream."""
    model = load_model("sounding_shapes_0").to(device)

    def encode(inputs: Inputs) -> Tokens:
        found: Tokens = model.encode({n: v.to(device) for n, v in inputs.items()})  # type: ignore[operator]
        return found

    lanes = {"Source": adapt(model, "source")}
    lanes["READ"] = adapt(copy.deepcopy(model), "read", lr=READ_RATE)
    if variant == "robust":
        lanes["DASP"] = adapt(model, "robust", lr=DASP_RATE)
        clean = DataLoader(SoundingShapes("validation", CLEAN_SAMPLES), CLEAN_BATCH)
        with torch.no_grad():
            lanes["DASP"].fit_on_tokens([encode(batch.inputs) for batch in clean])
    else:
        lanes["DASP"] = adapt(model, "dasp", lr=DASP_RATE, variant=variant)
    return Session(
        stream or BuiltInStream(),
        lanes,
        title="dasp: a sensor goes bad",
        legend=f"{VARIANTS[variant]} (learning rate {DASP_RATE:g}); READ (learning rate "
        f"{READ_RATE:g}); Source, the model as trained. All three get the same batches of {BATCH} "
        f"samples, no labels, and predict before they learn.",
        classes=NAMES,
        encode=encode,
    )


def _scored_by_profile(tta: Adaptation) -> bool:
    """Return whether the score is the distance from clean samples instead of redundancy."""
    if not isinstance(tta.method, Robust):
        return False
    diagnoser = tta.method.diagnoser
    return diagnoser.score == "profile" and bool(diagnoser.fitted)


def _thresholds(tta: Adaptation, diagnosis: Diagnosis) -> dict[str, float]:
    """Return the score above which each modality would have been biased; {} if unknown."""
    if not isinstance(tta.method, Dasp):
        return {}
    margin = 0.0 if _scored_by_profile(tta) else tta.method.delta
    return {m: s - diagnosis.differences[m] + margin for m, s in diagnosis.scores.items()}


@torch.no_grad()
def _norms(tta: Adaptation) -> dict[str, float]:
    """Return ‖θ − θ₀‖ per part: "audio plastic", "audio stable", …; "shared" for the rest."""
    squares: dict[str, float] = {}
    for path, weight in tta.memory.weights.items():
        words = path.split(".")
        part = " ".join(words[1:3]) if words[0] == "adapters" else "shared"
        change = weight.float() - tta.source.tensors[f"weight/{path}"].float()
        squares[part] = squares.get(part, 0.0) + float(change.square().sum())
    return {part: square**0.5 for part, square in squares.items()}


def _share(counts: Sequence[tuple[int, int]]) -> float | None:
    total = sum(count for _, count in counts)
    return finite(sum(correct for correct, _ in counts) / total) if total else None
