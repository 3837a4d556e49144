"""The command that gives a source model of the built-in set its third sensor."""

from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

from dasp.bench.examples import Examples
from dasp.bench.fitting import Epoch, Settings, Stage, fit
from dasp.bench.references import find_model
from dasp.bench.train import DEFAULT_CACHE, POOL, VALIDATION, history_table
from dasp.core.errors import OptionError
from dasp.core.progress import bars
from dasp.core.types import Fused, Inputs, Tokens
from dasp.data.shapes import SENSORS, ShapeTriples, SoundingShapes
from dasp.methods.base import whole
from dasp.models import CavMae, CavMaeDepth, save_weights

FLAVOUR = "balanced"
FROZEN = ("audio", "video")


def train_depth(
    output: Path,
    *,
    base: str = "sounding_shapes_0",
    epochs: int = 8,
    epoch_size: int = 14400,
    lr: float = 1.5e-3,
    weight_decay: float = 0.05,
    batch: int = 64,
    seed: int = 0,
    threads: int = 1,
    cache: Path = DEFAULT_CACHE,
) -> list[Epoch]:
    """Train a third encoder, for depth, beside a source model of the built-in set.

    The encoders of sound and frame stay as they are; their tokens are made once. The encoder of
    depth is new, the shared block and the head go on learning: on all sensors together, on any
    two and on each alone. The file holds what differs from the base, which is found by its name
    when the model is loaded. A checkpoint is written after each epoch beside the output; the
    same command goes on where it was stopped and ends with the same weights.

    Args:
        output: the .safetensors file to write.
        base: a source model that comes with the package.
        epochs: epochs on the built-in set.
        epoch_size: samples of an epoch; each epoch groups sounds, frames and depths anew.
        lr: highest learning rate of AdamW; it climbs shortly and falls as a cosine.
        weight_decay: of AdamW.
        batch: samples of a step.
        seed: of the new encoder's first weights, the groups and the order.
        threads: processor threads; the small model gains nothing from a second one.
        cache: folder for the material of the built-in set, made once (0.7 GB).
    """
    if output.suffix != ".safetensors":
        raise OptionError(f"the output is a .safetensors file, not {output}.")
    whole(epochs=epochs)
    torch.set_num_threads(threads)
    model = with_depth(find_model(base), seed)
    known = AfterEncoders(model)
    settings = Settings(lr=lr, weight_decay=weight_decay, batch=batch, pairs=0.5, seed=seed)
    with bars() as progress:
        draw = partial(progress.track, description="draw and encode")
        triples = ShapeTriples(FLAVOUR, epoch_size, cache, POOL, seed, draw)
        with torch.no_grad():
            triples.encode_once(model.encode, FROZEN, draw)
        stages = [Stage(FLAVOUR, triples, epochs)]
        checkpoint = output.with_suffix(".checkpoint")
        history = fit(known, stages, _held_out(model), settings, checkpoint, progress)
    save_weights(model, output, base)
    console = Console()
    console.print(history_table(history))
    console.print(f"wrote {output}")
    return history


def with_depth(base: nn.Module, seed: int) -> CavMaeDepth:
    """Return a model that begins as `base`, with a new encoder of depth; the others are frozen."""
    if not isinstance(base, CavMae) or isinstance(base, CavMaeDepth):
        raise OptionError("a third sensor is added to a CAV-MAE of two: choose another base.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CavMaeDepth(**base.config)
    model.load_state_dict(base.state_dict(), strict=False)
    for parts in (model.patch_embed, model.positions, model.modality_vectors, model.blocks):
        for name in FROZEN:
            parts[name].requires_grad_(False)
    return model


class AfterEncoders(nn.Module):
    """A model as training sees it: sound and frame come as tokens, depth is encoded."""

    def __init__(self, model: CavMaeDepth) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.modalities, self.embed_dim = model.modalities, model.embed_dim
        self.num_classes = model.num_classes

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """{"audio": (B, N, D), "video": (B, N, D), "depth": raw} → (B, N, D) each."""
        return {**inputs, **self.model.encode({"depth": inputs["depth"]})}

    def fuse(self, tokens: Tokens) -> Fused:
        """Fuse any non-empty subset."""
        return self.model.fuse(tokens)


@torch.no_grad()
def _held_out(model: CavMaeDepth) -> Examples:
    """Draw and encode the validation samples once: they are used after every epoch."""
    shapes = SoundingShapes("validation", VALIDATION, FLAVOUR, modalities=SENSORS)
    found = []
    for sample in (shapes[index] for index in range(len(shapes))):
        tokens = model.encode({name: sample.inputs[name][None] for name in FROZEN})
        found.append(({**sample.inputs, **{n: t[0] for n, t in tokens.items()}}, sample.label))
    return found
