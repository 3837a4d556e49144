"""DASP on late-fusion models that nobody wrote for it, through `dasp.wrap`.

    .venv/bin/python studies/wrap/late_fusion.py              # both tables, 4 minutes
    .venv/bin/python studies/wrap/late_fusion.py --tables gains --fusions attention cnn
    .venv/bin/python studies/wrap/late_fusion.py --tables diagnoses --ways triage
    .venv/bin/python studies/wrap/late_fusion.py --seeds 0    # one seed

Four small models (fusion by concatenation, by sum, by attention; "cnn": by concatenation, with
BatchNorm and one more convolution in each encoder) are trained on two synthetic
sensors, with the joint loss alone: no modality is ever absent in training. The first table compares
what `wrap` puts for the modality that is absent when the other is diagnosed. The second compares
DASP through `wrap` with the same trained model written to the contract, on the same stream.
docs/own_model.md has the tables.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dasp

CLASSES, BATCH, BATCHES, LR = 10, 64, 15, "auto"
FUSIONS = ("concat", "sum", "attention", "cnn")
STAND_INS = ("zeros", "mean", "noise")
WAYS = {
    "dasp": ("dasp", {}),
    "dasp, paper": ("dasp", {"variant": "paper"}),
    "triage": ("triage", {}),
}
SENSORS = ("audio", "video")
TABLES = ("diagnoses", "gains")
Damage = Callable[[Tensor, torch.Generator], Tensor]


class World:
    """Paired samples: sounds (B, 1, 64) and frames (B, 1, 12, 12), by class, plus noise."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        sounds = torch.randn(CLASSES, 1, 16, generator=generator)
        frames = torch.randn(CLASSES, 1, 6, 6, generator=generator)
        self.patterns = {
            "audio": F.interpolate(sounds, 64, mode="linear"),
            "video": F.interpolate(frames, (12, 12), mode="bilinear"),
        }

    def draw(self, seed: int, size: int = BATCH) -> tuple[dict[str, Tensor], Tensor]:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(CLASSES, (size,), generator=generator)
        inputs = {}
        for name, patterns in self.patterns.items():
            strength = 0.5 + torch.rand(size, *(1,) * (patterns.ndim - 1), generator=generator)
            clean = strength * patterns[labels]
            inputs[name] = clean + 0.8 * torch.randn(clean.shape, generator=generator)
        return inputs, labels


def noisy(values: Tensor, generator: torch.Generator) -> Tensor:
    return values + 2.0 * torch.randn(values.shape, generator=generator)


def faded(values: Tensor, generator: torch.Generator) -> Tensor:
    return 0.25 * values + 1.5


def dropped(values: Tensor, generator: torch.Generator) -> Tensor:
    return values * (torch.rand(values.shape, generator=generator) > 0.7)


def blurred(values: Tensor, generator: torch.Generator) -> Tensor:
    window = {3: (9,), 4: (5, 5)}[values.ndim]
    pool = F.avg_pool1d if values.ndim == 3 else F.avg_pool2d
    return pool(values, window, stride=1, padding=tuple(size // 2 for size in window))


DAMAGES: dict[str, Damage] = {f.__name__: f for f in (noisy, faded, dropped, blurred)}


class Late(nn.Module):
    """An ordinary model(audio, video) -> logits."""

    def __init__(self, fusion: str) -> None:
        super().__init__()
        self.fusion = fusion
        self.audio_net = nn.Sequential(
            nn.Conv1d(1, 32, 7, 2, 3), nn.ReLU(), nn.Conv1d(32, 48, 5, 4, 2)
        )
        self.video_net = nn.Sequential(
            nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 48, 3, 2, 1)
        )
        if fusion == "cnn":
            self.audio_net.extend([nn.BatchNorm1d(48), nn.ReLU(), nn.Conv1d(48, 48, 3, 1, 1)])
            self.video_net.extend([nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, 48, 3, 1, 1)])
        if fusion == "attention":
            self.mix = nn.TransformerEncoderLayer(48, 4, 96, 0.0, batch_first=True, norm_first=True)
        else:
            self.mix = nn.Sequential(nn.Linear(48 if fusion == "sum" else 96, 64), nn.ReLU())
        self.head = nn.Linear(48 if fusion == "attention" else 64, CLASSES)

    def forward(self, audio: Tensor, video: Tensor) -> Tensor:
        sound, sight = self.audio_net(audio), self.video_net(video)  # (B, 48, 8), (B, 48, 3, 3)
        if self.fusion == "attention":
            tokens = torch.cat([sound.transpose(1, 2), sight.flatten(2).transpose(1, 2)], dim=1)
            return self.head(self.mix(tokens).mean(dim=1))
        sound, sight = sound.relu().mean(dim=2), sight.relu().mean(dim=(2, 3))
        both = sound + sight if self.fusion == "sum" else torch.cat([sound, sight], dim=1)
        return self.head(self.mix(both))


