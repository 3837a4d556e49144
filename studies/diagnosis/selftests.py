"""The self-test of `triage` on six models, of which one cannot be diagnosed.

    python studies/diagnosis/selftests.py            # some minutes
    python studies/diagnosis/selftests.py late_sum   # one of them

Prints, per model, how many generic damages would be named, missed or mistaken, the share of
predictions that they change before and after treatment, and the verdict.
The last model is made to be undiagnosable: half of its clean samples are as noisy as damaged ones.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from statistics import fmean
from typing import Any

import late
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import dasp
from dasp.core.types import Inputs
from dasp.data.shapes import SoundingShapes

SAMPLES = 128
Made = tuple[nn.Module, list[Inputs]]


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
    words = ("named", "missed", "mistaken", "harmless")
    print(f"| model | clean batches flagged | {' | '.join(words)} | changed | treated | verdict |")
    print(f"|---|{7 * '---:|'}---|")
    for name in sys.argv[1:] or MODELS:
        model, clean = MODELS[name]()
        tta = dasp.adapt(model, "triage")
        tta.fit(clean)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tta.selftest()
        counts = Counter(trial.verdict for trial in found.trials)
        shown = [str(counts[word]) for word in words]
        shown.append(f"{fmean(trial.changed for trial in found.trials):.1%}")
        shown.append(f"{fmean(trial.treated for trial in found.trials):.1%}")
        verdict = "trusted" if found.trusted else found.warning
        cells = [name, f"{found.clean:.0%}", *shown, verdict]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
