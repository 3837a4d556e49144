"""The built-in samples as a stream whose sensors can be damaged while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.errors import OptionError, unknown_name
from dasp.corruptions import names
from dasp.data.shapes import SoundingShapes, audio_input, video_input
from dasp.page.feed import Wish
from dasp.page.pictures import frame_picture, heat_picture
from dasp.page.session import SHOWN, Taken
from dasp.streams.domains import Domain, DomainDamage
from dasp.streams.protocols import visits

MODALITIES = ("audio", "video")
BATCH = 64
POOL = 12 * BATCH  # samples that come again and again; clean ones are drawn once and kept
PER_DOMAIN = 16  # batches of each domain while the paper's order plays: time to recover in
ORDERS = ("interleaved", "manual")


@dataclass(frozen=True)
class Settings:
    """How the controls stand: who chooses the damage, and which damage was chosen by hand."""

    order: str = "interleaved"
    severity: int = 5  # of the paper's order
    chosen: tuple[tuple[str, str, int], ...] = (
        ("audio", "traffic", 0),
        ("video", "gaussian_noise", 0),
    )


class _Clean(NamedTuple):
    frame: NDArray[np.uint8]
    wave: NDArray[np.float32]
    mel: Tensor


class BuiltInStream:
    """Batches of sounding shapes, endless, damaged as the controls say."""

    def __init__(self, batch: int = BATCH, pool: int = POOL, per_domain: int = PER_DOMAIN) -> None:
        self._shapes = SoundingShapes("test", pool)
        self._batch, self._per_domain = batch, per_domain
        self._drawn: dict[int, _Clean] = {}
        self._settings = Settings()  # replaced as a whole, so that any thread may set it
        self._order = [visit.conditions[0].domains[0] for visit in visits("interleaved", 5)]
        self.restart()

    def controls(self) -> dict[str, Any]:
        """Say which corruptions there are."""
        return {
            "corruptions": {name: names(name) for name in MODALITIES},
            "orders": list(ORDERS),
            "batch": self._batch,
        }

    def state(self) -> dict[str, Any]:
        """Say which damage comes next."""
        now = self._settings
        domains = {domain.modality: domain for domain in self._domains()}
        shown = {}
        for modality, corruption, severity in now.chosen:
            own = domains.get(modality)
            if now.order == "interleaved":
                severity = own.severity if own else 0
            shown[modality] = {
                "corruption": own.corruption if own else corruption,
                "severity": severity,
            }
        return {"order": now.order, "severity": now.severity, "damage": shown}

    def obey(self, wish: Wish) -> None:
        """Set the order, its severity, or the damage of one modality (which ends the order)."""
        now, do = self._settings, wish["do"]
        if do == "order":
            if wish.get("value") not in ORDERS:
                raise OptionError(unknown_name("order", str(wish.get("value")), ORDERS))
            base = self._by_hand() if wish["value"] == "manual" else now
            self._settings = replace(base, order=wish["value"])
        elif do == "severity":
            self._settings = replace(now, severity=_severity(wish.get("value"), lowest=1))
        elif do == "corrupt":
            self._settings = self._chosen(wish)
        else:
            raise OptionError(unknown_name("wish", str(do), ("order", "severity", "corrupt")))

    def restart(self) -> None:
        """Go back to the first sample and the first domain; chosen damage stays chosen."""
        self._place = 0
        self._played = 0

    def next(self) -> Taken:
        """Give the next batch under the damage chosen."""
        damages = {d.modality: DomainDamage(d) for d in self._domains()}
        start = self._place % len(self._shapes)
        places = [(start + i) % len(self._shapes) for i in range(self._batch)]
        self._place += self._batch
        self._played += self._settings.order == "interleaved"
        clean = [self._clean(place) for place in places]
        frames = np.stack([self._frame(i, c, damages) for i, c in zip(places, clean, strict=True)])
        waves = [self._wave(i, c, damages) for i, c in zip(places, clean, strict=True)]
        if "audio" in damages:
            mels = audio_input(np.stack(waves))
        else:
            mels = torch.stack([own.mel for own in clean])
        labels = torch.tensor([self._shapes.label(place) for place in places])
        pictures = [
            {"video": frame_picture(frames[i]), "audio": heat_picture(mels[i].numpy())}
            for i in range(min(SHOWN, self._batch))
        ]
        inputs = {"audio": mels, "video": video_input(frames)}
        truth = {name: _words(damage.domain) for name, damage in damages.items()}
        return Taken(inputs, labels, truth, pictures, waves[:SHOWN])

    def _domains(self) -> list[Domain]:
        now = self._settings
        if now.order == "interleaved":
            domain = self._order[self._played // self._per_domain % len(self._order)]
            return [replace(domain, severity=now.severity)]
        return [Domain(*chosen) for chosen in now.chosen if chosen[2]]

    def _by_hand(self) -> Settings:
        """Return settings in which the damage of the moment counts as chosen."""
        state = self.state()["damage"]
        chosen = tuple((m, state[m]["corruption"], state[m]["severity"]) for m in MODALITIES)
        return replace(self._settings, chosen=chosen)

    def _chosen(self, wish: Wish) -> Settings:
        modality, corruption = wish.get("modality"), wish.get("corruption")
        if modality not in MODALITIES:
            raise OptionError(unknown_name("modality", str(modality), MODALITIES))
        if corruption not in names(modality):
            raise OptionError(unknown_name("corruption", str(corruption), names(modality)))
        own = (modality, str(corruption), _severity(wish.get("severity")))
        now = self._by_hand()
        chosen = tuple(own if before[0] == modality else before for before in now.chosen)
        return replace(now, order="manual", chosen=chosen)

    def _clean(self, place: int) -> _Clean:
        if place not in self._drawn:
            frame, wave = self._shapes.frame(place), self._shapes.wave(place)
            self._drawn[place] = _Clean(frame, wave, audio_input(wave))
        return self._drawn[place]

    def _frame(
        self, place: int, clean: _Clean, damages: Mapping[str, DomainDamage]
    ) -> NDArray[np.uint8]:
        damage = damages.get("video")
        name = self._shapes.sample_id(place)
        return clean.frame if damage is None else damage.frame(clean.frame, name)

    def _wave(
        self, place: int, clean: _Clean, damages: Mapping[str, DomainDamage]
    ) -> NDArray[np.float32]:
        damage = damages.get("audio")
        name = self._shapes.sample_id(place)
        return clean.wave if damage is None else damage.sound(clean.wave, name)


def _severity(value: object, lowest: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= 5:
        raise OptionError(f"severity is {lowest} to 5, not {value!r}.")
    return value


def _words(domain: Domain) -> str:
    return f"{domain.corruption.replace('_', ' ')} {domain.severity}"
