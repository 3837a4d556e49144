"""The self-test of the diagnosis on six models, of which one cannot be diagnosed.

    python studies/diagnosis/selftests.py            # some minutes
    python studies/diagnosis/selftests.py late_sum   # one of them

Prints, per model, how many generic damages would be named, missed or mistaken, and the verdict.
The last model is made to be undiagnosable: half of its clean samples are as noisy as damaged ones.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import late
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import dasp
from dasp.core.types import Inputs, Prediction, Step, Tokens
from dasp.data.shapes import SoundingShapes
from dasp.methods.base import Method
from dasp.methods.diagnosis import Diagnoser, summaries
from dasp.methods.passes import SourcePasses, joined

SAMPLES = 128
Made = tuple[nn.Module, list[Inputs]]


class Watch(Method):
    """Diagnoses, and predicts as the source model does."""

    version = 1

    def __init__(self, model: nn.Module, *, seed: int = 0) -> None:
        super().__init__(model, seed=seed)
        self.diagnoser = Diagnoser(self.model.modalities)

    def trainable(self) -> list[nn.Parameter]:
        return []

    @torch.no_grad()
    def fit(self, source: Iterable[Tokens]) -> None:
        batches = list(source)
        tokens = {n: torch.cat([summaries(b)[n] for b in batches]) for n in batches[0]}
        alone = {n: joined([self.fuse({n: b[n]}) for b in batches]) for n in batches[0]}
        self.diagnoser.fit(tokens, alone)

    def predict(self, batch: Tokens) -> Prediction:
        passes = SourcePasses(self, batch)
        return Prediction(passes.joint(), self.diagnoser(batch, passes.alone, remember=False))

    def step(self, batch: Tokens) -> Step:
        passes = SourcePasses(self, batch)
        found = self.diagnoser(batch, passes.alone, remember=True)
        return Step(passes.joint(), diagnosis=found, skipped="it only watches")


def shapes(name: str, flavour: str) -> Made:
    """Return a shipped model of the built-in set with clean training samples."""
    clean = DataLoader(SoundingShapes("train", SAMPLES, flavour), 32)
    return dasp.load_model(name), [batch.inputs for batch in clean]


def late_fusion(fusion: str, noisy: bool = False) -> Made:
    """Return a late-fusion model in `dasp.wrap`; with `noisy`, of a world that is half damaged."""
    world = late.late_fusion.World(0)
    if noisy:
        world.draw = _half_noisy(world.draw)
    model = late.late_fusion.trained(fusion, world, 0)
    return late.late_fusion.wrapped(model, world), [world.draw(9_000, SAMPLES)[0]]


def _half_noisy(draw: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(seed: int, size: int = late.late_fusion.BATCH) -> tuple[dict[str, Tensor], Tensor]:
        inputs, labels = draw(seed, size)
        generator = torch.Generator().manual_seed(seed + 1)
        for name, own in inputs.items():
            strength = 6 * torch.rand(size, generator=generator).square()
            noise = torch.randn(own.shape, generator=generator)
            gain = (2 * torch.randn(size, generator=generator)).exp()
            shape = (size, *[1] * (own.ndim - 1))
            inputs[name] = (own + strength.view(shape) * noise) * gain.view(shape)
        return inputs, labels

    return drawn


MODELS: dict[str, Callable[[], Made]] = {
    "sounding_shapes_0": lambda: shapes("sounding_shapes_0", "balanced"),
    "sounding_shapes_sound_0": lambda: shapes("sounding_shapes_sound_0", "sound"),
    "late_concat": lambda: late_fusion("concat"),
    "late_sum": lambda: late_fusion("sum"),
    "late_attention": lambda: late_fusion("attention"),
    "undiagnosable": lambda: late_fusion("concat", noisy=True),
}


def main() -> None:
    torch.set_num_threads(1)
    print("| model | clean batches flagged | named | missed | mistaken | harmless | verdict |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for name in sys.argv[1:] or MODELS:
        model, clean = MODELS[name]()
        tta = dasp.adapt(model, Watch)
        tta.fit(clean)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tta.selftest()
        counts = Counter(trial.verdict for trial in found.trials)
        shown = [counts[word] for word in ("named", "missed", "mistaken", "harmless")]
        verdict = "trusted" if found.trusted else found.warning
        cells = [name, f"{found.clean:.0%}", *map(str, shown), verdict]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
