"""Triage on models that nobody wrote for it: GRUs, MLPs and convolutions, two or three sensors.

    python studies/wrap/strangers.py                  # 18 models, about six minutes
    python studies/wrap/strangers.py --kinds gru --seeds 0
    python studies/wrap/strangers.py --kinds norm     # convolutions with BatchNorm
    python studies/wrap/strangers.py --classes 1      # batches of one class each
    python studies/wrap/strangers.py --classes 1 --weak 0.2    # one good sensor, the others poor
    python studies/wrap/strangers.py --classes 1 --together    # all sensors damaged at once

The models fuse by concatenation, have no normalisation (but for "norm"), and are trained on
synthetic series with the joint loss alone: no sensor is ever absent in training, so that the
prediction of one sensor alone, through `dasp.wrap`, favours some classes. Each sensor is damaged in
five ways, three batches of 64 each, twice over (or all of them in the same way at once); nothing is
reset. Prints the accuracy of each variant, the rate that `lr="auto"` chose, the share of batches of
which exactly the damaged sensors are flagged, and where triage gains least over Source.
docs/own_model.md has the table.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import tyro
from torch import Tensor, nn

import dasp

CLASSES, STEPS, CHANNELS, WIDTH, BATCH = 8, 24, 4, 32, 64
VARIANTS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "source": ("source", {}, False),
    "dasp": ("dasp", {}, False),
    "triage": ("triage", {}, True),
    "learn=False": ("triage", {"learn": False}, True),
    "balance=False": ("triage", {"learn": False, "balance": False}, True),
    "align=False": ("triage", {"align": False}, True),
    "not fitted": ("triage", {}, False),
    "lr=1e-4": ("triage", {"lr": 1e-4}, True),
    "lr=1e-3": ("triage", {"lr": 1e-3}, True),
    "lr=1e-2": ("triage", {"lr": 1e-2}, True),
}
Damage = Callable[[Tensor, torch.Generator], Tensor]
DAMAGES: dict[str, Damage] = {
    "noise": lambda x, draws: x + 2.5 * torch.randn(x.shape, generator=draws),
    "offset": lambda x, draws: x + 1.5,
    "gain": lambda x, draws: 0.3 * x,
    "dropout": lambda x, draws: x * (torch.rand(x.shape, generator=draws) > 0.7),
    "clipping": lambda x, draws: x.clamp(-0.5, 0.5),
}


class World:
    """Series (B, 24, 4) of each sensor: a random walk per class, plus noise."""

    def __init__(self, sensors: tuple[str, ...], seed: int, weak: float = 1.0) -> None:
        draws = torch.Generator().manual_seed(seed)
        shape = CLASSES, STEPS, CHANNELS
        self.patterns = {
            name: 0.3 * torch.randn(shape, generator=draws).cumsum(dim=1)
            + 0.3 * torch.randn(CLASSES, 1, CHANNELS, generator=draws)
            for name in sensors
        }
        for name in sensors[1:]:
            self.patterns[name] = weak * self.patterns[name]

    def draw(
        self, seed: int, size: int = BATCH, classes: int = CLASSES
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return inputs and labels (B,), which are of that many classes."""
        draws = torch.Generator().manual_seed(seed)
        labels = torch.randint(classes, (size,), generator=draws)
        if classes < CLASSES:
            labels = torch.randperm(CLASSES, generator=draws)[labels]
        inputs = {}
        for name, patterns in self.patterns.items():
            strength = 0.7 + 0.6 * torch.rand(size, 1, 1, generator=draws)
            noise = 1.3 * torch.randn(size, STEPS, CHANNELS, generator=draws)
            inputs[name] = strength * patterns[labels] + noise
        return inputs, labels


class Convolutions(nn.Sequential):
    """(B, T, 4) → (B, 32, T/4)."""

    def __init__(self, norm: type[nn.Module] = nn.Identity) -> None:
        one, two = nn.Conv1d(CHANNELS, WIDTH, 5, 2, 2), nn.Conv1d(WIDTH, WIDTH, 5, 2, 2)
        super().__init__(one, norm(WIDTH), nn.ReLU(), two, norm(WIDTH))

    def forward(self, series: Tensor) -> Tensor:
        out: Tensor = super().forward(series.transpose(1, 2))
        return out


def encoder(kind: str) -> nn.Module:
    """Return an encoder of series (B, 24, 4)."""
    if kind == "gru":
        return nn.GRU(CHANNELS, WIDTH, batch_first=True)
    if kind in ("conv", "norm"):
        return Convolutions(nn.BatchNorm1d if kind == "norm" else nn.Identity)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(STEPS * CHANNELS, 64), nn.ReLU(), nn.Linear(64, 32)
    )


