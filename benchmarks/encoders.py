"""How much faster encoders are in bfloat16, in 8 bits or compiled, on CAV-MAE ViT-B: ratios.

    python benchmarks/encoders.py            # ten minutes on one core

Each kind of `dasp.models.faster` is timed in turn with float32, `encode` alone and a whole
step of DASP that learns; figures are float32 / kind, so 2 is twice as fast. Weights are random;
delta=0 makes DASP flag one modality and learn every time, and the same one must be flagged
throughout. What compiling took, once, stands apart. `studies/precision` says what each kind does to
accuracy and diagnosis.
"""

from functools import partial
from typing import Any

import torch
from measuring import against, finish, parse, take_turns, timed, vit_inputs

import dasp

KINDS = ["bfloat16", "int8", "compiled"]


def speed(models: dict[str, torch.nn.Module], batch: int, rounds: int) -> dict[str, Any]:
    """Time all models at one batch size."""
    inputs = vit_inputs(batch)
    adapted = {name: dasp.adapt(model, "dasp", delta=0.0) for name, model in models.items()}
    encoders = {name: partial(model.encode, inputs) for name, model in models.items()}
    first = {name: timed(encode) for name, encode in encoders.items()}
    encode = take_turns(encoders, rounds, warm_up=0)
    flagged: set[frozenset[str]] = set()
    steps = {name: partial(learn, tta, inputs, flagged) for name, tta in adapted.items()}
    step = take_turns(steps, rounds, warm_up=0)
    assert len(flagged) == 1, "kinds learn different modalities: their steps cannot be compared"
    kinds = [name for name in models if name != "float32"]
    return {
        f"batch {batch}": {
            f"{part}, {kind}": against(times["float32"], times[kind])
            for part, times in (("encode", encode), ("step", step))
            for kind in kinds
        },
        f"first call, batch {batch}": {
            kind: {"seconds": round(own.clock, 1), "of processor time": round(own.processor, 1)}
            for kind, own in first.items()
        },
    }


def learn(tta: dasp.Adaptation, inputs: dict[str, torch.Tensor], flagged: set) -> None:
    outcome = tta(inputs)
    assert outcome.updated
    flagged.add(outcome.diagnosis.biased)


def main() -> None:
    options = parse(__doc__, batches=[4, 16], rounds=2, threads=1, kinds=KINDS)
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    plain = dasp.models.CavMae(num_classes=309).eval().requires_grad_(False)
    models = {"float32": plain} | {kind: dasp.models.faster(plain, kind) for kind in options.kinds}
    figures = {}
    for batch in options.batches:
        figures |= speed(models, batch, options.rounds)
    title = f"CAV-MAE ViT-B, float32 / kind of encoders, {torch.get_num_threads()} threads"
    finish(options, title, figures)


if __name__ == "__main__":
    main()
