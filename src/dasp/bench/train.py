"""The command that trains a source model: on the built-in set, or on clips of your own."""

from functools import partial
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dasp.bench.examples import Examples
from dasp.bench.fitting import Epoch, Settings, Stage, fit
from dasp.core.errors import OptionError
from dasp.core.progress import bars
from dasp.data.dataset import ClipDataset
from dasp.data.sets import open_manifest
from dasp.data.shapes import CLASSES, FRAMES, ShapePairs, SoundingShapes
from dasp.methods.base import whole
from dasp.models import CavMae, save_weights

DEFAULT_CACHE = Path.home() / ".cache" / "dasp"
SHAPES_SIZES = {"audio_length": FRAMES, "image_size": 64, "num_classes": CLASSES}
VALIDATION = 720  # samples of the built-in set that measure each epoch
POOL = 600  # frames and sounds of each class


def train(
    output: Path,
    *,
    flavour: Literal["balanced", "sound"] = "balanced",
    data: Path | None = None,
    validation: Path | None = None,
    easy_epochs: int = 2,
    epochs: int = 7,
    epoch_size: int = 14400,
    lr: float = 1.5e-3,
    weight_decay: float = 0.05,
    batch: int = 64,
    seed: int = 0,
    width: int = 96,
    heads: int = 4,
    depth: int = 3,
    mlp_ratio: float = 2.0,
    threads: int = 1,
    cache: Path = DEFAULT_CACHE,
) -> list[Epoch]:
    """Train a source model (a small CAV-MAE) and write its weights.

    Without --data it is the model of the built-in set: some epochs on an easier version of it
    (quiet room, nothing absent or dubbed), then some on the real one. With --data it is one of
    your own clips. A checkpoint is written after each epoch beside the output; the same command
    goes on where it was stopped and ends with the same weights.

    Args:
        output: the .safetensors file to write.
        flavour: of the built-in set: frame and sound equally telling, or the sound more.
        data: a folder of your own clips (<class>/<clip>.wav and .jpg, or READ's lists).
        validation: a folder of held-out clips of the same classes; needed with --data.
        easy_epochs: epochs on the easier built-in set.
        epochs: epochs on the real set, or on your clips.
        epoch_size: samples of an epoch on the built-in set; each epoch pairs frames and sounds
            anew.
        lr: highest learning rate of AdamW; it climbs shortly and falls as a cosine.
        weight_decay: of AdamW.
        batch: samples of a step.
        seed: of the first weights, the pairs and the order.
        width: of the tokens.
        heads: of the attention.
        depth: blocks of each modality; one shared block follows.
        mlp_ratio: hidden width of a block's MLP over its width.
        threads: processor threads; the small model gains nothing from a second one.
        cache: folder for the frames and sounds of the built-in set, made once (1.3 GB).
    """
    if output.suffix != ".safetensors":
        raise OptionError(f"the output is a .safetensors file, not {output}.")
    whole(epochs=epochs)
    torch.set_num_threads(threads)
    console = Console()
    settings = Settings(lr=lr, weight_decay=weight_decay, batch=batch, seed=seed)
    sizes = {"embed_dim": width, "num_heads": heads, "depth": depth, "mlp_ratio": mlp_ratio}
    with bars() as progress:
        if data is None:
            stages, held_out = _shapes(
                flavour, easy_epochs, epochs, epoch_size, seed, cache, progress
            )
            sizes |= SHAPES_SIZES
        else:
            stages, held_out, classes = _clips(data, validation, epochs)
            sizes |= {"num_classes": classes}
        model = _new_model(sizes, seed)
        checkpoint = output.with_suffix(".checkpoint")
        history = fit(model, stages, held_out, settings, checkpoint, progress)
    save_weights(model, output)
    console.print(history_table(history))
    console.print(f"wrote {output}")
    return history


def _new_model(sizes: dict[str, float], seed: int) -> CavMae:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CavMae(**sizes)  # type: ignore[arg-type]


def _shapes(
    flavour: str,
    easy_epochs: int,
    epochs: int,
    size: int,
    seed: int,
    cache: Path,
    progress: Progress,
) -> tuple[list[Stage], Examples]:
    stages = []
    for name, count in ((f"{flavour}_easy", easy_epochs), (flavour, epochs)):
        if count:
            pairs = ShapePairs(
                name,
                size,
                cache,
                POOL,
                seed,
                partial(progress.track, description=f"draw {name}"),
            )
            stages.append(Stage(name, pairs, count))
    return stages, _kept(SoundingShapes("validation", VALIDATION, flavour))


def _clips(data: Path, validation: Path | None, epochs: int) -> tuple[list[Stage], Examples, int]:
    if validation is None:
        raise OptionError("--data needs --validation, a folder of held-out clips.")
    manifest, held_out = open_manifest(data), open_manifest(validation)
    if manifest.classes != held_out.classes:
        raise OptionError(f"{data} and {validation} do not have the same classes.")
    stage = Stage(manifest.name, ClipDataset(manifest), epochs)
    return [stage], ClipDataset(held_out), len(manifest.classes)


def _kept(examples: SoundingShapes) -> Examples:
    """Draw all samples once: they are used after every epoch."""
    return [examples[index] for index in range(len(examples))]


def history_table(history: list[Epoch]) -> Table:
    """Return the validation accuracies of a training, a row an epoch."""
    table = Table(title="Validation accuracy (%)")
    table.add_column("epoch")
    table.add_column("on")
    for name in ("loss", *history[-1].accuracy):
        table.add_column(name, justify="right")
    for number, epoch in enumerate(history, start=1):
        figures = [f"{epoch.loss:.3f}", *(f"{value:.1f}" for value in epoch.accuracy.values())]
        table.add_row(str(number), epoch.stage, *figures)
    return table
