"""Short hashes of the first samples of each domain, to tell whether two labs have the same data."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from dasp.core.errors import OptionError
from dasp.core.progress import with_bar
from dasp.core.sound import pcm16
from dasp.data.clips import Manifest
from dasp.data.loading import ClipDataset, run_jobs
from dasp.data.shapes import FLAVOURS, SENSORS, SPLITS, SoundingShapes
from dasp.streams.domains import DomainDamage, all_domains

BUILT_IN = Path(__file__).parents[1] / "data" / "shapes" / "checksums.json"

Read = Callable[[int], bytes]  # of a sample by its index


def checksums(
    manifest: Manifest,
    damages: Sequence[DomainDamage],
    count: int = 4,
    workers: int | None = None,
    show: bool = False,
) -> dict[str, str]:
    """Return {domain: hash} of the first `count` clips: pixels and 16-bit samples."""
    if count < 1:
        raise OptionError(f"count, the number of clips to hash, must be at least 1, not {count}.")
    few = manifest.first(count)
    reads = {f"{m}/clean": partial(_clip_bytes, ClipDataset(few), m) for m in ("video", "audio")}
    for damage in damages:
        clips = ClipDataset(few, damage=damage)
        reads[str(damage.domain)] = partial(_clip_bytes, clips, damage.modality)
    return _hashes(reads, len(few.clips), workers, show)


def _clip_bytes(clips: ClipDataset, modality: str, index: int) -> bytes:
    values = np.array(clips.picture(index)) if modality == "video" else pcm16(clips.wave(index))
    return f"{values.shape}".encode() + values.tobytes()


def shapes_checksums(
    count: int = 100, workers: int | None = None, show: bool = False
) -> dict[str, str]:
    """Return {name: hash} of the built-in set, equal to the file `BUILT_IN` on every processor.

    `count` clean samples of each flavour, split and sensor; four under each corruption.
    """
    clean: dict[str, Read] = {}
    damaged: dict[str, Read] = {}
    for flavour, split, sensor in product(FLAVOURS, SPLITS, SENSORS):
        shapes = SoundingShapes(split, count, flavour)
        clean[f"{flavour}/{split}/{sensor}"] = partial(_shape_bytes, shapes, sensor)
    for domain in all_domains(SENSORS, severities=[5]):
        shapes = SoundingShapes("test", 4, damage=DomainDamage(domain))
        damaged[f"balanced/test/{domain}"] = partial(_shape_bytes, shapes, domain.modality)
    return _hashes(clean, count, workers, show) | _hashes(damaged, 4, workers, show)


def _shape_bytes(shapes: SoundingShapes, sensor: str, index: int) -> bytes:
    if sensor == "audio":
        values = pcm16(shapes.wave(index)).astype("<i2").tobytes()
    else:
        values = (shapes.frame(index) if sensor == "video" else shapes.depth(index)).tobytes()
    return f"{shapes.label(index)}{shapes.content(index)}".encode() + values


def _hashes(
    reads: Mapping[str, Read], count: int, workers: int | None, show: bool
) -> dict[str, str]:
    results = run_jobs(partial(_hash, count), list(reads.values()), workers)
    return dict(zip(reads, with_bar(results, len(reads), "checksum", show), strict=True))


def _hash(count: int, read: Read) -> str:
    digest = hashlib.sha256()
    for index in range(count):
        digest.update(read(index))
    return digest.hexdigest()[:16]
