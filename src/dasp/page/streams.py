"""The streams a page can show: the built-in one, with sensors to corrupt, and a user's own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.errors import InputError, OptionError, unknown_name
from dasp.core.types import Batch, Inputs
from dasp.corruptions import names
from dasp.data.shapes import SoundingShapes, audio_input, video_input
from dasp.page.pictures import frame_picture, heat_picture, input_picture, wav_file
from dasp.page.runner import Command
from dasp.streams.domains import Domain, DomainDamage
from dasp.streams.protocols import visits

SHOWN = 4  # samples per batch that a page shows
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


@dataclass(frozen=True)
class UserStream:
    """Batches as `tta` takes them: inputs, (inputs, labels), or `dasp.core.types.Batch`.

    A list starts over with each iteration, an iterator continues where it is. Inputs of shape
    (B, samples) count as sounds at `rate` and can be played.
    """

    batches: Iterable[Any]
    rate: int = 16000

    def about(self) -> dict[str, Any]:
        """Return how a page shows it, and the commands it accepts: none."""
        return {"mode": "own", "can": []}

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


class BuiltInStream:
    """Endless batches of sounding shapes, damaged as the controls say."""

    def __init__(self, batch: int = BATCH, pool: int = POOL, per_domain: int = PER_DOMAIN) -> None:
        self._shapes = SoundingShapes("test", pool)
        self._clean = cache(self._draw)
        self._batch, self._per_domain = batch, per_domain
        # Replaced as a whole, so that any thread may set them.
        self._controls: dict[str, Any] = {
            "order": "interleaved",  # or "manual", by the damage chosen
            "severity": 5,  # of the paper's order
            "chosen": {"audio": _damage("traffic", 0), "video": _damage("gaussian_noise", 0)},
        }
        self._order = [visit.conditions[0].domains[0] for visit in visits("interleaved", 5)]
        self._position = self._played = 0  # samples; batches of the paper's order

    def about(self) -> dict[str, Any]:
        """Return how a page shows it, the commands it accepts, and the corruptions to choose."""
        corruptions = {name: names(name) for name in ("audio", "video")}
        return {"mode": "demo", "can": ["order", "severity", "corrupt"], "corruptions": corruptions}

    def state(self) -> dict[str, Any]:
        """Return the controls and the damage of the next batch."""
        return self._controls | {"damage": self._damages(self._controls)}

    def control(self, command: Command) -> None:
        """Set the order, its severity, or the damage of one modality (which ends the order)."""
        controls, do = self._controls, command["do"]
        if do == "order":
            order = _one_of("order", command.get("value"), ("interleaved", "manual"))
            chosen = self._damages(controls) if order == "manual" else controls["chosen"]
            self._controls = controls | {"order": order, "chosen": chosen}
        elif do == "severity":
            severity = _one_of("severity", command.get("value"), range(1, 6))
            self._controls = controls | {"severity": severity}
        else:
            modality = _one_of("modality", command.get("modality"), ("audio", "video"))
            corruption = _one_of("corruption", command.get("corruption"), names(modality))
            severity = _one_of("severity", command.get("severity"), range(6))
            chosen = self._damages(controls) | {modality: _damage(corruption, severity)}
            self._controls = controls | {"order": "manual", "chosen": chosen}

    def __iter__(self) -> Iterator[StreamBatch]:
        """Start over with the first sample and domain; the controls stay as they are."""
        self._position = self._played = 0
        return iter(self.next, None)

    def next(self) -> StreamBatch:
        """Return the next batch with the damage chosen."""
        controls = self._controls
        chosen = self._damages(controls).items()
        domains = [Domain(name, **damage) for name, damage in chosen if damage["severity"]]
        damages = {domain.modality: DomainDamage(domain) for domain in domains}
        places = [(self._position + i) % len(self._shapes) for i in range(self._batch)]
        self._position += self._batch
        self._played += controls["order"] == "interleaved"
        ids = [self._shapes.sample_id(place) for place in places]
        frames, waves, clean_mels = zip(*map(self._clean, places), strict=True)
        mels = torch.stack(clean_mels)
        if "video" in damages:
            frames = tuple(map(damages["video"], frames, ids))
        if "audio" in damages:
            waves = tuple(map(damages["audio"], waves, ids))
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

    def _damages(self, controls: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the damage of each modality in the next batch; severity 0 is clean."""
        chosen: dict[str, dict[str, Any]] = controls["chosen"]
        if controls["order"] == "manual":
            return chosen
        domain = self._order[self._played // self._per_domain % len(self._order)]
        clean = {name: damage | {"severity": 0} for name, damage in chosen.items()}
        return clean | {domain.modality: _damage(domain.corruption, controls["severity"])}

    def _draw(self, place: int) -> tuple[NDArray[np.uint8], NDArray[np.float32], Tensor]:
        wave = self._shapes.wave(place)
        return self._shapes.frame(place), wave, audio_input(wave)


def _damage(corruption: str, severity: int) -> dict[str, Any]:
    return {"corruption": corruption, "severity": severity}


def _one_of(kind: str, value: Any, known: Sequence[Any]) -> Any:
    if type(value) not in (str, int) or value not in known:
        raise OptionError(unknown_name(kind, str(value), map(str, known)))
    return value
