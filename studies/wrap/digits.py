"""Triage on real digits, cut into two or three sensors, and on models that nobody wrote for it.

    pip install scikit-learn
    python studies/wrap/digits.py                 # twelve models, about six minutes
    python studies/wrap/digits.py --kinds gru --cuts halves

The 1,797 images of scikit-learn are read in rows: the upper half is one sensor, the lower half the
other (`halves`), or left, middle and right (`thirds`). Models concatenate their sensors and are
trained by the joint loss alone. Damage is that of strangers.py, one kind after another, 512 samples
each in batches of 64; a stuck sensor repeats one sample per batch, and where the damaged one is
alone, the others are missing; if all are faint, they have less than a third of their ink. Prints,
per stream, the mean accuracy of each variant, the share of batches of which exactly the damaged
sensors are flagged, and the lowest gain over Source of any model. docs/own_model.md has the table.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import tyro
from sklearn.datasets import load_digits
from strangers import BATCH, DAMAGES, VARIANTS
from torch import Tensor, nn

import dasp

CLASSES, SAMPLES, FIT = 10, 512, 128
Cut = Literal["halves", "thirds"]
Order = Literal["shuffled", "sorted", "one class"]
Part = tuple[dict[str, Tensor], Tensor]
STREAMS: tuple[tuple[str, Order], ...] = (
    ("no", "shuffled"),
    ("no", "sorted"),
    ("one", "shuffled"),
    ("one", "sorted"),
    ("one", "one class"),
    ("stuck", "shuffled"),
    ("stuck", "sorted"),
    ("alone", "shuffled"),
    ("alone", "one class"),
    ("all", "shuffled"),
    ("all", "sorted"),
    ("all", "one class"),
    ("all faint", "shuffled"),
    ("all faint", "sorted"),
    ("all faint", "one class"),
)


def parts(cut: Cut, seed: int) -> tuple[Part, Part, Part]:
    """Return samples to train with, to fit with and to test with: inputs (B, T, F) and labels."""
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).view(-1, 8, 8)
    pixels = (pixels - pixels.mean()) / pixels.std()
    if cut == "halves":
        inputs = {"upper": pixels[:, :4], "lower": pixels[:, 4:]}
    else:
        inputs = {"left": pixels[..., :3], "middle": pixels[..., 3:5], "right": pixels[..., 5:]}
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, fit, test = order.split([900, FIT, len(labels) - 900 - FIT])

    def chosen(rows: Tensor) -> Part:
        return {name: own[rows] for name, own in inputs.items()}, torch.tensor(labels)[rows]

    return chosen(train), chosen(fit), chosen(test)


class Rows(nn.Module):
    """An encoder (B, T, F) → (B, 32): the mean of a GRU over rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.GRU(width, 32, batch_first=True)

    def forward(self, rows: Tensor) -> Tensor:
        found: Tensor = self.net(rows)[0].mean(dim=1)
        return found


def encoder(kind: str, steps: int, width: int) -> nn.Module:
    """Return an encoder: a GRU, a layer on all pixels, or convolutions with BatchNorm ("norm")."""
    if kind == "gru":
        return Rows(width)
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(steps * width, 32), nn.ReLU())
    return nn.Sequential(
        nn.Unflatten(1, (1, steps)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * steps * width, 32),
    )


class Joined(nn.Module):
    """An ordinary model(inputs) -> logits."""

    def __init__(self, kind: str, inputs: dict[str, Tensor]) -> None:
        super().__init__()
        shapes = {name: own.shape[1:] for name, own in inputs.items()}
        self.encoders = nn.ModuleDict({n: encoder(kind, *shape) for n, shape in shapes.items()})
        self.mix = nn.Sequential(nn.Linear(32 * len(inputs), 64), nn.ReLU())
        self.head = nn.Linear(64, CLASSES)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        found = torch.cat([net(inputs[name]) for name, net in self.encoders.items()], dim=1)
        logits: Tensor = self.head(self.mix(found))
        return logits


def trained(kind: str, train: Part, seed: int) -> nn.Module:
    """Return a trained model, wrapped."""
    torch.manual_seed(seed)
    inputs, labels = train
    model = Joined(kind, inputs)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(400):
        rows = torch.randint(len(labels), (128,))
        optimizer.zero_grad()
        logits = model({name: own[rows] for name, own in inputs.items()})
        nn.functional.cross_entropy(logits, labels[rows]).backward()
        optimizer.step()
    encoders = {name: f"encoders.{name}" for name in inputs}
    some = {name: own[:BATCH] for name, own in inputs.items()}
    return dasp.wrap(model.eval(), encoders=encoders, head="head", inputs=some)