class Stranger(nn.Module):
    """An ordinary model(inputs) -> logits."""

    def __init__(self, kind: str, sensors: tuple[str, ...]) -> None:
        super().__init__()
        self.kind, self.encoders = kind, nn.ModuleDict({name: encoder(kind) for name in sensors})
        self.mix = nn.Sequential(nn.Linear(WIDTH * len(sensors), 64), nn.ReLU())
        self.head = nn.Linear(64, CLASSES)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        found = []
        for name, net in self.encoders.items():
            out = net(inputs[name])
            if self.kind == "gru":
                out = out[0].mean(dim=1)
            elif self.kind in ("conv", "norm"):
                out = out.relu().mean(dim=2)
            found.append(out)
        logits: Tensor = self.head(self.mix(torch.cat(found, dim=1)))
        return logits


def trained(kind: str, world: World, seed: int) -> nn.Module:
    """Return a trained model, wrapped."""
    torch.manual_seed(seed)
    sensors = tuple(world.patterns)
    model = Stranger(kind, sensors)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for step in range(250):
        inputs, labels = world.draw(10_000 * seed + step, 128)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    inputs, _ = world.draw(1_000_000)
    encoders = {name: f"encoders.{name}" for name in sensors}
    return dasp.wrap(model.eval(), encoders=encoders, head="head", inputs=inputs)


def stream(
    world: World, seed: int, classes: int, together: bool
) -> Iterator[tuple[tuple[str, ...], str, dict[str, Tensor], Tensor]]:
    """Yield the damaged sensors, their damage, inputs and labels of each batch."""
    number = 0
    for sensors in [tuple(world.patterns)] * 2 if together else [(n,) for n in world.patterns] * 2:
        for kind, damage in DAMAGES.items():
            for _ in range(3):
                number += 1
                inputs, labels = world.draw(7_000_000 + 1_000 * seed + number, classes=classes)
                draws = torch.Generator().manual_seed(number)
                yield sensors, kind, inputs | {n: damage(inputs[n], draws) for n in sensors}, labels


@dataclass(frozen=True)
class Options:
    """Which models, and how they are adapted."""

    kinds: tuple[str, ...] = ("gru", "mlp", "conv")
    sensors: tuple[int, ...] = (2, 3)
    seeds: tuple[int, ...] = (0, 1, 2)
    variants: tuple[str, ...] = tuple(VARIANTS)
    fit: int = 128
    """Clean samples."""
    classes: int = CLASSES
    """Per batch."""
    weak: float = 1.0
    """Strength of what all sensors but the first have to tell."""
    together: bool = False
    """Damage all sensors at once."""


def main(options: Options) -> None:
    """Print a row per model."""
    torch.set_num_threads(1)
    print("| model |", " | ".join(options.variants), "| rate | named | least gain |")
    print("|---|" + "---:|" * (len(options.variants) + 3))
    for kind in options.kinds:
        for count in options.sensors:
            for seed in options.seeds:
                print(row(options, kind, count, seed), flush=True)


def row(options: Options, kind: str, count: int, seed: int) -> str:
    """Return the row of one model."""
    world = World(("chest", "wrist", "ankle")[:count], seed, options.weak)
    model, cells, rate, named = trained(kind, world, seed), [], "", ""
    right: dict[str, dict[str, float]] = {}  # by variant, then by sensor and damage
    for variant in options.variants:
        method, settings, fit = VARIANTS[variant]
        tta = dasp.adapt(model, method, **settings)
        if fit:
            tta.fit([world.draw(5_000_000 + seed, options.fit)[0]])
        hits, flags = defaultdict[str, list[float]](list), []
        batches = stream(world, seed, options.classes, options.together)
        for sensors, damage, inputs, labels in batches:
            out = tta(inputs)
            share = float((out.logits.argmax(dim=1) == labels).float().mean())
            hits[f"{', '.join(sensors)} {damage}"].append(share)
            flags.append(out.diagnosis is not None and out.diagnosis.biased == {*sensors})
        right[variant] = {place: 100 * sum(own) / len(own) for place, own in hits.items()}
        cells.append(f"{sum(right[variant].values()) / len(hits):.1f}")
        if variant == "triage":
            rate, named = str(tta.memory.rate), f"{100 * sum(flags) / len(flags):.0f}%"
    cells += [rate, named, least_gain(right.get("source", {}), right.get("triage", {}))]
    return f"| {kind}, {count} sensors, seed {seed} | {' | '.join(cells)} |"


def least_gain(source: dict[str, float], triage: dict[str, float]) -> str:
    """Return where triage gains least over Source, and how much."""
    gains = {place: triage[place] - source[place] for place in source.keys() & triage.keys()}
    place = min(sorted(gains), key=gains.__getitem__, default="")
    return f"{gains[place]:+.1f} ({place})" if place else ""


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
