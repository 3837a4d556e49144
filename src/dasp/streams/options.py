"""Options that several commands share, described once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dasp.core.errors import OptionError
from dasp.data.manifest import Manifest
from dasp.data.sets import Spec, open_manifest, spec_of
from dasp.streams.domains import Domain, all_domains


@dataclass(frozen=True)
class DataOptions:
    """Which data set."""

    root: tyro.conf.Positional[Annotated[Path | None, tyro.conf.arg(metavar="ROOT")]] = None
    """Folder of the data set: READ's layout, or <class>/<clip>.wav with .jpg or .png."""
    dataset: str | None = None
    """The name kinetics50 or vggsound: READ's release, with its folders."""
    split: str = "test"
    """Name of the list at the root, <split>.json."""
    list_file: Path | None = None
    """The JSON list, if it lies elsewhere."""
    label_file: Path | None = None
    """The label CSV (index,mid[,display_name]), if it lies elsewhere."""

    def manifest(self) -> Manifest:
        """Return the clips of the data set."""
        if self.root is None:
            raise OptionError("name the folder of the data set, for example: dasp data check DIR.")
        return open_manifest(self.root, self.dataset, self.split, self.list_file, self.label_file)

    def spec(self) -> Spec | None:
        """Return what is published of the data set, if it is one of those."""
        return None if self.dataset is None else spec_of(self.dataset)


@dataclass(frozen=True)
class DomainOptions:
    """Which corruptions, and what they are made of."""

    modality: Literal["both", "video", "audio"] = "both"
    """Which files are corrupted."""
    corruptions: tuple[str, ...] = ()
    """Names such as fog or rain; by default all."""
    severities: tuple[int, ...] = (5,)
    """Some of 1 to 5."""
    seed: int = 0
    """The same seed gives the same data anywhere."""
    frost_dir: Path | None = None
    """Folder of frost pictures; by default textures are grown."""
    noise_dir: Path | None = None
    """Folder of traffic.wav, crowd.wav, …; by default the sounds are synthesised."""
    out: Path | None = None
    """Folder of the -C folders; by default they lie beside the originals."""

    def domains(self) -> list[Domain]:
        """Return the domains that are asked for."""
        both = self.modality == "both"
        modalities = ("video", "audio") if both else (self.modality,)
        return all_domains(modalities, self.corruptions, self.severities)


Data = Annotated[DataOptions, tyro.conf.arg(name="")]
Domains = Annotated[DomainOptions, tyro.conf.arg(name="")]