def batches(
    test: Part, damaged: str, order: Order
) -> Iterator[tuple[frozenset[str], dict[str, Tensor], Tensor]]:
    """Yield the damaged sensors, inputs and labels of each batch of a stream."""
    inputs, labels = test
    draws = torch.Generator().manual_seed(1)
    one = [(name,) for name in inputs]
    sensors = {"no": [()]}.get(damaged, [tuple(inputs)] if damaged.startswith("all") else one)
    found = {"no": [None], "stuck": [stuck], "all faint": [faint]}
    damages = found.get(damaged, list(DAMAGES.values()))
    for names in sensors:
        for damage in damages:
            for rows in drawn(labels, order, draws):
                batch = {name: own[rows] for name, own in inputs.items()}
                if damage:
                    batch |= {name: damage(batch[name], draws) for name in names}
                if damaged == "alone":
                    batch = {name: batch[name] for name in names}
                yield frozenset(names), batch, labels[rows]


def stuck(values: Tensor, draws: torch.Generator) -> Tensor:
    """Return the same sample again and again."""
    return values[:1].expand_as(values)


def faint(values: Tensor, draws: torch.Generator) -> Tensor:
    """Return ink of less than a third of the strength."""
    return values.amin() + 0.3 * (values - values.amin())


def drawn(labels: Tensor, order: Order, draws: torch.Generator) -> Iterator[Tensor]:
    """Yield the places of the samples of each batch of one domain."""
    places = torch.randperm(len(labels), generator=draws)[:SAMPLES]
    if order == "sorted":
        places = places[labels[places].argsort(stable=True)]
    for own in places.split(BATCH):
        if order == "one class":
            name = torch.randint(CLASSES, (1,), generator=draws)
            same = (labels == name).nonzero()[:, 0]
            yield same[torch.randint(len(same), (BATCH,), generator=draws)]
        else:
            yield own


@dataclass(frozen=True)
class Options:
    """Which models, and how they are adapted."""

    kinds: tuple[str, ...] = ("gru", "mlp", "norm")
    cuts: tuple[Cut, ...] = ("halves", "thirds")
    seeds: tuple[int, ...] = (0, 1)
    variants: tuple[str, ...] = ("source", "dasp", "triage", "learn=False", "not fitted")


def main(options: Options) -> None:
    """Print a row per stream."""
    torch.set_num_threads(1)
    right = defaultdict[tuple[str, Order], dict[str, dict[str, float]]](lambda: defaultdict(dict))
    named = defaultdict[tuple[str, Order], list[bool]](list)
    for kind in options.kinds:
        for cut in options.cuts:
            for seed in options.seeds:
                train, fit, test = parts(cut, seed)
                model, place = trained(kind, train, seed), f"{kind}, {cut}, seed {seed}"
                for stream in STREAMS:
                    for variant in options.variants:
                        tta = adapted(model, variant, fit[0])
                        hits, seen = 0, 0
                        for sensors, inputs, labels in batches(test, *stream):
                            out = tta(inputs)
                            hits += int((out.logits.argmax(dim=1) == labels).sum())
                            seen += len(labels)
                            if variant == "triage" and out.diagnosis:
                                named[stream].append(out.diagnosis.biased == sensors)
                        right[stream][variant][place] = 100 * hits / seen
    print("| damaged sensors, order |", " | ".join(options.variants), "| named | least gain |")
    print("|---|" + "---:|" * (len(options.variants) + 2))
    for stream, found in right.items():
        cells = [f"{sum(own.values()) / len(own):.1f}" for own in found.values()]
        gains = {n: found["triage"][n] - value for n, value in found["source"].items()}
        least = min(gains, key=gains.__getitem__)
        share = 100 * sum(named[stream]) / len(named[stream])
        cells += [f"{share:.0f}%", f"{gains[least]:+.1f} ({least})"]
        print(f"| {', '.join(stream)} | {' | '.join(cells)} |")


def adapted(model: nn.Module, variant: str, fit: dict[str, Tensor]) -> dasp.Adaptation:
    """Return a new handle of one of the variants of strangers.py."""
    method, settings, fits = VARIANTS[variant]
    tta = dasp.adapt(model, method, **settings)
    if fits:
        tta.fit([fit])
    return tta


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
