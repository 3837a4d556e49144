"""Augmentations of raw inputs, per modality, by name: for methods that learn to be consistent.

An augmentation takes values (B, …), its number k = 0, 1, … and a generator, and returns values of
the same shape. Register one of your own and name it: `augment="mine"`, or per modality,
`augment={"audio": "gain", "video": "mine"}`.

    @AUGMENTATIONS.register("mine")
    def mine(values, number, generator): ...

The time axis is the second, or the last one of pictures (B, C, H, W): their width.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from dasp.core.errors import OptionError, unknown_name
from dasp.core.registry import Registry
from dasp.core.types import Inputs

Augmentation = Callable[[Tensor, int, torch.Generator], Tensor]
AUGMENTATIONS: Registry[Augmentation] = Registry("augmentation")


@AUGMENTATIONS.register("roll")
def roll(values: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Roll by `number` steps along time; mirror a picture if the number is odd."""
    del generator
    rolled = values.roll(number, dims=_time_axis(values))
    return rolled.flip(-1) if number % 2 and values.ndim > 3 else rolled


@AUGMENTATIONS.register("crop")
def crop(values: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Keep a random 7/8 of the time axis, stretched to the old length."""
    del number
    x = values.movedim(_time_axis(values), -1)
    length = x.shape[-1]
    kept = max(length * 7 // 8, 1)
    start = int(torch.randint(length - kept + 1, (), generator=generator))
    flat = x[..., start : start + kept].reshape(len(x), -1, kept)
    stretched = F.interpolate(flat, length, mode="linear", align_corners=False)
    return stretched.reshape(x.shape).movedim(-1, _time_axis(values))


@AUGMENTATIONS.register("gain")
def gain(values: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Multiply each sample by a factor between 2^-½ and 2^½."""
    del number
    drawn = torch.rand(len(values), *[1] * (values.ndim - 1), generator=generator)
    return values * torch.exp2(drawn - 0.5).to(values)


@AUGMENTATIONS.register("noise")
def noise(values: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise of a tenth of the batch's spread."""
    del number
    drawn = torch.randn(values.shape, generator=generator).to(values)
    return values + 0.1 * values.std(correction=0) * drawn


@AUGMENTATIONS.register("mask")
def mask(values: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Replace a random 1/8 of the time axis by the batch's mean."""
    del number
    x = values.movedim(_time_axis(values), -1).clone()
    width = max(x.shape[-1] // 8, 1)
    start = int(torch.randint(x.shape[-1] - width + 1, (), generator=generator))
    x[..., start : start + width] = values.mean()
    return x.movedim(-1, _time_axis(values))


def check_augment(augment: str | Mapping[str, str], modalities: tuple[str, ...]) -> None:
    """Refuse names of unknown augmentations or modalities."""
    for name in {augment} if isinstance(augment, str) else set(augment.values()):
        if name not in AUGMENTATIONS:
            raise OptionError(unknown_name("augmentation", str(name), AUGMENTATIONS))
    if not isinstance(augment, str) and set(augment) != set(modalities):
        raise OptionError(f"augment names {tuple(augment)}; the model has {modalities}.")


def augmented(
    batch: Inputs, augment: str | Mapping[str, str], number: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Return a batch with every modality augmented."""
    names = {name: augment if isinstance(augment, str) else augment[name] for name in batch}
    return {n: AUGMENTATIONS[names[n]](value, number, generator) for n, value in batch.items()}


def _time_axis(values: Tensor) -> int:
    return 1 if values.ndim <= 3 else values.ndim - 1
