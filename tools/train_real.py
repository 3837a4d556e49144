"""Train the source models of recordings: `python tools/train_real.py NAME --root DIR`.

    python tools/train_real.py dsa_0 --root DIR     # two minutes on two free cores
    python tools/train_real.py dsa_units_0 --root DIR   # the same, with body units as sensors
    python tools/train_real.py grid_0 --root DIR    # ten minutes
    python tools/train_real.py dsa_0 --root DIR --leave-out p3   # trained on all but p3

`grid_0`, `_1`, `_2` are small CAV-MAEs of spoken words, trained on the sentences of the split
"train"; `dsa_0`, `_1`, `_2` CNNs of body-worn sensors, trained on people p1 to p5, whose modalities
are the kinds of sensor; those of `dsa_units_0` are the body units. Only undamaged recordings are
used. The recipes were chosen by the accuracy on the split "validation"; no test
person or sentence was looked at. Weights are kept in half precision: the last row of the table
printed is the last epoch, rounded to it.

A checkpoint is written beside the output after each epoch: the same command continues where it was
stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn

from dasp.bench.results import digest
from dasp.bench.train import Epoch, TrainOptions, evaluate, fit, history_table
from dasp.core.errors import OptionError
from dasp.core.files import atomic_path
from dasp.core.progress import bars
from dasp.core.seeding import batch_seed, numpy_generator
from dasp.core.sensors import BODY_UNITS, SENSORS
from dasp.data import grid, inertial
from dasp.data.loading import run_jobs
from dasp.models import CavMaeClips, InertialNet, save_weights

THREADS = 1  # so small a model gains little from a second one: train two models at once
SHIFT = 6  # pixels by which the mouth is moved at most
EARLIER = 5  # log-mel frames (50 ms) by which a sound is moved at most, and one video frame


@dataclass(frozen=True)
class Recipe:
    """How one model is trained."""

    data: Literal["grid", "dsa"]
    seed: int
    epochs: int
    batch: int
    lr: float = 1e-3
    sizes: dict[str, Any] = field(default_factory=dict)


GRID_SIZES = {
    "embed_dim": 96, "num_heads": 4, "depth": 2, "mlp_ratio": 2.0, "tube": 5,
    "frames": grid.FRAMES, "image_size": grid.INPUT_SIDE, "audio_length": grid.MEL_FRAMES,
    "num_classes": len(grid.WORDS),
}  # fmt: skip
DSA_SIZES = {
    "channels": dict.fromkeys(SENSORS, 3 * len(BODY_UNITS)), "widths": [32, 48], "embed_dim": 64,
    "dropout": 0.2, "num_classes": len(inertial.ACTIVITIES),
}  # fmt: skip
UNIT_SIZES = DSA_SIZES | {"channels": dict.fromkeys(BODY_UNITS, 3 * len(SENSORS))}
RECIPES = {
    **{f"grid_{seed}": Recipe("grid", seed, 24, 32, sizes=GRID_SIZES) for seed in range(3)},
    **{f"dsa_{seed}": Recipe("dsa", seed, 10, 64, sizes=DSA_SIZES) for seed in range(3)},
    "dsa_units_0": Recipe("dsa", 0, 10, 64, sizes=UNIT_SIZES),
}


class Words:
    """Words in memory; while trained on, they are moved a little in space and time."""

    def __init__(
        self, clips: Sequence[grid.WordClip], cache: Path, seed: int | None = None
    ) -> None:
        if not cache.exists():
            frames, sounds = zip(*run_jobs(_read_word, clips), strict=True)
            with atomic_path(cache) as part, part.open("wb") as file:
                np.savez(file, frames=np.stack(frames), sounds=np.stack(sounds))
        with np.load(cache) as kept:
            self._frames, sounds = kept["frames"], kept["sounds"]  # (n, 15, 96, 96), (n, 64, 128)
        self._sounds = torch.from_numpy(sounds)
        self._labels = torch.tensor([clip.label for clip in clips])
        self._seed, self._rng = seed, np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], int]:
        inputs, labels = self.batch(np.array([index]))
        return {name: value[0] for name, value in inputs.items()}, int(labels[0])

    def set_epoch(self, epoch: int) -> None:
        """Move the words in another way."""
        if self._seed is not None:
            self._rng = numpy_generator(self._seed, "moved words", str(epoch))

    def batch(self, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the inputs and labels of many words at once."""
        frames, sounds = self._frames[indices], self._sounds[indices].clone()
        if self._seed is not None:
            for place in range(len(indices)):
                frames[place] = self._moved(frames[place])
                later = int(self._rng.integers(-EARLIER, EARLIER + 1))
                sounds[place] = sounds[place].roll(later, dims=0)
        inputs = {"audio": sounds, "video": grid.video_input(frames)}
        return inputs, self._labels[indices]

    def _moved(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return frames that are shifted, one earlier or later, and mirrored half of the time."""
        down, right = self._rng.integers(-SHIFT, SHIFT + 1, 2)
        order = np.clip(np.arange(len(frames)) + self._rng.integers(-1, 2), 0, len(frames) - 1)
        moved = np.roll(frames[order], (int(down), int(right)), axis=(1, 2))
        return moved[:, :, ::-1] if self._rng.random() < 0.5 else moved


def _read_word(clip: grid.WordClip) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    return grid.grey(grid.read_frames(clip)), grid.audio_input(grid.read_sound(clip)).numpy()


class Body:
    """Segments of body-worn sensors in memory; while trained on, they begin at another time."""

    def __init__(
        self,
        segments: Sequence[inertial.Segment],
        modalities: Sequence[str],
        seed: int | None = None,
    ) -> None:
        values = np.stack(list(run_jobs(_read_segment, segments)))  # (n, 125, 5, 3, 3)
        self._inputs = {
            name: torch.stack(
                [inertial.model_input(inertial.triads_of(each, name), name) for each in values]
            )
            for name in modalities
        }
        self._labels = torch.tensor([segment.label for segment in segments])
        self._seed, self._rng = seed, np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self._labels)

    def set_epoch(self, epoch: int) -> None:
        """Begin at other times; the draws of dropout are those of the epoch too."""
        if self._seed is not None:
            self._rng = numpy_generator(self._seed, "moved segments", str(epoch))
            torch.manual_seed(batch_seed(self._seed, epoch))

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], int]:
        inputs = {name: value[index] for name, value in self._inputs.items()}
        return inputs, int(self._labels[index])

    def batch(self, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the inputs and labels of many segments at once."""
        later = 0 if self._seed is None else int(self._rng.integers(inertial.STEPS))
        inputs = {name: value[indices].roll(later, dims=2) for name, value in self._inputs.items()}
        return inputs, self._labels[indices]


def _read_segment(segment: inertial.Segment) -> NDArray[np.float32]:
    return inertial.read_segment(segment.path)


def train(
    recipe: Recipe, root: Path, output: Path, leave_out: str | None = None, show: bool = True
) -> list[Epoch]:
    """Train a model by its recipe, write it and return its history."""
    if output.suffix != ".safetensors":
        raise OptionError(f"the output is a .safetensors file, not {output}.")
    torch.set_num_threads(THREADS)
    examples, held_out = _examples(recipe, root, output.parent, leave_out)
    kind: Callable[..., nn.Module] = CavMaeClips if recipe.data == "grid" else InertialNet
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(batch_seed(recipe.seed, 0))
        model = kind(**recipe.sizes)
    options = TrainOptions(recipe.epochs, recipe.lr, batch=recipe.batch, seed=recipe.seed)
    with bars(show) as progress:
        checkpoint = output.with_suffix(".checkpoint")
        history = fit(model, examples, held_out, options, checkpoint, progress)
    model.half()
    save_weights(model, output)
    return [*history, Epoch(history[-1].loss, evaluate(model.float(), held_out))]


def _examples(recipe: Recipe, root: Path, cache: Path, leave_out: str | None) -> tuple[Any, Any]:
    """Return what is trained on, and what measures it: other sentences or people."""
    if recipe.data == "grid":
        if leave_out is not None:
            raise OptionError("--leave-out is for people of dsa; grid is split by sentence.")
        clips = grid.find_clips(root)
        parts = {split: grid.split_clips(clips, split) for split in ("train", "validation")}
        names = {
            split: cache / f"words-{split}-{digest([clip.id for clip in part])}.npz"
            for split, part in parts.items()
        }  # decoded once for all seeds
        trained = Words(parts["train"], names["train"], recipe.seed)
        return trained, Words(parts["validation"], names["validation"])
    people = inertial.people_of("train")
    measured = inertial.people_of("validation")
    if leave_out is not None:
        measured = inertial.people_of(leave_out)
        people = tuple(person for person in inertial.PEOPLE if person not in measured)
    found = [inertial.find_segments(root, each) for each in (people, measured)]
    modalities = tuple(recipe.sizes["channels"])
    return Body(found[0], modalities, recipe.seed), Body(found[1], modalities)


def main(
    name: Annotated[Literal[(*RECIPES, "grid", "dsa")], tyro.conf.Positional],  # type: ignore[valid-type]
    root: Path,
    out: Path = Path("out/models"),
    leave_out: str | None = None,
) -> None:
    """Train a source model of recordings, or all of a data set.

    Args:
        name: The model to train, or grid or dsa for all of a data set.
        root: Directory of the recordings.
        out: Directory for the weights and checkpoints.
        leave_out: Of dsa: a person, such as p3; the model is trained on all others and measured
            on this one.
    """
    console = Console()
    for each in [name] if name in RECIPES else [n for n in RECIPES if n.startswith(name)]:
        suffix = f"_without_{leave_out}" if leave_out else ""
        output = out / f"{each}{suffix}.safetensors"
        console.print(history_table(train(RECIPES[each], root, output, leave_out)))
        console.print(f"wrote {output}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
