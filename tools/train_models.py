"""Train the source models of the package: `python tools/train_models.py NAME`, or `all`.

    python tools/train_models.py sounding_shapes_0          # 7 to 11 minutes, writes out/models/
    python tools/train_models.py sounding_shapes_depth_0    # a third encoder beside that model

`sounding_shapes_0`, `_1`, `_2` are trained on the flavour `balanced` of the built-in set, and
`sounding_shapes_sound_0` on `sound`: some epochs on an easier version (quiet room, nothing absent
or dubbed), then some on the real one. `sounding_shapes_depth_0`, `_1`, `_2` add an encoder of depth
to the model of the same number, whose own encoders stay as they are; the file holds what differs
from that model. Frames, sounds and depth maps are drawn once into pools in the cache directory
(1.3 GB) and combined anew in each epoch.

A checkpoint is written beside the output after each epoch: the same command continues where it was
stopped and ends with the same weights, to the bit. docs/sounding_shapes.md has the accuracies.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn

from dasp.bench.references import find_model
from dasp.bench.train import Epoch, TrainOptions, fit, history_table, new_model
from dasp.core.errors import OptionError
from dasp.core.files import atomic_path
from dasp.core.progress import bars
from dasp.core.seeding import numpy_generator
from dasp.core.types import Fused, Inputs, Tokens
from dasp.data import shapes
from dasp.data.shapes import CLASSES, SENSORS, SoundingShapes
from dasp.data.shapes.classes import KINDS, flavour_named
from dasp.data.shapes.dataset import draw_content, draw_ranged
from dasp.data.shapes.scene import draw_depth, draw_frame
from dasp.data.shapes.sounds import draw_wave
from dasp.models import CavMae, CavMaeDepth, save_weights

DEFAULT_CACHE = Path.home() / ".cache" / "dasp"
FROZEN = ("audio", "video")  # encoders that training a third one leaves as they are
CHUNK = 64

Track = Callable[[Iterable[int]], Iterable[int]]
Encode = Callable[[Inputs], Tokens]
Examples = list[Any]


@dataclass(frozen=True)
class Recipe:
    """How one model is trained."""

    flavour: str = "balanced"
    base: str | None = None
    """The model that a third encoder is added to."""
    easy_epochs: int = 2
    epochs: int = 7
    seed: int = 0
    """Of the first weights, the combinations and the order."""
    epoch_size: int = 14400
    per_class: int = 600
    """Frames, sounds and depth maps per class in the pools."""
    validation: int = 720
    """Samples that measure each epoch."""
    batch: int = 64
    sizes: dict[str, float] = field(
        default_factory=lambda: {"embed_dim": 96, "num_heads": 4, "depth": 3, "mlp_ratio": 2.0}
    )


RECIPES = {f"sounding_shapes_{seed}": Recipe(seed=seed) for seed in range(3)}
RECIPES["sounding_shapes_sound_0"] = Recipe("sound", epochs=5)
RECIPES |= {
    f"sounding_shapes_depth_{seed}": Recipe(base=f"sounding_shapes_{seed}", epochs=8, seed=seed)
    for seed in range(3)
}


class Pools:
    """Training samples whose frame, sound and depth map are drawn from one pool each.

    A pool has `per_class` members of each class, and as many without any; it is made once and kept
    in `cache` as a memory-mapped array. `set_epoch` combines other members, and other bad ones,
    from the same pools: (seed, epoch) alone decides which.
    """

    def __init__(
        self, recipe: Recipe, flavour: str, cache: Path, modalities: Sequence[str], track: Track
    ) -> None:
        self.flavour, self.size = flavour, recipe.epoch_size
        self.seed, self.per_class = recipe.seed, recipe.per_class
        self._bad = flavour_named(flavour).bad
        folder = cache / f"sounding_shapes_v{shapes.VERSION}" / f"{flavour}_{self.per_class}"
        self._pools = {name: self._pool(name, folder, track) for name in modalities}
        self._tokens: dict[str, Tensor] = {}
        self.set_epoch(0)

    def __len__(self) -> int:
        return self.size

    def set_epoch(self, epoch: int) -> None:
        """Combine the members of the pools anew."""
        generator = numpy_generator(self.seed, f"pairs/{self.flavour}", str(epoch))
        labels = np.arange(self.size) % CLASSES
        contents = [draw_content(generator, int(label), self._bad) for label in labels]
        members = generator.integers(self.per_class, size=(2, self.size))
        self._labels = torch.from_numpy(labels)
        self._rows = {
            "audio": self._members([content.heard for content in contents], members[1]),
            "video": self._members([content.seen for content in contents], members[0]),
        }
        if "depth" in self._pools:  # draws of its own, so that frames and sounds are as without it
            generator = numpy_generator(self.seed, f"triples/{self.flavour}", str(epoch))
            ranged = [draw_ranged(generator, content, self._bad) for content in contents]
            drawn = generator.integers(self.per_class, size=self.size)
            self._rows["depth"] = self._members(ranged, drawn)

    def batch(self, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the inputs (or tokens) and labels of many samples at once."""
        inputs = {name: self._inputs(name, rows[indices]) for name, rows in self._rows.items()}
        return inputs, self._labels[indices]

    def encode_once(self, encode: Encode, names: Sequence[str], track: Track) -> None:
        """Encode every member of these pools; batches hold their tokens from now on."""
        for name in names:
            total = len(self._pools[name])
            chunks = [
                encode({name: self._inputs(name, np.arange(start, min(start + CHUNK, total)))})
                for start in track(range(0, total, CHUNK))
            ]
            self._tokens[name] = torch.cat([chunk[name] for chunk in chunks])

    def _members(
        self, classes: Sequence[int | None], members: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return rows of a pool; its class 36 is "nothing"."""
        numbers = np.array([CLASSES if number is None else number for number in classes])
        return numbers * self.per_class + members

    def _inputs(self, name: str, rows: NDArray[np.int64]) -> Tensor:
        if name in self._tokens:
            return self._tokens[name][torch.from_numpy(rows)]
        members = self._pools[name][rows]
        if name == "audio":
            return torch.from_numpy(members).float()
        return (shapes.video_input if name == "video" else shapes.depth_input)(members)

    def _pool(self, name: str, folder: Path, track: Track) -> NDArray[Any]:
        """Return ((36 + 1) · per_class, ...) from the cache; make it first if it does not exist."""
        file, draw = {
            "video": ("frames.npy", self._frames),
            "audio": ("sounds.npy", self._sounds),
            "depth": ("depths.npy", self._depths),
        }[name]
        path, total = folder / file, (CLASSES + 1) * self.per_class
        if not path.is_file():
            first = draw(range(1))
            with atomic_path(path) as part:
                pool = np.lib.format.open_memmap(
                    part, mode="w+", dtype=first.dtype, shape=(total, *first.shape[1:])
                )
                for start in track(range(0, total, CHUNK)):
                    rows = range(start, min(start + CHUNK, total))
                    pool[rows.start : rows.stop] = draw(rows)
                pool.flush()
        return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]

    def _frames(self, rows: range) -> NDArray[Any]:
        """Return (n, 64, 64, 3) bytes."""
        looks, flavour = [*KINDS, None], flavour_named(self.flavour)
        draw = [(self._generator("frame", row), looks[row // self.per_class]) for row in rows]
        return np.stack([draw_frame(generator, look, flavour) for generator, look in draw])

    def _sounds(self, rows: range) -> NDArray[Any]:
        """Return (n, 64, 128) log-mel pictures in half precision, 1e-3 of their spread."""
        voices, flavour = [*KINDS, None], flavour_named(self.flavour)
        draw = [(self._generator("wave", row), voices[row // self.per_class]) for row in rows]
        waves = np.stack([draw_wave(generator, voice, flavour) for generator, voice in draw])
        return np.asarray(shapes.audio_input(waves).half().numpy())

    def _depths(self, rows: range) -> NDArray[Any]:
        """Return (n, 32, 32) distances in millimetres."""
        forms = [*KINDS, None]
        draw = [(self._generator("depth", row), forms[row // self.per_class]) for row in rows]
        return np.stack([draw_depth(generator, form) for generator, form in draw])

    def _generator(self, part: str, row: int) -> np.random.Generator:
        return numpy_generator(0, f"sounding_shapes/{self.flavour}/pool", part, str(row))


class Stages:
    """Pools one after another: those of each epoch."""

    def __init__(self, pools: Sequence[Pools]) -> None:
        self.pools = pools
        self.set_epoch(0)

    def __len__(self) -> int:
        return len(self.now)

    def set_epoch(self, epoch: int) -> None:
        self.now = self.pools[epoch]
        self.now.set_epoch(epoch)

    def batch(self, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
        return self.now.batch(indices)


Ready = tuple[nn.Module, nn.Module, Stages, Examples]
"""The model, what is trained of it, and the examples of training and validation."""


def train(recipe: Recipe, output: Path, cache: Path, show: bool = True) -> list[Epoch]:
    """Train a model by its recipe, write it and return its history."""
    if output.suffix != ".safetensors":
        raise OptionError(f"the output is a .safetensors file, not {output}.")
    torch.set_num_threads(1)  # so small a model gains nothing from a second one
    with bars(show) as progress:
        track: Track = partial(progress.track, description="draw and encode")
        build = _two_sensors if recipe.base is None else _three_sensors
        model, trained, stages, held_out = build(recipe, cache, track)
        options = TrainOptions(len(stages.pools), batch=recipe.batch, seed=recipe.seed)
        pairs = 0.0 if recipe.base is None else 0.5
        checkpoint = output.with_suffix(".checkpoint")
        history = fit(trained, stages, held_out, options, checkpoint, progress, pairs)
    save_weights(model, output, recipe.base)
    return history


def _two_sensors(recipe: Recipe, cache: Path, track: Track) -> Ready:
    epochs = {f"{recipe.flavour}_easy": recipe.easy_epochs, recipe.flavour: recipe.epochs}
    pools = [
        pool
        for name, count in epochs.items()
        if count
        for pool in [Pools(recipe, name, cache, FROZEN, track)] * count
    ]
    samples = SoundingShapes("validation", recipe.validation, recipe.flavour)
    held_out = list(map(samples.__getitem__, range(len(samples))))
    given = {"audio_length": shapes.FRAMES, "image_size": 64, "num_classes": CLASSES}
    model = new_model(recipe.sizes | given, recipe.seed)
    return model, model, Stages(pools), held_out


@torch.no_grad()
def _three_sensors(recipe: Recipe, cache: Path, track: Track) -> Ready:
    assert recipe.base is not None
    model = with_depth(find_model(recipe.base), recipe.seed)
    pools = Pools(recipe, recipe.flavour, cache, SENSORS, track)
    pools.encode_once(model.encode, FROZEN, track)
    samples = SoundingShapes("validation", recipe.validation, recipe.flavour, modalities=SENSORS)
    held_out = []
    for sample in map(samples.__getitem__, range(len(samples))):
        tokens = model.encode({name: sample.inputs[name][None] for name in FROZEN})
        inputs = {**sample.inputs, **{name: token[0] for name, token in tokens.items()}}
        held_out.append((inputs, sample.label))
    return model, AfterEncoders(model), Stages([pools] * recipe.epochs), held_out


def with_depth(base: nn.Module, seed: int) -> CavMaeDepth:
    """Return a model that starts as `base`, with a new encoder of depth; the others are frozen."""
    if not isinstance(base, CavMae) or isinstance(base, CavMaeDepth):
        raise OptionError("a third encoder is added to a CAV-MAE of two: choose another base.")
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


def main(
    name: Annotated[Literal[(*RECIPES, "all")], tyro.conf.Positional],  # type: ignore[valid-type]
    out: Path = Path("out/models"),
    cache: Path = DEFAULT_CACHE,
) -> None:
    """Train a source model of the built-in set, or all of them.

    Args:
        name: The model to train.
        out: Directory for the weights and checkpoints.
        cache: Directory for the pools.
    """
    console = Console()
    for each in RECIPES if name == "all" else [name]:
        output = out / f"{each}.safetensors"
        console.print(history_table(train(RECIPES[each], output, cache)))
        console.print(f"wrote {output}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
