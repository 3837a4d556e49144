"""Write corrupted copies of a data set in READ's tree; safe to interrupt."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dasp.core.errors import DataError, InputError
from dasp.core.extras import extra
from dasp.core.files import atomic_path, remove_leftovers
from dasp.core.progress import with_bar
from dasp.core.sound import pcm16
from dasp.data.clips import Clip, Manifest, corrupted_dir
from dasp.data.features import corruption_image
from dasp.data.loading import run_jobs
from dasp.data.media import jpeg, read_frame, read_wave, write_wave
from dasp.streams.domains import DomainDamage


@dataclass
class CorruptReport:
    """The numbers of files made and kept, and the failures as (clip, reason)."""

    made: int = 0
    kept: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def corrupt_tree(
    manifest: Manifest,
    damages: Sequence[DomainDamage],
    out: Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> CorruptReport:
    """Write `<folder>-C/<corruption>/severity_<k>/…` for each domain, there or in `out`.

    Of a clip's frames only the middle one, used for evaluation, is corrupted. Existing files are
    kept, so that an interrupted run continues where it stopped; a tree made with another seed,
    other textures or another version is refused. A clip that cannot be read is reported.
    """
    extra("soundfile")
    numbers = range(len(damages) * len(manifest.clips))
    results = run_jobs(partial(_write_copy, manifest.clips, damages, out), numbers, workers)
    for damage in damages:
        for folder in _folders(manifest, damage, out):
            _claim(folder, damage)
    total = CorruptReport()
    for part in with_bar(results, len(numbers), "corrupt", show):
        total.made += part.made
        total.kept += part.kept
        total.failed += part.failed
    return total


def _write_copy(
    clips: Sequence[Clip], damages: Sequence[DomainDamage], out: Path | None, number: int
) -> CorruptReport:
    """Write the file of the `number`-th pair of domain and clip."""
    damage, clip = damages[number // len(clips)], clips[number % len(clips)]
    domain = damage.domain
    copy = clip.corrupted(domain.modality, domain.corruption, domain.severity, out)
    target = copy.frame if damage.modality == "video" else copy.wav
    if target.exists():
        return CorruptReport(kept=1)
    try:
        if damage.modality == "video":
            image = damage.unsaved(corruption_image(read_frame(clip.frame)), clip.frame_id)
            with atomic_path(target) as part:
                part.write_bytes(jpeg(image))
        else:
            write_wave(target, pcm16(damage.unsaved(read_wave(clip.wav), clip.id)))
    except (DataError, InputError) as error:
        return CorruptReport(failed=[(clip.id, str(error))])
    return CorruptReport(made=1)


def _folders(manifest: Manifest, damage: DomainDamage, out: Path | None) -> list[Path]:
    """Return the directories that a domain writes to; two sources must not share one."""
    video, domain = damage.modality == "video", damage.domain
    sources = sorted({clip.video_dir if video else clip.audio_dir for clip in manifest.clips})
    folders = [corrupted_dir(f, domain.corruption, domain.severity, out) for f in sources]
    if len(set(folders)) < len(folders):
        raise DataError(
            f"several directories of {manifest.name} have the same name and would mix in {out}: "
            "omit out=, so that each copy lies beside its original."
        )
    return folders


def _claim(folder: Path, damage: DomainDamage) -> None:
    """Record how the copies in `folder` are made; raise an error if others are there."""
    record = folder / f"dasp-{damage.modality}.json"
    domain, fingerprint = str(damage.domain), damage.fingerprint()
    settings = {"domain": domain, "seed": damage.seed, "fingerprint": fingerprint}
    if not record.exists():
        if any(folder.rglob("*.jpg" if damage.modality == "video" else "*.wav")):
            raise DataError(
                f"{folder} contains files of another program: remove it, or choose another out."
            )
        with atomic_path(record) as part:
            part.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        return
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{record} cannot be read: {error}; remove {folder}.") from error
    if found != settings:
        raise DataError(
            f"{folder} was made with {found}, not {settings}: another seed, other textures or "
            "recordings, or another version. Remove it, or choose another out."
        )
    remove_leftovers(folder)
