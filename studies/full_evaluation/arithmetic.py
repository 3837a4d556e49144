"""Arithmetic of a step on CAV-MAE ViT-B, counted and not timed: GFLOP per sample, by method.

    python studies/full_evaluation/arithmetic.py

PyTorch's own counter watches real steps, backward passes included. To be quick they are made on
narrow and shallow models with ViT-B's inputs: every count is a polynomial of second degree in the
width and a line in the depth of the encoders, so six small counts give that of the large model,
but for the few dimensions that a diagnosis leaves out. Inputs are such that every method updates
and DASP flags the video: the dearest case.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import dasp
from dasp.core.errors import ContractError
from dasp.methods import METHODS
from dasp.models import CavMae

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from measuring import finish, parse, vit_inputs

WIDTHS, DEPTHS, SIZE = (16, 32, 48), (1, 2), 4
VIT_B = (768, 11)
STEADY = 0.9  # nats: sure enough for every method to learn from, not for all to be alike
OPTIONS: dict[str, dict[str, Any]] = {
    "sumi": {"stream_length": 100, "share": 0.0, "alone_floor": 0.0},  # keep every sample
    "dasp": {"delta": 0.0},
}


def at_vit_b(count: Callable[[int, int], float]) -> float:
    """Return what `count(width, depth)` is at ViT-B's size, from six small models.

    >>> at_vit_b(lambda width, depth: 5 + 2 * width + depth * width**2) == 5 + 2 * 768 + 11 * 768**2
    True
    """
    powers = np.vander(np.array(WIDTHS, dtype=float), 3)
    ends = []
    for depth in DEPTHS:
        terms = np.linalg.solve(powers, [count(width, depth) for width in WIDTHS])
        ends.append(np.polyval(terms, VIT_B[0]))
    return float(round(ends[0] + (VIT_B[1] - DEPTHS[0]) * (ends[1] - ends[0])))


def narrow(width: int, depth: int) -> CavMae:
    """Return a model of ViT-B's inputs; with one head its attention counts as much."""
    return CavMae(embed_dim=width, depth=depth, num_heads=1, num_classes=50)


@torch.no_grad()
def small_model(width: int, depth: int, inputs: dict[str, torch.Tensor]) -> CavMae:
    """Return a random model whose head tells the first sample from the others, not too surely.

    Some methods learn only from predictions that differ, and all but a few from sure ones.
    """
    torch.manual_seed(0)
    model = narrow(width, depth).eval()
    norm, linear = model.head
    seen = norm(model.fuse(model.encode(inputs)).embedding)
    apart, between = seen[0] - seen[1:].mean(dim=0), (seen[0] + seen[1:].mean(dim=0)) / 2
    linear.weight.zero_()
    linear.bias.zero_()
    for place, sign in enumerate((1.0, -1.0)):
        linear.weight[place], linear.bias[place] = sign * apart, -sign * (apart @ between)
    low, high = 0.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2
        chances = (linear(seen) * middle).softmax(dim=1)
        unsure = float(torch.special.entr(chances).sum(dim=1).mean()) > STEADY
        low, high = (middle, high) if unsure else (low, middle)
    for part in linear.parameters():
        part.mul_(low)
    return model


def example_inputs(odd: bool = True) -> dict[str, torch.Tensor]:
    """Return sounds, one of them odd if asked for, and one strange frame for all, to be flagged."""
    inputs = vit_inputs(SIZE)
    if odd:
        inputs["audio"][0] = 2 - 3 * inputs["audio"][0]
    return inputs | {"video": 5 * inputs["video"][:1].expand(SIZE, -1, -1, -1)}


def flop(call: Callable[[], object]) -> float:
    """Count the floating-point operations of a call per sample; a product and a sum are two."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / SIZE


def stage(modalities: tuple[str, ...], fused: bool) -> Callable[[int, int], float]:
    """Return a count of encoding, or of fusing, some modalities without a gradient."""

    @torch.no_grad()
    def count(width: int, depth: int) -> float:
        inputs = {name: value for name, value in example_inputs().items() if name in modalities}
        model = narrow(width, depth)
        if not fused:
            return flop(lambda: model.encode(inputs))
        tokens = model.encode(inputs)
        return flop(lambda: model.fuse(tokens))

    return count


def step(name: str) -> Callable[[int, int], float]:
    """Return a count of a method's step: on tokens, or on inputs if it tunes the encoders."""
    method = METHODS[name]

    def count(width: int, depth: int) -> float:
        inputs = example_inputs(odd=name != "triage")  # that would flag the sounds, too
        model = small_model(width, depth, inputs)
        tta = dasp.adapt(model, name, **OPTIONS.get(name, {}))
        if method.needs_source or name == "triage":
            tta.fit([vit_inputs(32)])
        with torch.no_grad():
            tokens = model.encode(inputs)
        call, given = (tta, inputs) if method.tunes_encoder else (tta.on_tokens, tokens)
        found = []
        total = flop(lambda: found.append(call(given)))
        flagged = found[0].diagnosis.biased if found[0].diagnosis else {"video"}
        if not (found[0].updated or name == "source") or flagged != {"video"}:
            raise ContractError(f"{name} did not do all its work at width {width}: {found[0]}.")
        return total

    return count


def main() -> None:
    options = parse(__doc__)
    torch.set_num_threads(1)
    stages = {f"encode {name}": stage((name,), fused=False) for name in ("audio", "video")}
    stages |= {"fuse both": stage(("audio", "video"), fused=True)}
    stages |= {f"fuse {name}": stage((name,), fused=True) for name in ("audio", "video")}
    steps = {name: step(name) for name in METHODS}
    figures = {
        kind: {
            name: round(at_vit_b(count) / 1e9, 3)
            for name, count in track(counts.items(), kind, transient=True)
        }
        for kind, counts in (("stages", stages), ("steps", steps))
    }
    figures["tunes_encoder"] = {name: METHODS[name].tunes_encoder for name in METHODS}
    finish(options, "Arithmetic of a step, GFLOP per sample, CAV-MAE ViT-B", figures)


if __name__ == "__main__":
    main()
