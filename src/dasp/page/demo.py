"""The built-in model, three ways to adapt it, and a stream of sensors that can be damaged."""

import copy

import torch

from dasp.core.types import Inputs, Tokens
from dasp.data.shapes import NAMES, SoundingShapes
from dasp.methods import adapt
from dasp.methods.dasp_variants import Variant
from dasp.models import load_model
from dasp.page.built_in import BATCH, BuiltInStream
from dasp.page.session import Session

MODEL = "sounding_shapes_0"
# Chosen by `dasp tune` on this set, see src/dasp/plans/options/sounding_shapes.toml.
READ_RATE, DASP_RATE = 1e-3, 3e-3
CLEAN_SAMPLES = 128  # that "robust" is shown before, 32 at a time

WHICH = {
    "released": "DASP as its authors released it",
    "paper": "DASP as the paper's equations say",
    "robust": f"DASP in our robust variant, which has seen {CLEAN_SAMPLES} clean samples before",
}


def demo_session(variant: Variant = "released", stream: BuiltInStream | None = None) -> Session:
    """Return Source, READ and DASP on the built-in stream, none of which has seen a batch."""
    model = load_model(MODEL)
    lanes = {
        "Source": adapt(model, "source"),
        "READ": adapt(copy.deepcopy(model), "read", lr=READ_RATE),
        "DASP": adapt(model, "dasp", variant=variant, lr=DASP_RATE),
    }
    if variant == "robust":
        lanes["DASP"].fit(_clean_batches())

    def encode(inputs: Inputs) -> Tokens:
        with torch.no_grad():
            tokens: Tokens = model.encode(inputs)  # type: ignore[operator]
            return tokens

    return Session(
        stream or BuiltInStream(),
        lanes,
        title="dasp: a sensor goes bad",
        mode="demo",
        legend=f"{WHICH[variant]} (learning rate {DASP_RATE:g}); READ (learning rate "
        f"{READ_RATE:g}); Source, the model as trained. All three get the same batches of {BATCH} "
        f"samples, no labels, and predict before they learn.",
        classes=NAMES,
        encode=encode,
    )


def _clean_batches() -> list[Inputs]:
    shapes = SoundingShapes("validation", CLEAN_SAMPLES)
    samples = [shapes[place].inputs for place in range(CLEAN_SAMPLES)]
    return [
        {name: torch.stack([s[name] for s in samples[start : start + 32]]) for name in samples[0]}
        for start in range(0, CLEAN_SAMPLES, 32)
    ]
