"""Arithmetic of a step on CAV-MAE ViT-B, counted and not timed: GFLOP a sample, by method.

    python benchmarks/arithmetic.py

PyTorch's own counter watches real steps, backward passes included. To be quick they are made on
narrow and shallow models with ViT-B's inputs: every count is a polynomial of second degree in the
width and a line in the depth of the encoders, so six small counts give that of the large model,
but for the few dimensions that a diagnosis leaves out. Inputs are such that every method updates
and DASP flags the video: the dearest case.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from measuring import options_of, write_figures
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import dasp
from dasp.core.errors import ContractError
from dasp.core.types import Inputs
from dasp.methods import METHODS
from dasp.models import CavMae

WIDTHS, DEPTHS, SIZE = (16, 32, 48), (1, 2), 4
VIT_B = (768, 11)
STEADY = 0.9  # nats: sure enough for every method to learn from, not for all to be alike
OPTIONS: dict[str, dict[str, Any]] = {
    "sumi": {"stream_length": 100, "share": 0.0, "alone_floor": 0.0},  # keep every sample
    "dasp": {"delta": 0.0},
    "dasp robust": {"variant": "robust"},
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
    """A model of ViT-B's inputs; with one head its attention counts as much and is quicker."""
    return CavMae(embed_dim=width, depth=depth, num_heads=1, num_classes=50)


@torch.no_grad()
def small_model(width: int, depth: int, inputs: Inputs) -> CavMae:
    """A random model with a head that tells the first sample from the others, and not too surely.

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
    """Sounds, of which one is odd or none, and one strange frame for all, which is flagged."""
    inputs = clean_inputs(SIZE)
    if odd:
        inputs["audio"][0] = 2 - 3 * inputs["audio"][0]
    return inputs | {"video": 5 * inputs["video"][:1].expand(SIZE, -1, -1, -1)}


def clean_inputs(size: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "audio": torch.randn(size, 1024, 128, generator=generator),
        "video": torch.randn(size, 3, 224, 224, generator=generator),
    }


def flop(call: Callable[[], object]) -> float:
    """Count the floating-point operations of a call, a sample; a product and a sum are two."""
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


def step(label: str) -> Callable[[int, int], float]:
    """Return a count of a method's step: on tokens, or on inputs where it tunes the encoders."""
    name = label.split()[0]
    on_inputs = METHODS[name].tunes_encoder

    def count(width: int, depth: int) -> float:
        inputs = example_inputs(odd=label != "dasp robust")  # that would flag the sounds, too
        model = small_model(width, depth, inputs)
        tta = dasp.adapt(model, name, **OPTIONS.get(label, {}))
        if METHODS[name].needs_source or label == "dasp robust":
            tta.fit([clean_inputs(32)])
        with torch.no_grad():
            tokens = model.encode(inputs)
        found = []
        total = flop(lambda: found.append(tta(inputs) if on_inputs else tta.on_tokens(tokens)))
        flagged = found[0].diagnosis.biased if found[0].diagnosis else {"video"}
        if not (found[0].updated or name == "source") or flagged != {"video"}:
            raise ContractError(f"{label} did not do all its work at width {width}: {found[0]}.")
        return total

    return count


def count_all() -> dict[str, dict[str, Any]]:
    """Return GFLOP a sample of the model's stages and of every method's step."""
    both = ("audio", "video")
    stages = {
        "encode audio": at_vit_b(stage(("audio",), fused=False)),
        "encode video": at_vit_b(stage(("video",), fused=False)),
        "fuse both": at_vit_b(stage(both, fused=True)),
        "fuse audio": at_vit_b(stage(("audio",), fused=True)),
        "fuse video": at_vit_b(stage(("video",), fused=True)),
    }
    labels = [*METHODS, "dasp robust"]
    steps = {label: at_vit_b(step(label)) for label in track(labels, "counting", transient=True)}
    tuning = {label: METHODS[label.split()[0]].tunes_encoder for label in labels}
    return {
        "stages": {name: round(value / 1e9, 3) for name, value in stages.items()},
        "steps": {name: round(value / 1e9, 3) for name, value in steps.items()},
        "tunes_encoder": tuning,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = count_all()
    for kind in ("stages", "steps"):
        table = Table(kind, "GFLOP a sample", title="CAV-MAE ViT-B", title_justify="left")
        for name, value in figures[kind].items():
            on = ", on inputs" if figures["tunes_encoder"].get(name) else ""
            table.add_row(name + on, f"{value:.1f}")
        Console().print(table)
    write_figures(options.json, "Arithmetic of a step", options_of(options), figures)


if __name__ == "__main__":
    main()
