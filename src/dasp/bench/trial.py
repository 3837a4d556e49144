"""The small models, streams and adaptations on which methods are tried."""

from typing import Any

from torch import nn

from dasp.core.types import Inputs
from dasp.methods import METHODS, Adaptation, Method, adapt, hyperparameters
from dasp.models import Toy
from dasp.streams.synthetic import CLEAN, SyntheticWorld

TWO = ("audio", "video")
THREE = ("audio", "video", "depth")
SOURCE_SAMPLES = 32


def trial_model(modalities: tuple[str, ...] = TWO) -> nn.Module:
    """Return a toy with one layer in each encoder, so that every method can be tried on it."""
    return Toy(modalities=modalities, depth=1, seed=1)


def trial_batches(modalities: tuple[str, ...] = TWO) -> list[Inputs]:
    """Return batches of 16: clean, each modality shifted, clean."""
    stream = SyntheticWorld(modalities).stream([CLEAN, *modalities, CLEAN], 1, 16, strength=4.0)
    return [batch.inputs for batch in stream]


def trial(
    method: str | type[Method], modalities: tuple[str, ...] = TWO, **options: Any
) -> Adaptation:
    """Adapt a trial model, with a stream's length and source data where the method needs them."""
    build = METHODS[method] if isinstance(method, str) else method
    if "stream_length" in hyperparameters(build):
        options = {"stream_length": len(trial_batches(modalities))} | options
    tta = adapt(trial_model(modalities), build, **options)
    if build.needs_source:
        tta.fit([SyntheticWorld(modalities).draw(SOURCE_SAMPLES, seed=1).inputs])
    return tta
