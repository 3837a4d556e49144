"""How much faster encoders are in bfloat16, in 8 bits or compiled, on CAV-MAE ViT-B: ratios.

    .venv/bin/python benchmarks/encoders.py        # about ten minutes on one core

Each kind of `dasp.models.faster` is timed in turn with float32, `encode` alone and a whole step of
DASP that learns; figures are float32 / kind, so 2 is twice as fast. One thread: several wait for
each other on a busy machine, which 8 bits with their many short steps feel most. Weights are
random, time does not depend on them; delta=0 makes DASP flag one modality and learn every time,
and the same one must be flagged throughout. What compiling took, once, stands apart.
`benchmarks/encoder_effect.py` says what each kind does to accuracy and diagnosis.
"""

import argparse
from functools import partial

import torch
from measuring import against, options_of, take_turns, timed, write_figures
from rich.console import Console
from rich.table import Table

import dasp

KINDS = ("bfloat16", "int8", "compiled")


def make_inputs(batch: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "audio": torch.randn(batch, 1024, 128, generator=generator),
        "video": torch.randn(batch, 3, 224, 224, generator=generator),
    }


@torch.no_grad()
def distance(tokens: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, float]:
    """How far tokens are from those of float32, relative to their size."""
    return {
        name: round(float((value - exact[name]).norm() / exact[name].norm()), 6)
        for name, value in tokens.items()
    }


def measure(models: dict[str, torch.nn.Module], batch: int, rounds: int) -> dict:
    """Time all models at one batch size."""
    inputs = make_inputs(batch)
    adapted = {name: dasp.adapt(model, "dasp", delta=0.0) for name, model in models.items()}
    tokens: dict[str, dict[str, torch.Tensor]] = {}
    first = {
        name: timed(lambda name=name, model=model: tokens.update({name: model.encode(inputs)}))
        for name, model in models.items()
    }
    away = {name: distance(own, tokens["float32"]) for name, own in tokens.items()}
    encode = take_turns(
        {name: partial(model.encode, inputs) for name, model in models.items()}, rounds, warm_up=0
    )
    flagged: set[frozenset[str]] = set()
    step = take_turns(
        {name: partial(learn, tta, inputs, flagged) for name, tta in adapted.items()},
        rounds,
        warm_up=0,
    )
    kinds = [name for name in models if name != "float32"]
    assert len(flagged) == 1, "kinds learn different modalities, so their steps cannot be compared"
    return {
        f"batch {batch}": {
            f"{part}, {kind}": against(times["float32"], times[kind])
            for part, times in (("encode", encode), ("step", step))
            for kind in kinds
        },
        f"first call, batch {batch}": {
            kind: {
                "seconds": round(first[kind].clock, 1),
                "of processor time": round(first[kind].processor, 1),
            }
            for kind in models
        },
        f"distance of tokens, batch {batch}": {kind: away[kind] for kind in kinds},
    }


def learn(tta: dasp.Adaptation, inputs: dict[str, torch.Tensor], flagged: set) -> None:
    outcome = tta(inputs)
    assert outcome.updated
    flagged.add(outcome.diagnosis.biased)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="0: as torch chooses")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    plain = dasp.models.CavMae(num_classes=309).eval().requires_grad_(False)
    models = {"float32": plain} | {kind: dasp.models.faster(plain, kind) for kind in options.kinds}
    figures = {}
    for batch in options.batches:
        figures |= measure(models, batch, options.rounds)
    title = f"CAV-MAE ViT-B, float32 / kind of encoders, {torch.get_num_threads()} threads"
    show(title, figures)
    write_figures(options.json, title, options_of(options), figures)


def show(title: str, figures: dict) -> None:
    table = Table(title=title)
    for head in ("", "what", "times as fast", "low to high", "by processor time"):
        table.add_column(head, justify="left" if head in ("", "what") else "right")
    for batch, found in figures.items():
        for what, row in found.items():
            if "ratio" in row:
                spread = f"{row['low']:.2f} to {row['high']:.2f}"
                by_processor = f"{row['processor_ratio']:.2f}"
                table.add_row(batch, what, f"{row['ratio']:.2f}", spread, by_processor)
    Console().print(table)
    for name, found in figures.items():
        if name.startswith("first"):
            each = ", ".join(f"{kind} {row['seconds']} s" for kind, row in found.items())
            Console().print(f"{name}: {each}")


if __name__ == "__main__":
    main()
