"""The command `dasp train`."""

from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console

from dasp.bench.train import (
    Epoch,
    TrainOptions,
    clip_stages,
    fit,
    history_table,
    new_model,
)
from dasp.core.errors import OptionError
from dasp.core.progress import bars
from dasp.methods.base import whole
from dasp.models import save_weights


def train(
    output: Annotated[Path, tyro.conf.Positional],
    *,
    data: Path,
    validation: Path,
    epochs: int = 7,
    lr: float = 1.5e-3,
    weight_decay: float = 0.05,
    batch: int = 64,
    seed: int = 0,
    width: int = 96,
    heads: int = 4,
    depth: int = 3,
    mlp_ratio: float = 2.0,
    threads: int = 1,
    follow_links: bool = False,
) -> list[Epoch]:
    """Train a source model (a small CAV-MAE) on your own clips and write its weights.

    A checkpoint is written beside the output after each epoch: the same command continues where it
    was stopped and ends with the same weights.

    Args:
        output: The .safetensors file to write.
        data: Directory of clips (<class>/<clip>.wav and .jpg, or READ's lists).
        validation: Directory of held-out clips of the same classes.
        epochs: Epochs on the clips.
        lr: Highest learning rate of AdamW; it warms up briefly and then falls as a cosine.
        weight_decay: Weight decay of AdamW.
        batch: Samples per step.
        seed: Seed of the first weights and of the order.
        width: Width of the tokens.
        heads: Attention heads per block.
        depth: Blocks per modality; one shared block follows.
        mlp_ratio: Hidden width of a block's MLP over its width.
        threads: Processor threads; a small model gains nothing from a second one.
        follow_links: Read files outside of the directories to which links in them lead.
    """
    if output.suffix != ".safetensors":
        raise OptionError(f"the output is a .safetensors file, not {output}.")
    whole(epochs=epochs)
    torch.set_num_threads(threads)
    options = TrainOptions(lr=lr, weight_decay=weight_decay, batch=batch, seed=seed)
    stages, held_out, classes = clip_stages(data, validation, epochs, follow_links)
    sizes = {"embed_dim": width, "num_heads": heads, "depth": depth, "mlp_ratio": mlp_ratio}
    model = new_model(sizes | {"num_classes": classes}, seed)
    with bars() as progress:
        checkpoint = output.with_suffix(".checkpoint")
        history = fit(model, stages, held_out, options, checkpoint, progress)
    save_weights(model, output)
    console = Console()
    console.print(history_table(history))
    console.print(f"wrote {output}")
    return history
