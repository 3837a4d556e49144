"""What triage costs next to a plain forward: ViT-B, BatchNorm, more classes and modalities.

    python benchmarks/triage_cost.py                # one sample at a time: two minutes on one core
    python benchmarks/triage_cost.py --batch 16

Weights are random and the diagnosis is told what to flag; time depends on neither. The condition's
memory is filled as the rounds go on. Ratios to Source are of processor time, in one run, each way
in turn. Growth is that of a small model, where the method's own work weighs most. With BatchNorm,
two small convolutional encoders, a flagged modality is encoded twice.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
from measuring import against, finish, parse, random_inputs, take_turns, vit_inputs
from step import arithmetic

import dasp
from dasp.core.types import Inputs, Tokens
from dasp.methods.triage import Triage
from dasp.models import CavMae, Toy

CLASSES = (10, 100, 300, 1000)
MODALITIES = (2, 3, 4, 6, 8)
WAYS = (
    "triage",
    "triage, nothing flagged",
    "without learning",
    "without learning, nothing flagged",
)


class Told(Triage):
    """Triage that does all its work, and then is told what to flag, to treat and to learn."""

    flagged: frozenset[str] = frozenset()

    def _diagnose(self, batch, remember):
        source, diagnosis = super()._diagnose(batch, remember)
        return source, dataclasses.replace(diagnosis, biased=self.flagged)

    def _cannot_treat(self, *known):
        super()._cannot_treat(*known)

    def _ordinary(self, *known):
        super()._ordinary(*known)
        return True

    def _cannot_teach(self, state, rows):
        super()._cannot_teach(state, rows)


class Convolutional(torch.nn.Module):
    """Two sensors (B, 3, 64, 64), each encoded by four convolutions with BatchNorm: (B, 16, 64)."""

    modalities, embed_dim, num_classes = ("left", "right"), 64, 10

    def __init__(self) -> None:
        super().__init__()
        self.encoders = torch.nn.ModuleDict({name: self._encoder() for name in self.modalities})
        self.head = torch.nn.Linear(64, 10)

    def _encoder(self) -> torch.nn.Module:
        layers, widths = [], (3, 16, 32, 64, 64)
        for before, after in itertools.pairwise(widths):
            convolution = torch.nn.Conv2d(before, after, 3, stride=2, padding=1)
            layers += [convolution, torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers, torch.nn.Flatten(2))

    def encode(self, inputs: Inputs) -> Tokens:
        return {name: self.encoders[name](own).mT for name, own in inputs.items()}

    def fuse(self, tokens: Tokens) -> dasp.Fused:
        embedding = torch.cat(list(tokens.values()), dim=1).mean(dim=1)
        return dasp.Fused(embedding, self.head(embedding))


def build(way: str, model: torch.nn.Module, clean: Tokens) -> dasp.Adaptation:
    tta = dasp.adapt(model, Told, learn=not way.startswith("without"))
    with warnings.catch_warnings():  # random weights may predict one class only
        warnings.simplefilter("ignore", RuntimeWarning)
        tta.fit_on_tokens([clean])
    if "nothing" not in way:
        tta.method.flagged = frozenset({model.modalities[-1]})
    return tta


def ratios(
    model: torch.nn.Module, inputs: Inputs, clean: Tokens, ways: Sequence[str], rounds: int
) -> dict[str, dict[str, float]]:
    handles = {way: build(way, model, clean) for way in ways}
    handles["source"] = dasp.adapt(model, "source")
    calls = {way: partial(tta, inputs) for way, tta in handles.items()}
    times = take_turns(calls, rounds)
    return {way: against(times[way], times["source"]) for way in ways}


def costs(
    model: torch.nn.Module, drawn: Callable[[int], Inputs], batch: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Return the ratios to Source of each way, of time and of arithmetic."""
    clean = encoded(model, drawn(32))
    own = ratios(model, drawn(batch), clean, WAYS, rounds)
    plain = arithmetic(dasp.adapt(model, "source"), drawn(1))
    for way in WAYS:
        tta = build(way, model, clean)
        tta(drawn(1))  # the first update also chooses the learning rate
        own[way]["arithmetic"] = round(arithmetic(tta, drawn(1)) / plain, 4)
    return own


@torch.no_grad()
def encoded(model: torch.nn.Module, inputs: Inputs) -> Tokens:
    return model.eval().encode(inputs)


def growth(counts: Sequence[int], modalities: bool, rounds: int) -> dict[str, float]:
    """Return triage's ratio to Source by the number of classes or modalities."""
    found = {}
    for count in counts:
        names = tuple(f"sensor_{n}" for n in range(count if modalities else 2))
        model = Toy(modalities=names, num_classes=10 if modalities else count, depth=1)
        shapes = dict.fromkeys(names, (16, model.features))
        inputs, clean = random_inputs(shapes, 32), encoded(model, random_inputs(shapes, 64, 1))
        own = ratios(model, inputs, clean, WAYS[:3:2], rounds)
        found |= {f"{count}, {way}": ratio["processor_ratio"] for way, ratio in own.items()}
    return found


def main() -> None:
    options = parse(__doc__, batch=1, rounds=2)
    torch.manual_seed(0)
    norms = partial(random_inputs, dict.fromkeys(Convolutional.modalities, (3, 64, 64)))
    figures = {
        "ViT-B": costs(CavMae(num_classes=309), vit_inputs, options.batch, options.rounds),
        "BatchNorm": costs(Convolutional(), norms, options.batch, 10 * options.rounds),
        "classes": growth(CLASSES, False, 10 * options.rounds),
        "modalities": growth(MODALITIES, True, 10 * options.rounds),
    }
    finish(options, f"Triage next to a plain forward, batch {options.batch}", figures)


if __name__ == "__main__":
    main()
