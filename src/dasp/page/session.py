"""Run one stream through several adaptations side by side, and say what a page shows of them."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dasp.core.errors import OptionError
from dasp.core.types import Diagnosis, Inputs, Outcome, Tokens
from dasp.methods import Adaptation
from dasp.methods.base import device_of
from dasp.methods.dasp import Dasp
from dasp.methods.diagnosis import Diagnoser
from dasp.methods.source import Source
from dasp.page.dropped import Reader, fitting, read_arrays
from dasp.page.pictures import input_picture
from dasp.page.runner import RUN_COMMANDS, Command, Feed, Point, Update, finite
from dasp.page.streams import SHOWN, StageStream, StreamBatch, UserStream

WINDOW = 5  # batches of the running accuracy: few, so that a recovery is seen
UNADAPTED = "without adaptation"


@dataclass
class Session(Feed):
    """A stream and its lanes, {name: adaptation}; the page shows the last lane's diagnosis.

    With `encode`, each batch is encoded once for all lanes whose encoders are frozen, which must
    then share one encoder. `read` turns files that were dropped on the page into inputs.
    """

    stream: StageStream | UserStream
    lanes: Mapping[str, Adaptation]
    title: str
    legend: str = ""
    classes: Sequence[str] = ()
    encode: Callable[[Inputs], Tokens] | None = None
    read: Reader = read_arrays

    def __post_init__(self) -> None:
        if not self.lanes:
            raise OptionError("a page needs at least one adaptation to show.")
        self._lock = threading.Lock()  # of the adaptations: a dropped sample comes from elsewhere
        self._example: Inputs = {}  # the inputs of the last batch
        self._clear()

    @property
    def _watched(self) -> str:
        return list(self.lanes)[-1]

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
            "drops": own["mode"] == "own",
            **own,
            "can": [*RUN_COMMANDS, *own["can"]],
        }

    def state(self) -> dict[str, Any]:
        """Return the state of the stream's controls."""
        return self.stream.state()

    def control(self, command: Command) -> bool:
        """Set a control of the stream."""
        self.stream.control(command)
        return False

    def reset(self) -> None:
        """Return every lane to its source state and the stream to its start."""
        for tta in self.lanes.values():
            tta.reset()
        self._clear()

    def predict(self, files: Mapping[str, bytes]) -> dict[str, Any]:
        """Return what each lane predicts for a dropped sample, changing nothing, and its pictures.

        The first prediction is that of the model as trained.
        """
        if not self._example:
            raise OptionError("drop a sample after the first batch, which shows what inputs are.")
        inputs = fitting(self.read(files), self._example)
        shares = {}
        with self._lock:
            if not any(isinstance(tta.method, Source) for tta in self.lanes.values()):
                logits = source_logits(self.lanes[self._watched], self._moved(inputs))
                shares[UNADAPTED] = logits.softmax(dim=1).cpu()
            for name, tta in self.lanes.items():
                with tta.frozen():
                    shares[name] = tta(self._moved(inputs)).logits.softmax(dim=1).cpu()
        pictures = {name: input_picture(value[0]) for name, value in inputs.items()}
        shown = {name: picture for name, picture in pictures.items() if picture}
        one = self._sample(0, StreamBatch(inputs, pictures=[shown]), shares)
        return one | {"files": sorted(files)}

    def next(self) -> Update | None:
        """Run the next batch through every lane; return None at the end of the stream."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        with self._lock:
            outcomes = self._run(batch.inputs)
        self._example = batch.inputs
        if batch.labels is not None:
            self._count(outcomes, batch.labels)
        point = self._point(batch, outcomes[self._watched])
        self._number += 1
        shares = {name: o.logits[:SHOWN].softmax(dim=1).cpu() for name, o in outcomes.items()}
        shown = range(len(shares[self._watched]))
        samples = [self._sample(i, batch, shares) for i in shown]
        return Update(point, samples, batch.sounds, pause=batch.ends)

    def _moved(self, inputs: Inputs) -> Inputs:
        """Return inputs on the device of the models."""
        device = device_of(self.lanes[self._watched].model)
        return {name: value.to(device) for name, value in inputs.items()}

    def _run(self, inputs: Inputs) -> dict[str, Outcome]:
        inputs = self._moved(inputs)
        if self.encode is None:
            return {name: tta(inputs) for name, tta in self.lanes.items()}
        with torch.no_grad():
            tokens = self.encode(inputs)
        return {
            name: tta(inputs) if tta.method.takes_inputs else tta.on_tokens(tokens)
            for name, tta in self.lanes.items()
        }

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
        point = {
            "n": self._number,
            "truth": None if batch.truth is None else dict(batch.truth),
            "missing": [m for m in tta.method.model.modalities if m not in batch.inputs],
            "scores": {m: finite(s) for m, s in diagnosis.scores.items()} if diagnosis else {},
            "limits": {m: finite(limit) for m, limit in limits.items()},
            "biased": sorted(diagnosis.biased) if diagnosis else [],
            "probability": dict(diagnosis.probability) if diagnosis else {},
            "accuracy": {name: _share(list(counts)) for name, counts in self._recent.items()},
            "overall": {name: _share([counts]) for name, counts in self._total.items()},
            "norms": {part: finite(norm) for part, norm in _norms(tta).items()},
            "loss": finite(outcome.loss),
            "note": outcome.rejected or outcome.rollback,
            "skipped": outcome.skipped,
        }
        return point | {"miss": explain(point, self._watched, compares_sensors(tta))}

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
        shown: Point = {
            "class": None if label is None else named(label),
            "predictions": predictions,
        }
        if index == 0 and batch.originals:
            shown["originals"] = dict(batch.originals)
            shown["original_sound"] = SHOWN if SHOWN in batch.sounds else None
        return shown | {"pictures": dict(batch.pictures[index]), "sound": index in batch.sounds}


def explain(point: Point, watched: str, compares: bool) -> str | None:
    """Return where the diagnosis is wrong and why; None where it is right or the truth unknown.

    Args:
        point: the point so far, with `truth` by modality.
        watched: the name of the lane whose diagnosis it is.
        compares: whether it compares the sensors with each other, not with clean samples.
    """
    truth, scores, limits = point["truth"], point["scores"], point["limits"]
    if truth is None or "" in truth or not scores:
        return None
    said = []
    flagged = set(point["biased"])
    for name in scores:
        what, words = f"its score {_short(scores[name])}", name.replace("_", " ")
        edge = f" threshold {_short(limits[name])}" if name in limits else " threshold"
        if name in flagged and name not in truth:
            said.append(f"False alarm: {words} is clean, but {what} is above the{edge}.")
        elif name in truth and name not in flagged and compares and set(scores) <= set(truth):
            said.append(
                f"Missed: {words}. Every sensor is damaged, and {watched} compares them with each "
                "other, so the least unusual one always passes for healthy."
            )
        elif name in truth and name not in flagged:
            than = "the other sensor's" if compares else "that of clean samples"
            said.append(
                f"Missed: {words}. Although it is damaged, {what} stays below the{edge}: it hardly "
                f"differs from {than}."
            )
    return " ".join(said) or None


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"


@torch.no_grad()
def source_logits(tta: Adaptation, inputs: Inputs) -> Tensor:
    """Return what the model as trained predicts, leaving the adapted state as it is."""
    with tta._in_use():
        adapted = tta.memory.capture()
        tta.memory.restore(tta.source)
        model = tta.method.model
        try:
            logits: Tensor = model.fuse(model.encode(inputs)).logits
            return logits
        finally:
            tta.memory.restore(adapted)


def compares_sensors(tta: Adaptation) -> bool:
    """Return whether the diagnosis compares the sensors of a batch with each other."""
    return isinstance(tta.method, Dasp) and not _scored_by_profile(tta)


def _scored_by_profile(tta: Adaptation) -> bool:
    """Return whether the score is the distance from clean samples instead of redundancy."""
    diagnoser = getattr(tta.method, "diagnoser", None)
    return isinstance(diagnoser, Diagnoser) and bool(diagnoser.fitted)


def _thresholds(tta: Adaptation, diagnosis: Diagnosis) -> dict[str, float]:
    """Return the score above which each modality would have been biased; {} if unknown."""
    if diagnosis.probability:
        return dict.fromkeys(diagnosis.scores, 1.0)
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