class Contract(nn.Module):
    """The same model written to the contract: what is absent is left out (concat: zeros)."""

    modalities, embed_dim, num_classes = SENSORS, {"audio": 48, "video": 48}, CLASSES

    def __init__(self, late: Late) -> None:
        super().__init__()
        self.late = late

    def encode(self, inputs):
        nets = {"audio": self.late.audio_net, "video": self.late.video_net}
        return {name: nets[name](v).flatten(2).transpose(1, 2) for name, v in inputs.items()}

    def fuse(self, tokens):
        late = self.late
        if late.fusion == "attention":
            embedding = late.mix(torch.cat(list(tokens.values()), dim=1)).mean(dim=1)
        else:
            pooled = {name: own.relu().mean(dim=1) for name, own in tokens.items()}
            nothing = torch.zeros_like(next(iter(pooled.values())))
            parts = [pooled.get(name, nothing) for name in SENSORS]
            embedding = late.mix(sum(parts) if late.fusion == "sum" else torch.cat(parts, dim=1))
        return dasp.Fused(embedding, late.head(embedding))


def trained(fusion: str, world: World, seed: int, steps: int = 400) -> Late:
    torch.manual_seed(seed)
    model = Late(fusion).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        inputs, labels = world.draw(10_000 + step)
        loss = F.cross_entropy(model(**inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def wrapped(model: Late, world: World, absent: str = "zeros") -> nn.Module:
    return dasp.wrap(
        model,
        encoders={"audio": "audio_net", "video": "video_net"},
        head="head",
        inputs=world.draw(9_000, 128)[0],
        absent=absent,
    )


def stream(world: World, sensor: str, damage: str):
    """Yield batches in which one sensor is damaged; none if the damage is "clean"."""
    for index in range(BATCHES):
        inputs, labels = world.draw(index)
        if damage != "clean":
            generator = torch.Generator().manual_seed(index)
            inputs[sensor] = DAMAGES[damage](inputs[sensor], generator)
        yield inputs, labels


def run(tta, world: World, sensor: str, damage: str) -> tuple[float, float, list[float]]:
    """Return accuracy, the share of batches with the right diagnosis, and the sensors' gaps."""
    right, hits, gaps = 0, 0, []
    expected = set() if damage == "clean" else {sensor}
    tta.reset()
    for inputs, labels in stream(world, sensor, damage):
        out = tta(inputs)
        right += int((out.logits.argmax(1) == labels).sum())
        if out.diagnosis is not None:
            hits += set(out.diagnosis.biased) == expected
            scores = out.diagnosis.scores
            gaps.append(2 * scores[sensor] - sum(scores.values()))
    return 100 * right / (BATCH * BATCHES), 100 * hits / BATCHES, gaps


def auroc(positive: list[float], negative: list[float]) -> float:
    """Return how often a damaged batch has a larger gap than a clean one, in percent."""
    pairs = torch.tensor(positive)[:, None] - torch.tensor(negative)[None]
    return 100 * float(((pairs > 0) + 0.5 * (pairs == 0)).float().mean())


@dataclass(frozen=True)
class Found:
    """Means over sensors and damages, in percent."""

    auroc: float  # how often a damaged batch is told from a clean one, whatever delta is
    flagged: float  # damaged batches of which exactly the damaged sensor is flagged
    kept: float  # clean batches of which no sensor is flagged
    accuracy: float


def measure(tta: dasp.Adaptation, world: World) -> Found:
    rows = []
    for sensor in SENSORS:
        clean = run(tta, world, sensor, "clean")
        for damage in DAMAGES:
            accuracy, flagged, gaps = run(tta, world, sensor, damage)
            rows.append((auroc(gaps, clean[2]) if gaps else 0, flagged, clean[1], accuracy))
    return Found(*torch.tensor(rows).mean(dim=0).tolist())


def diagnoses(model: Late, world: World, ways=tuple(WAYS)) -> dict[tuple[str, str], Found]:
    """Diagnose with each stand-in by each way of diagnosing, learning nothing."""
    found = {}
    for kind in ("contract", *STAND_INS):
        made = Contract(model) if kind == "contract" else wrapped(model, world, kind)
        for way in ways:
            method, options = WAYS[way]
            tta = dasp.adapt(made, method, **options)
            if method == "triage":
                tta.fit([world.draw(9_000, 128)[0]])
            with tta.frozen():
                found[way, kind] = measure(tta, world)
    return found


def gains(model: Late, world: World) -> dict[str, float]:
    """Return the accuracy of the source model, and of DASP with both forms of it."""
    forms = {"contract": Contract(model), "wrap": wrapped(model, world)}
    ways = {"source": dasp.adapt(forms["contract"], "source")}
    ways |= {name: dasp.adapt(form, "dasp", lr=LR) for name, form in forms.items()}
    return {name: measure(tta, world).accuracy for name, tta in ways.items()}


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--fusions", nargs="+", default=FUSIONS)
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--ways", nargs="+", default=tuple(WAYS), choices=tuple(WAYS))
    given = parser.parse_args()
    seeds, fusions = given.seeds, given.fusions
    torch.set_num_threads(1)
    told: dict[str, list[dict[tuple[str, str], Found]]] = {fusion: [] for fusion in fusions}
    gained: dict[str, list[dict[str, float]]] = {fusion: [] for fusion in fusions}
    for seed in seeds:
        world = World(seed)
        for fusion in fusions:
            model = trained(fusion, world, seed)
            if "diagnoses" in given.tables:
                told[fusion].append(diagnoses(model, world, given.ways))
            if "gains" in given.tables:
                gained[fusion].append(gains(model, world))
    if "diagnoses" in given.tables:
        print_diagnoses(told, given.ways, len(seeds))
    if "gains" in given.tables:
        print_gains(gained, seeds)


def print_gains(gained: dict[str, list[dict[str, float]]], seeds: list[int]) -> None:
    print(f"\naccuracy (%), lr {LR}")
    print("| fusion | seed | source | dasp, contract | dasp, wrap | share of the gain |")
    print("|---|---:|---:|---:|---:|---:|")
    for fusion in gained:
        every = dict(zip(map(str, seeds), gained[fusion], strict=True))
        every["all"] = {key: mean(row[key] for row in gained[fusion]) for key in gained[fusion][0]}
        for seed, row in every.items():
            share = (row["wrap"] - row["source"]) / (row["contract"] - row["source"])
            shown = " | ".join(f"{value:.1f}" for value in row.values())
            print(f"| {fusion} | {seed} | {shown} | {100 * share:.0f}% |")


def print_diagnoses(
    told: dict[str, list[dict[tuple[str, str], Found]]], ways: list[str], seeds: int
) -> None:
    print(f"AUROC / flagged / clean kept (%), {seeds} seeds")
    print("| diagnosis | fusion | contract | " + " | ".join(STAND_INS) + " |")
    print("|---|---|" + "---|" * (1 + len(STAND_INS)))
    for way in ways:
        for fusion in told:
            cells = []
            for kind in ("contract", *STAND_INS):
                rows = [found[way, kind] for found in told[fusion]]
                parts = (
                    mean(getattr(r, key) for r in rows) for key in ("auroc", "flagged", "kept")
                )
                cells.append(" / ".join(f"{part:.0f}" for part in parts))
            print(f"| {way} | {fusion} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
