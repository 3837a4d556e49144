"""The streams a page can show: stages with sensors to damage and a story, and a user's own."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.errors import InputError, OptionError, unknown_name
from dasp.core.sensors import BODY_UNITS
from dasp.core.types import Batch, Inputs
from dasp.corruptions import names
from dasp.data import inertial
from dasp.data.shapes import SoundingShapes, audio_input, video_input
from dasp.page.pictures import frame_picture, heat_picture, input_picture, wav_file
from dasp.page.runner import Command
from dasp.streams import worn
from dasp.streams.domains import Domain, DomainDamage
from dasp.streams.protocols import visits

SHOWN = 4  # samples per batch that a page shows
BATCH = 64
POOL = 12 * BATCH  # samples that are repeated; each is drawn once and kept
PER_DOMAIN = 16  # batches per domain in the paper's order: time enough to recover
SHORTEST_SOUND = 1000  # shorter rows of numbers are not taken for sounds
TOLD = "That was the story. Now damage the sensors yourself, switch the method, or tell it again."


@dataclass(frozen=True)
class StreamBatch:
    """One batch, and what a page may show of its first samples."""

    inputs: Inputs
    labels: Tensor | None = None  # (B,), where they are known
    truth: Mapping[str, str] | None = None  # damage per modality in words; None if unknown
    pictures: Sequence[Mapping[str, str]] = ()  # {modality: data URL} per sample shown
    sounds: Mapping[int, bytes] = field(default_factory=dict)  # WAV files by index of the sample
    originals: Mapping[str, str] = field(default_factory=dict)  # pictures of the first one, clean
    ends: str = ""  # what to say if the run is to pause here


@dataclass(frozen=True)
class UserStream:
    """Batches as `tta` takes them: inputs, (inputs, labels), or `dasp.core.types.Batch`.

    A list starts over with each iteration, an iterator continues where it is. Inputs of shape
    (B, samples) count as sounds at `rate` and can be played. It has no controls.
    """

    batches: Iterable[Any]
    rate: int = 16000

    def about(self) -> dict[str, Any]:
        """Return how a page shows it, and the commands it accepts: none."""
        return {"mode": "own", "can": []}

    def state(self) -> dict[str, Any]:
        """Return the values of its controls: none."""
        return {}

    def control(self, command: Command) -> None:
        """Refuse: the runner asks only for commands that `about` names."""
        raise OptionError(f"a stream of your own has no control '{command['do']}'.")

    def __iter__(self) -> Iterator[StreamBatch]:
        try:
            return map(self._batch, self.batches)
        except TypeError as error:
            raise InputError(f"a stream is a list or another iterable: {error}.") from error

    def _batch(self, item: Any) -> StreamBatch:
        inputs, labels, truth = item, None, None
        if isinstance(item, Batch):
            inputs, labels = item.inputs, item.labels
            truth = {"": item.domain} if item.domain else None
        elif isinstance(item, tuple | list) and len(item) >= 2:
            inputs, labels = item[:2]
        if not isinstance(inputs, Mapping):
            stated = f"{{modality: tensor}}, or that and labels, not {type(item).__name__}"
            raise InputError(f"a stream yields {stated}.")
        for name, value in inputs.items():
            if not isinstance(value, Tensor):
                raise InputError(f"'{name}' must be a tensor, not {type(value).__name__}.")
        pictures: list[dict[str, str]] = [{} for _ in range(SHOWN)]
        for name, value in inputs.items():
            for own, one in zip(pictures, value if value.ndim else (), strict=False):
                own |= {name: picture} if (picture := input_picture(one)) else {}
        return StreamBatch(inputs, labels, truth, pictures, _sounds(inputs, self.rate))


def _sounds(inputs: Inputs, rate: int) -> dict[int, bytes]:
    """Return the first samples of the first modality that is a wave, scaled to at most ±1."""
    for value in inputs.values():
        if value.ndim == 2 and value.shape[1] >= SHORTEST_SOUND and value.is_floating_point():
            waves = value[:SHOWN].detach().float().cpu().numpy()
            scaled = [np.nan_to_num(wave / max(1.0, float(np.abs(wave).max()))) for wave in waves]
            return {index: wav_file(wave, rate) for index, wave in enumerate(scaled)}
    return {}


@dataclass(frozen=True)
class Scene:
    """A stretch of a story: title, what is said, how many batches, damage {modality: corruption}.

    The damage is of severity 5.
    """

    title: str
    caption: str
    batches: int
    damage: Mapping[str, str] = field(default_factory=dict)


class StageStream(ABC):
    """Endless batches of one data set, damaged as the controls or a story say.

    A story is told once; it then leaves the controls to the viewer, everything clean.
    """

    def __init__(
        self,
        story: Sequence[Scene],
        order: Sequence[Domain],
        batch: int = BATCH,
        pool: int = POOL,
        per_domain: int = PER_DOMAIN,
    ) -> None:
        self.story, self.order = story, order
        self._batch, self._pool, self._per_domain = batch, pool, per_domain
        # Replaced as a whole, so that any thread may set them.
        self._controls: dict[str, Any] = {
            "order": "story",  # or "interleaved", a fixed order; or "manual", by the damage chosen
            "severity": 5,  # of the fixed order
            "chosen": {name: _damage(kinds[0], 0) for name, kinds in self.corruptions().items()},
        }
        self._position = self._played = self._told = 0  # samples; batches of the order, the story

    @abstractmethod
    def corruptions(self) -> dict[str, list[str]]:
        """Return the names of the corruptions of each modality."""

    @abstractmethod
    def batch(self, places: Sequence[int], damages: Mapping[str, DomainDamage]) -> StreamBatch:
        """Return the samples at some places with some modalities damaged, without their truth."""

    def about(self) -> dict[str, Any]:
        """Return how a page shows it, the commands it accepts, and the corruptions to choose."""
        can = ["order", "severity", "corrupt"]
        return {
            "mode": "demo",
            "can": can,
            "corruptions": self.corruptions(),
            "scenes": [scene.title for scene in self.story],
        }

    def state(self) -> dict[str, Any]:
        """Return the controls, the damage of the next batch, and where the story is."""
        controls = self._controls
        scene = self._scene() if controls["order"] == "story" else None
        told: dict[str, Any] = {"scene": None, "caption": ""}
        if scene is not None:
            told = {"scene": scene, "caption": self.story[scene].caption}
        return controls | {"damage": self._damages(controls)} | told

    def control(self, command: Command) -> None:
        """Set the order, its severity, or the damage of one modality (which ends the order)."""
        controls, do, known = self._controls, command["do"], self.corruptions()
        if do == "order":
            order = _one_of("order", command.get("value"), ("story", "interleaved", "manual"))
            chosen = self._damages(controls) if order == "manual" else controls["chosen"]
            self._told = 0
            self._controls = controls | {"order": order, "chosen": chosen}
        elif do == "severity":
            severity = _one_of("severity", command.get("value"), range(1, 6))
            self._controls = controls | {"severity": severity}
        else:
            modality = _one_of("modality", command.get("modality"), list(known))
            corruption = _one_of("corruption", command.get("corruption"), known[modality])
            severity = _one_of("severity", command.get("severity"), range(6))
            chosen = self._damages(controls) | {modality: _damage(corruption, severity)}
            self._controls = controls | {"order": "manual", "chosen": chosen}

    def __iter__(self) -> Iterator[StreamBatch]:
        """Start over with the first sample, domain and scene; the controls stay as they are."""
        self._position = self._played = self._told = 0
        return iter(self.next, None)

    def next(self) -> StreamBatch:
        """Return the next batch with the damage chosen."""
        controls = self._controls
        chosen = self._damages(controls).items()
        domains = [Domain(name, **damage) for name, damage in chosen if damage["severity"]]
        places = [(self._position + i) % self._pool for i in range(self._batch)]
        made = self.batch(places, {d.modality: DomainDamage(d) for d in domains})
        self._position += self._batch
        self._played += controls["order"] == "interleaved"
        truth = {d.modality: f"{d.corruption.replace('_', ' ')} {d.severity}" for d in domains}
        return replace(made, truth=truth, ends=self._tell(controls))

    def _tell(self, controls: Mapping[str, Any]) -> str:
        """Go on with the story; at its end, leave the controls to the viewer and say so."""
        if controls["order"] != "story":
            return ""
        self._told += 1
        if self._told < sum(scene.batches for scene in self.story):
            return ""
        clean = {name: damage | {"severity": 0} for name, damage in controls["chosen"].items()}
        if self._controls is controls:  # nobody has set another order meanwhile
            self._controls = controls | {"order": "manual", "chosen": clean}
        return TOLD

    def _scene(self) -> int:
        ends = accumulate(scene.batches for scene in self.story)
        return min(sum(end <= self._told for end in ends), len(self.story) - 1)

    def _damages(self, controls: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the damage of each modality in the next batch; severity 0 is clean."""
        chosen: dict[str, dict[str, Any]] = controls["chosen"]
        clean = {name: damage | {"severity": 0} for name, damage in chosen.items()}
        match controls["order"]:
            case "story":
                damage = self.story[self._scene()].damage
                return clean | {name: _damage(kind, 5) for name, kind in damage.items()}
            case "interleaved":
                domain = self.order[self._played // self._per_domain % len(self.order)]
                return clean | {domain.modality: _damage(domain.corruption, controls["severity"])}
        return chosen


class BuiltInStream(StageStream):
    """Sounding shapes; each sample is drawn once and kept."""

    def __init__(self, batch: int = BATCH, pool: int = POOL, per_domain: int = PER_DOMAIN) -> None:
        self._shapes = SoundingShapes("test", pool)
        self._clean = cache(self._draw)
        order = [visit.conditions[0].domains[0] for visit in visits("interleaved", 5)]
        super().__init__(SHAPES_STORY, order, batch, pool, per_domain)

    def corruptions(self) -> dict[str, list[str]]:
        """Return the corruptions of sounds and frames."""
        return {name: list(names(name)) for name in ("audio", "video")}

    def batch(self, places: Sequence[int], damages: Mapping[str, DomainDamage]) -> StreamBatch:
        """Return log-mels and frames, with pictures and sounds."""
        ids = [self._shapes.sample_id(place) for place in places]
        frames, waves, clean_mels = zip(*map(self._clean, places), strict=True)
        mels = torch.stack(clean_mels)
        originals = {"video": frame_picture(frames[0]), "audio": heat_picture(mels[0].numpy())}
        first = wav_file(waves[0])
        if "video" in damages:
            frames = tuple(map(damages["video"], frames, ids))
        if "audio" in damages:
            waves = tuple(map(damages["audio"], waves, ids))
            mels = audio_input(np.stack(waves))
        pictures = [
            {"video": frame_picture(frame), "audio": heat_picture(mel.numpy())}
            for frame, mel in zip(frames[:SHOWN], mels[:SHOWN], strict=True)
        ]
        return StreamBatch(
            {"audio": mels, "video": video_input(np.stack(frames))},
            torch.tensor([self._shapes.label(place) for place in places]),
            pictures=pictures,
            sounds={i: wav_file(wave) for i, wave in enumerate(waves[:SHOWN])} | {SHOWN: first},
            originals=originals,
        )

    def _draw(self, place: int) -> tuple[NDArray[np.uint8], NDArray[np.float32], Tensor]:
        wave = self._shapes.wave(place)
        return self._shapes.frame(place), wave, audio_input(wave)


class WornStream(StageStream):
    """Segments of the test people, from a directory of the user's; body units are modalities."""

    def __init__(self, root: Path, batch: int = BATCH, pool: int = POOL) -> None:
        people = inertial.people_of("test")
        self._segments = inertial.find_segments(root, people)[:pool]
        order = [Domain(*steps[0], 5) for steps in worn.steps("interleaved", "units")]
        super().__init__(WORN_STORY, order, batch, len(self._segments))

    def corruptions(self) -> dict[str, list[str]]:
        """Return the corruptions of each unit."""
        return {name: list(worn.CORRUPTIONS) for name in BODY_UNITS}

    def batch(self, places: Sequence[int], damages: Mapping[str, DomainDamage]) -> StreamBatch:
        """Return the signals of each unit, with pictures of them."""
        chosen = [self._segments[place] for place in places]
        inputs: dict[str, Tensor] = {}
        pictures: list[dict[str, str]] = [{} for _ in range(SHOWN)]
        originals: dict[str, str] = {}
        for name in BODY_UNITS:
            made = inertial.InertialSamples(chosen, name, damages.get(name))
            inputs[name] = torch.stack([made[i].inputs[name] for i in range(len(chosen))])
            for picture, signal in zip(pictures, inputs[name], strict=False):
                picture[name] = heat_picture(signal.T.numpy())
            clean = inertial.InertialSamples(chosen[:1], name)[0].inputs[name]
            originals[name] = heat_picture(clean.T.numpy())
        labels = torch.tensor([segment.label for segment in chosen])
        return StreamBatch(inputs, labels, pictures=pictures, originals=originals)


def _damage(corruption: str, severity: int) -> dict[str, Any]:
    return {"corruption": corruption, "severity": severity}


def _one_of(kind: str, value: Any, known: Sequence[Any]) -> Any:
    if type(value) not in (str, int) or value not in known:
        raise OptionError(unknown_name(kind, str(value), map(str, known)))
    return value


SHAPES_STORY = (
    Scene("clean", "Both sensors are clean, and all methods answer like the model as trained.", 6),
    Scene(
        "traffic",
        "Traffic drowns the sound. Nobody tells the model, and there are no labels.",
        18,
        {"audio": "traffic"},
    ),
    Scene("fog", "The traffic has passed, and the lens fogs up.", 14, {"video": "fog"}),
    Scene("both", "Now both at once: traffic and fog.", 16, {"audio": "traffic", "video": "fog"}),
    Scene("clean", "Both sensors are clean again.", 8),
)
WORN_STORY = (
    Scene("clean", "Two people whom the model has never seen; all five units are clean.", 6),
    Scene("torso", "The unit on the torso drifts with the heat.", 10, {"torso": "drift"}),
    Scene("right arm", "The right arm's unit loses its calibration.", 10, {"right_arm": "gain"}),
    Scene("left arm", "The left arm's unit picks up noise.", 10, {"left_arm": "noise"}),
    Scene("right leg", "The right leg's unit has slipped.", 10, {"right_leg": "rotation"}),
    Scene("left leg", "Axes of the left leg's unit die.", 10, {"left_leg": "dead_axis"}),
    Scene(
        "two at once",
        "Now two at once: the torso's unit drifts, and the right leg's has slipped.",
        12,
        {"torso": "drift", "right_leg": "rotation"},
    ),
    Scene("clean", "All units are clean again.", 8),
)
