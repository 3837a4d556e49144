"""Short hashes of the first samples of each domain, to tell whether two labs have the same data."""

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dasp.core.errors import DataError, OptionError, cause
from dasp.core.files import atomic_path
from dasp.core.progress import with_bar
from dasp.core.sound import pcm16
from dasp.data.clips import Manifest
from dasp.data.loading import ClipDataset, run_jobs
from dasp.data.shapes import FLAVOURS, SENSORS, SPLITS, SoundingShapes
from dasp.streams.corrupt import check_records
from dasp.streams.domains import Domain, DomainDamage, all_domains, domain_dataset

DIGITS = 16
BUILT_IN = Path(__file__).parents[1] / "data" / "shapes" / "checksums.json"


def checksums(
    manifest: Manifest,
    domains: Sequence[Domain],
    count: int = 4,
    seed: int = 0,
    frame: int | None = None,
    frost_dir: Path | None = None,
    noise_dir: Path | None = None,
    on_disk: bool = False,
    out: Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> dict[str, str]:
    """Return {domain: hash} of the pixels and 16-bit samples of the first `count` clips.

    The clean frames and sounds come first, as "video/clean" and "audio/clean". With `on_disk`
    the corrupted tree is read; the hashes are the same, and a tree that was made with another
    seed or other settings is refused.
    """
    if count < 1:
        raise OptionError(f"count, the number of clips to hash, must be at least 1, not {count}.")
    if on_disk:
        damages = [DomainDamage(domain, seed, frost_dir, noise_dir) for domain in domains]
        check_records(manifest, damages, out)
    few = manifest.first(count)
    work: list[tuple[str, Domain | None]] = [(modality, None) for modality in ("video", "audio")]
    work += [(domain.modality, domain) for domain in domains]

    settings = partial(
        domain_dataset,
        few,
        seed=seed,
        frame=frame,
        frost_dir=frost_dir,
        noise_dir=noise_dir,
        on_disk=on_disk,
        out=out,
    )
    results = run_jobs(partial(_hash, settings), work, workers)
    hashes = list(with_bar(results, len(work), "checksum", show))
    labels = [str(domain or f"{modality}/clean") for modality, domain in work]
    return dict(zip(labels, hashes, strict=True))


def _hash(settings: "partial[ClipDataset]", work: tuple[str, Domain | None]) -> str:
    modality, domain = work
    dataset = settings(domain)
    digest = hashlib.sha256()
    for index in range(len(dataset)):
        if modality == "video":
            values = np.array(dataset.picture(index))
        else:
            values = pcm16(dataset.wave(index))
        digest.update(f"{values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()[:DIGITS]


def shapes_checksums(
    count: int = 100, workers: int | None = None, show: bool = False
) -> dict[str, str]:
    """Return {name: hash} of the built-in set, equal to the file `BUILT_IN` on every processor.

    Hashed are the first `count` clean samples of each flavour, split and sensor, and the first
    four test samples under each corruption at severity 5.
    """
    sets = [
        (SoundingShapes(split, count, flavour), sensor)
        for flavour in FLAVOURS
        for split in SPLITS
        for sensor in SENSORS
    ]
    damages = [DomainDamage(domain) for domain in all_domains(SENSORS, severities=[5])]
    sets += [(SoundingShapes("test", 4, damage=damage), damage.modality) for damage in damages]
    hashes = with_bar(run_jobs(_hash_shapes, sets, workers), len(sets), "checksum", show)
    return dict(hashes)


def _hash_shapes(part: tuple[SoundingShapes, str]) -> tuple[str, str]:
    shapes, sensor = part
    digest = hashlib.sha256()
    for index in range(len(shapes)):
        if sensor == "audio":
            values = pcm16(shapes.wave(index)).astype("<i2")
        else:
            values = shapes.frame(index) if sensor == "video" else shapes.depth(index)
        digest.update(f"{shapes.label(index)}{shapes.content(index)}".encode())
        digest.update(values.tobytes())
    domain = shapes.damage.domain if isinstance(shapes.damage, DomainDamage) else None
    return f"{shapes.flavour}/{shapes.split}/{domain or sensor}", digest.hexdigest()[:DIGITS]


def save_checksums(path: Path, hashes: dict[str, str]) -> None:
    """Write hashes as JSON."""
    with atomic_path(path) as part:
        part.write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")


def read_checksums(path: Path) -> dict[str, str]:
    """Return the hashes written by `save_checksums`."""
    try:
        theirs: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the checksums {path}: {cause(error)}.") from error
    if not isinstance(theirs, dict):
        raise DataError(
            f"{path} has no checksums in it: make them with 'dasp data checksum --save'."
        )
    return theirs


def differences(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Return the domains whose hashes differ or exist on one side only.

    >>> differences({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"})
    ['b', 'c']
    """
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [name for name in names if ours.get(name) != theirs.get(name)]
