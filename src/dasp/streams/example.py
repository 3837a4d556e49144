"""A short stream of the built-in set to try things on."""

from torch import Tensor
from torch.utils.data import DataLoader

from dasp.core.errors import OptionError
from dasp.core.types import Inputs
from dasp.data.loading import MODALITIES
from dasp.data.shapes import SoundingShapes
from dasp.streams.domains import Domain, DomainDamage


def example_stream(
    modality: str | None = None,
    corruption: str | None = None,
    severity: int = 5,
    *,
    samples: int = 512,
    batch_size: int = 64,
    split: str = "test",
) -> list[tuple[Inputs, Tensor]]:
    """Return batches (inputs, labels) of the built-in set, clean or with one sensor corrupted.

    They suit the models that come with the package, such as `dasp.load_model("sounding_shapes_0")`.

    Args:
        modality: "audio" or "video"; None leaves both clean.
        corruption: such as "traffic"; `dasp.corruptions.names(modality)` lists them.
        severity: 1 to 5.
        samples: number of samples in all.
        batch_size: samples per batch.
        split: "train", "validation" or "test".

    >>> [(inputs, labels)] = example_stream("audio", "traffic", samples=4)
    >>> {name: tuple(value.shape) for name, value in inputs.items()}, tuple(labels.shape)
    ({'audio': (4, 64, 128), 'video': (4, 3, 64, 64)}, (4,))
    """
    damage = None
    if modality is not None or corruption is not None:
        if modality not in MODALITIES or corruption is None:
            given = f"modality={modality!r}, corruption={corruption!r}"
            raise OptionError(
                f"{given}: name both, the modality as 'audio' or 'video', or neither."
            )
        damage = DomainDamage(Domain(modality, corruption, severity))
    data = SoundingShapes(split, samples, damage=damage)
    return [(batch.inputs, batch.label) for batch in DataLoader(data, batch_size)]
