"""The command `dasp train`."""

from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console

from dasp.bench.train import Epoch, TrainOptions, fit, history_table, new_model
from dasp.core.devices import find_device
from dasp.core.errors import OptionError
from dasp.core.progress import bars
from dasp.data import ClipDataset, open_manifest
from dasp.models import save_weights


def train(
    output: Annotated[Path, tyro.conf.Positional],
    *,
    data: Path,
    validation: Path,
    options: Annotated[TrainOptions, tyro.conf.arg(name="")] = TrainOptions(),  # noqa: B008
    width: int = 96,
    heads: int = 4,
    depth: int = 3,
    mlp_ratio: float = 2.0,
    threads: int = 1,
    device: str = "cpu",
    follow_links: bool = False,
) -> list[Epoch]:
    """Train a source model (a small CAV-MAE) on your own clips and write its weights.

    A checkpoint is written beside the output after each epoch: the same command continues where it
    was stopped and ends with the same weights.

    Args:
        output: The .safetensors file to write.
        data: Directory of clips (<class>/<clip>.wav and .jpg, or READ's lists).
        validation: Directory of held-out clips of the same classes.
        width: Width of the tokens.
        heads: Attention heads per block.
        depth: Blocks per modality; one shared block follows.
        mlp_ratio: Hidden width of a block's MLP over its width.
        threads: Processor threads; a small model gains nothing from a second one.
        device: Where it runs: auto, cpu, cuda, cuda:1 or mps.
        follow_links: Read files outside of the directories to which links in them lead.
    """
    if output.suffix != ".safetensors":
        raise OptionError(f"the output is a .safetensors file, not {output}.")
    torch.set_num_threads(threads)
    manifest, held_out = (
        open_manifest(root, follow_links=follow_links) for root in (data, validation)
    )
    if manifest.classes != held_out.classes:
        raise OptionError(f"{data} and {validation} do not have the same classes.")
    sizes = {"embed_dim": width, "num_heads": heads, "depth": depth, "mlp_ratio": mlp_ratio}
    model = new_model(sizes | {"num_classes": len(manifest.classes)}, options.seed)
    model = model.to(find_device(device))
    examples = ClipDataset(manifest), ClipDataset(held_out)
    with bars() as progress:
        history = fit(model, *examples, options, output.with_suffix(".checkpoint"), progress)
    save_weights(model, output)
    console = Console()
    console.print(history_table(history))
    console.print(f"wrote {output}")
    return history
