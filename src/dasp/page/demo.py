"""`dasp demo`: stages, the methods to choose from, and the switch between them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from dasp.bench.plan import data_options
from dasp.core.errors import OptionError, unknown_name
from dasp.core.sensors import BODY_UNITS
from dasp.core.types import Inputs
from dasp.data import inertial
from dasp.data.shapes import NAMES, SoundingShapes
from dasp.methods import Adaptation, adapt
from dasp.models import load_model
from dasp.page.runner import Command
from dasp.page.session import Session
from dasp.page.streams import BATCH, BuiltInStream, StageStream, WornStream

CPU = torch.device("cpu")
CLEAN_SAMPLES, CLEAN_BATCH = 128, 32  # given to `fit`


@dataclass(frozen=True)
class Choice:
    """A method to watch: its registered name, its options, whether it is fitted, what it is."""

    method: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict)
    fitted: bool = False


CHOICES = {
    "Triage": Choice("triage", f"our method, fitted with {CLEAN_SAMPLES} clean samples", {}, True),
    "Triage, no gradient": Choice("triage", "our method without learning", {"learn": False}, True),
    "DASP": Choice("dasp", "DASP as its authors released it"),
    "DASP, paper": Choice("dasp", "DASP as the paper's equations say", {"variant": "paper"}),
    "READ": Choice("read", "READ"),
    "EATA": Choice("eata", "EATA, which also tunes the encoders"),
    "Tent": Choice("tent", "Tent, which also tunes the encoders"),
}
BESIDE = ("READ", "DASP")  # shown beside the method that is watched, after Source
FIRST = next(iter(CHOICES))


@dataclass(frozen=True)
class Stage:
    """A data set with a trained model, and how its stream and its clean samples are made."""

    title: str
    model: str
    data: str  # the name of its tuned options
    classes: Sequence[str]
    stream: Callable[[], StageStream]
    clean: Callable[[], list[Inputs]]


def stages(root: Path | None = None) -> dict[str, Stage | str]:
    """Return the stages by name; one that is not available is the reason in words."""
    found: dict[str, Stage | str] = {
        "seen and heard": Stage(
            "dasp: a sensor goes bad",
            "sounding_shapes_0",
            "sounding_shapes",
            NAMES,
            BuiltInStream,
            lambda: _inputs(SoundingShapes("validation", CLEAN_SAMPLES)),
        ),
        "worn on the body": "this stage needs recordings that are not part of the package: "
        "`dasp data fetch dsa DIR` says where to get them, then start `dasp demo --root DIR`.",
    }
    if root is not None:
        inertial.find_segments(root, inertial.people_of("test"))  # an error names what is missing
        found["worn on the body"] = Stage(
            "dasp: sensors worn on the body",
            "dsa_units_0",
            "dsa",
            inertial.ACTIVITIES,
            lambda: WornStream(root),
            lambda: _worn(root),
        )
    return found


def _inputs(data: Any) -> list[Inputs]:
    return [batch.inputs for batch in DataLoader(data, CLEAN_BATCH)]


def _worn(root: Path) -> list[Inputs]:
    """Return clean segments of the wearers, which are not in the stream: people differ too much."""
    chosen = inertial.find_segments(root, inertial.people_of("test"))[-CLEAN_SAMPLES:]
    signals: dict[str, Tensor] = {}
    for name in BODY_UNITS:
        views = inertial.InertialSamples(chosen, name)
        signals[name] = torch.stack([views[i].inputs[name] for i in range(len(chosen))])
    starts = range(0, len(chosen), CLEAN_BATCH)
    return [{name: signals[name][i : i + CLEAN_BATCH] for name in BODY_UNITS} for i in starts]


def build_lanes(
    stage: Stage, choice: str, device: torch.device = CPU
) -> tuple[dict[str, Adaptation], Callable[..., Any]]:
    """Return Source, the methods beside it and the chosen one, last; and the encoder they share."""
    model = load_model(stage.model).to(device)
    lanes = {"Source": adapt(model, "source")}
    for name in dict.fromkeys([*(one for one in BESIDE if one != choice), choice]):
        own = CHOICES[name]
        options = data_options(stage.data).get(own.method, {}) | dict(own.options)
        lanes[name] = adapt(copy.deepcopy(model), own.method, **options)
        if own.fitted:
            clean = [{n: v.to(device) for n, v in inputs.items()} for inputs in stage.clean()]
            lanes[name].fit(clean)
    return lanes, model.encode  # type: ignore[return-value]


class Demo(Session):
    """Stages whose method can be switched while the page is open; a switch starts over."""

    waits = True

    def __init__(
        self,
        choice: str = FIRST,
        root: Path | None = None,
        stream: StageStream | None = None,
        device: torch.device = CPU,
    ) -> None:
        """Begin with the first stage; `stream` replaces its stream."""
        self._stages, self._device = stages(root), device
        self._now = self._wanted = (next(iter(self._stages)), choice)
        stage = self._stage(self._now[0])
        lanes, encode = build_lanes(stage, choice, device)
        super().__init__(
            stream or stage.stream(), lanes, stage.title, _legend(lanes), stage.classes, encode
        )

    def about(self) -> dict[str, Any]:
        """Return what a session does, and the methods and stages to choose from."""
        about = super().about()
        missing = {
            name: stage if isinstance(stage, str) else "" for name, stage in self._stages.items()
        }
        about |= {"methods": list(CHOICES), "stages": missing}
        return about | {"can": [*about["can"], "method", "stage"]}

    def state(self) -> dict[str, Any]:
        """Return the controls of the stream, and which method and stage were chosen."""
        return super().state() | {"stage": self._wanted[0], "method": self._wanted[1]}

    def control(self, command: Command) -> bool:
        """Choose a method or a stage, for which the run starts over, or set the stream's own."""
        stage, choice = self._wanted
        value = command.get("value")
        if command["do"] == "method":
            if not isinstance(value, str) or value not in CHOICES:
                raise OptionError(unknown_name("method", str(value), CHOICES))
            choice = value
        elif command["do"] == "stage":
            if not isinstance(value, str) or value not in self._stages:
                raise OptionError(unknown_name("stage", str(value), self._stages))
            self._stage(value)
            stage = value
        else:
            return super().control(command)
        self._wanted = (stage, choice)
        return True

    def reset(self) -> None:
        """Return to the source state, with the method and stage that were chosen meanwhile."""
        wanted = self._wanted
        if wanted != self._now:
            stage = self._stage(wanted[0])
            lanes, encode = build_lanes(stage, wanted[1], self._device)
            if wanted[0] != self._now[0]:
                self.stream, self._example = stage.stream(), {}
            self.lanes, self.encode = lanes, encode
            self.title, self.classes, self.legend = stage.title, stage.classes, _legend(lanes)
            self._now = wanted
        super().reset()

    def _stage(self, name: str) -> Stage:
        stage = self._stages[name]
        if isinstance(stage, str):
            raise OptionError(stage)
        return stage


def _legend(lanes: Mapping[str, Adaptation]) -> str:
    said = [
        f"{name}: {CHOICES[name].about} (learning rate {tta.options.lr:g})"
        for name, tta in lanes.items()
        if name in CHOICES
    ]
    same = f"All get the same batches of {BATCH} samples, no labels, and predict before they learn."
    return f"Source: the model as trained. {'; '.join(reversed(said))}. {same}"
