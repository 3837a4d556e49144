"""What triage costs next to a plain forward: on CAV-MAE ViT-B, and by classes and modalities.

    python benchmarks/triage_cost.py                # one sample at a time: two minutes on one core
    python benchmarks/triage_cost.py --batch 16

Weights are random and the diagnosis is told what to flag; time depends on neither. The condition's
memory is filled as the rounds go on. Ratios to Source are of processor time, in one run, each way
in turn. Growth is that of a small model, where the method's own work weighs most.
"""

import dataclasses
from collections.abc import Sequence
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

    def _cannot_treat(self, state, rows):
        super()._cannot_treat(state, rows)

    def _cannot_teach(self, state, rows):
        super()._cannot_teach(state, rows)


def build(way: str, model: torch.nn.Module, clean: Tokens) -> dasp.Adaptation:
    tta = dasp.adapt(model, Told, learn=not way.startswith("without"))
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
    model = CavMae(num_classes=309)
    clean = encoded(model, vit_inputs(32))
    own = ratios(model, vit_inputs(options.batch), clean, WAYS, options.rounds)
    plain = arithmetic(dasp.adapt(model, "source"))
    for way in WAYS:
        tta = build(way, model, clean)
        tta(vit_inputs(1))  # the first update also chooses the learning rate
        own[way]["arithmetic"] = round(arithmetic(tta) / plain, 4)
    figures = {
        "ViT-B": own,
        "classes": growth(CLASSES, False, 10 * options.rounds),
        "modalities": growth(MODALITIES, True, 10 * options.rounds),
    }
    finish(options, f"Triage next to a plain forward, batch {options.batch}", figures)


if __name__ == "__main__":
    main()
