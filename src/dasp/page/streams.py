"""The streams a page can show: the built-in one, with sensors to corrupt, and a user's own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.errors import InputError, OptionError, unknown_name
from dasp.core.types import Batch, Inputs
from dasp.corruptions import names
from dasp.data.shapes import SoundingShapes, audio_input, video_input
from dasp.page.pictures import frame_picture, heat_picture, input_picture, wav_file
from dasp.page.runner import RUN_COMMANDS, Command
from dasp.streams.domains import Domain, DomainDamage
from dasp.streams.protocols import visits

SHOWN = 4  # samples per batch that a page shows
MODALITIES = ("audio", "video")
ORDERS = ("interleaved", "manual")
BATCH = 64
POOL = 12 * BATCH  # samples that are repeated; each is drawn once and kept
PER_DOMAIN = 16  # batches per domain in the paper's order: time enough to recover
SHORTEST_SOUND = 1000  # shorter rows of numbers are not taken for sounds


@dataclass(frozen=True)
class StreamBatch:
    """One batch, and what a page may show of its first samples."""

    inputs: Inputs
    labels: Tensor | None = None  # (B,), where they are known
    truth: Mapping[str, str] | None = None  # damage per modality in words; None if unknown
    pictures: Sequence[Mapping[str, str]] = ()  # {modality: data URL} per sample shown
    sounds: Mapping[int, bytes] = field(default_factory=dict)  # WAV files by index of the sample


class UserStream:
    """Batches as `tta` takes them: inputs, (inputs, labels), or `dasp.core.types.Batch`.

    Inputs of shape (B, samples) count as sounds at `rate` and can be played.
    """

    def __init__(self, batches: Iterable[Any], rate: int = 16000) -> None:
        self._batches, self._rate = batches, rate
        try:
            self.restart()
        except TypeError as error:
            raise InputError(f"a stream is a list or another iterable: {error}.") from error

    def about(self) -> dict[str, Any]:
        """Return the accepted commands: the run can be controlled, the stream cannot."""
        return {"can": list(RUN_COMMANDS)}

    def state(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def control(self, command: Command) -> None:
        """Refuse every command."""
        raise OptionError(f"'{command['do']}' is a command for the built-in stream only.")

    def restart(self) -> None:
        """Start over; an iterator, which can be read only once, continues where it is."""
        self._iterator: Iterator[Any] = iter(self._batches)

    def next(self) -> StreamBatch | None:
        """Return the next batch, None at the end."""
        item = next(self._iterator, None)
        if item is None:
            return None
        inputs, labels, truth = item, None, None
        if isinstance(item, Batch):
            inputs, labels = item.inputs, item.labels
            truth = {"": item.domain} if item.domain else None
        elif isinstance(item, tuple | list) and len(item) >= 2:
            inputs, labels = item[:2]
        if not isinstance(inputs, Mapping):
            found = type(item).__name__
            raise InputError(
                f"a stream yields {{modality: tensor}}, or that and labels, not {found}."
            )
        for name, value in inputs.items():
            if not isinstance(value, Tensor):
                raise InputError(f"'{name}' must be a tensor, not {type(value).__name__}.")
        pictures = [_pictures(inputs, index) for index in range(SHOWN)]
        return StreamBatch(inputs, labels, truth, pictures, _sounds(inputs, self._rate))


@dataclass(frozen=True)
class Controls:
    """Who chooses the damage, and the (corruption, severity) chosen by hand per modality."""

    order: str = "interleaved"
    severity: int = 5  # of the paper's order
    chosen: Mapping[str, tuple[str, int]] = field(
        default_factory=lambda: {"audio": ("traffic", 0), "video": ("gaussian_noise", 0)}
    )


class _Clean(NamedTuple):
    frame: NDArray[np.uint8]
    wave: NDArray[np.float32]
    mel: Tensor


class BuiltInStream:
    """Endless batches of sounding shapes, damaged as the controls say."""

    def __init__(self, batch: int = BATCH, pool: int = POOL, per_domain: int = PER_DOMAIN) -> None:
        self._shapes = SoundingShapes("test", pool)
        self._batch, self._per_domain = batch, per_domain
        self._drawn: dict[int, _Clean] = {}
        self._controls = Controls()  # replaced as a whole, so that any thread may set it
        self._order = [visit.conditions[0].domains[0] for visit in visits("interleaved", 5)]
        self.restart()

    def about(self) -> dict[str, Any]:
        """Return the accepted commands and the corruptions of each modality."""
        return {
            "can": [*RUN_COMMANDS, "order", "severity", "corrupt"],
            "corruptions": {name: names(name) for name in MODALITIES},
        }

    def state(self) -> dict[str, Any]:
        """Return the controls and the damage of the next batch."""
        controls = self._controls
        damage = {
            modality: {"corruption": corruption, "severity": severity}
            for modality, (corruption, severity) in self._damage(controls).items()
        }
        return {"order": controls.order, "severity": controls.severity, "damage": damage}

    def control(self, command: Command) -> None:
        """Set the order, its severity, or the damage of one modality (which ends the order)."""
        controls, do = self._controls, command["do"]
        if do == "order":
            order = _one_of("order", command.get("value"), ORDERS)
            chosen = self._damage(controls) if order == "manual" else controls.chosen
            self._controls = replace(controls, order=order, chosen=chosen)
        elif do == "severity":
            self._controls = replace(controls, severity=_severity(command.get("value"), lowest=1))
        elif do == "corrupt":
            modality = _one_of("modality", command.get("modality"), MODALITIES)
            corruption = _one_of("corruption", command.get("corruption"), names(modality))
            damage = (corruption, _severity(command.get("severity")))
            chosen = {**self._damage(controls), modality: damage}
            self._controls = replace(controls, order="manual", chosen=chosen)
        else:
            raise OptionError(unknown_name("command", str(do), ("order", "severity", "corrupt")))

    def restart(self) -> None:
        """Return to the first sample and the first domain; the controls stay as they are."""
        self._position = 0
        self._played = 0  # batches of the paper's order

    def next(self) -> StreamBatch:
        """Return the next batch with the damage chosen."""
        controls = self._controls
        domains = [Domain(m, *damage) for m, damage in self._damage(controls).items() if damage[1]]
        damages = {domain.modality: DomainDamage(domain) for domain in domains}
        places = [(self._position + i) % len(self._shapes) for i in range(self._batch)]
        self._position += self._batch
        self._played += controls.order == "interleaved"
        ids = [self._shapes.sample_id(place) for place in places]
        clean = [self._clean(place) for place in places]
        frames, waves = [sample.frame for sample in clean], [sample.wave for sample in clean]
        mels = torch.stack([sample.mel for sample in clean])
        if damage := damages.get("video"):
            frames = [damage(frame, name) for frame, name in zip(frames, ids, strict=True)]
        if damage := damages.get("audio"):
            waves = [damage(wave, name) for wave, name in zip(waves, ids, strict=True)]
            mels = audio_input(np.stack(waves))
        return StreamBatch(
            {"audio": mels, "video": video_input(np.stack(frames))},
            torch.tensor([self._shapes.label(place) for place in places]),
            {d.modality: f"{d.corruption.replace('_', ' ')} {d.severity}" for d in domains},
            [
                {"video": frame_picture(frame), "audio": heat_picture(mel.numpy())}
                for frame, mel in zip(frames[:SHOWN], mels[:SHOWN], strict=True)
            ],
            {index: wav_file(wave) for index, wave in enumerate(waves[:SHOWN])},
        )

    def _damage(self, controls: Controls) -> Mapping[str, tuple[str, int]]:
        """Return the (corruption, severity) of each modality in the next batch; 0 is clean."""
        if controls.order == "manual":
            return controls.chosen
        domain = self._order[self._played // self._per_domain % len(self._order)]
        clean = {modality: (name, 0) for modality, (name, _) in controls.chosen.items()}
        return {**clean, domain.modality: (domain.corruption, controls.severity)}

    def _clean(self, place: int) -> _Clean:
        if place not in self._drawn:
            frame, wave = self._shapes.frame(place), self._shapes.wave(place)
            self._drawn[place] = _Clean(frame, wave, audio_input(wave))
        return self._drawn[place]


def _pictures(inputs: Inputs, index: int) -> dict[str, str]:
    """Return the pictures of one sample; malformed inputs, refused later, have none."""
    present = {name: v[index] for name, v in inputs.items() if v.ndim and index < len(v)}
    pictures = {name: input_picture(value) for name, value in present.items()}
    return {name: picture for name, picture in pictures.items() if picture}


def _sounds(inputs: Inputs, rate: int) -> dict[int, bytes]:
    """Return the first samples of the first modality that is a wave, scaled to at most ±1."""
    for value in inputs.values():
        if value.ndim == 2 and value.shape[1] >= SHORTEST_SOUND and value.is_floating_point():
            waves = value[:SHOWN].detach().float().cpu().numpy()
            scaled = [np.nan_to_num(wave / max(1.0, float(np.abs(wave).max()))) for wave in waves]
            return {index: wav_file(wave, rate) for index, wave in enumerate(scaled)}
    return {}


def _one_of(kind: str, value: object, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise OptionError(unknown_name(kind, str(value), known))
    return value


def _severity(value: object, lowest: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= 5:
        raise OptionError(f"severity is {lowest} to 5, not {value!r}.")
    return value
