"""Write corrupted copies of a data set in READ's tree; safe to interrupt."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dasp.core.errors import DataError, InputError
from dasp.core.extras import extra
from dasp.core.files import atomic_path, remove_leftovers
from dasp.core.progress import with_bar
from dasp.data.clips import Clip, Manifest, corrupted_dir, corrupted_frame, corrupted_wav
from dasp.data.features import corruption_image
from dasp.data.loading import run_jobs
from dasp.data.media import read_frame, read_wave, write_wave
from dasp.streams.domains import Domain, DomainDamage


@dataclass
class CorruptReport:
    """The numbers of files made and kept, and the failures as (clip, reason)."""

    made: int = 0
    kept: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _TreeWriter:
    """Writes the files of one (domain, clip) by its index; small enough to send to a worker."""

    clips: Sequence[Clip]
    damages: Sequence[DomainDamage]
    frames: Sequence[int] | None
    out: Path | None

    def __call__(self, number: int) -> CorruptReport:
        damage = self.damages[number // len(self.clips)]
        clip = self.clips[number % len(self.clips)]
        report = CorruptReport()
        try:
            if damage.modality == "video":
                self._write_frames(damage, clip, report)
            else:
                self._write_sound(damage, clip, report)
        except (DataError, InputError) as error:
            report.failed.append((clip.id, str(error)))
        return report

    def _write_frames(self, damage: DomainDamage, clip: Clip, report: CorruptReport) -> None:
        domain = damage.domain
        for index in [clip.frame_index(None)] if self.frames is None else self.frames:
            source = clip.frames[clip.frame_index(index)]
            target = corrupted_frame(clip, index, domain.corruption, domain.severity, self.out)
            if target.exists():
                report.kept += 1
                continue
            image = corruption_image(read_frame(source))
            content = damage.frame_file(image, clip.frame_id(index))
            with atomic_path(target) as part:
                part.write_bytes(content)
            report.made += 1

    def _write_sound(self, damage: DomainDamage, clip: Clip, report: CorruptReport) -> None:
        domain = damage.domain
        target = corrupted_wav(clip, domain.corruption, domain.severity, self.out)
        if target.exists():
            report.kept += 1
            return
        write_wave(target, damage.sound_pcm(read_wave(clip.wav), clip.id))
        report.made += 1


def corrupt_tree(
    manifest: Manifest,
    domains: Sequence[Domain],
    seed: int = 0,
    frames: Sequence[int] | None = None,
    out: Path | None = None,
    frost_dir: Path | None = None,
    noise_dir: Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> CorruptReport:
    """Write `<folder>-C/<corruption>/severity_<k>/…` for each domain, there or in `out`.

    By default only the frame used for evaluation (the middle one) is corrupted. Existing files
    are kept, so that an interrupted run continues where it stopped; a tree made with another
    seed, other textures or another version is refused. A clip that cannot be read is reported.
    """
    extra("soundfile")
    damages = [DomainDamage(domain, seed, frost_dir, noise_dir) for domain in domains]
    for clip in manifest.clips:
        for frame in frames or ():
            clip.frame_index(frame)
    writer = _TreeWriter(manifest.clips, damages, frames, out)
    numbers = range(len(damages) * len(manifest.clips))
    results = run_jobs(writer, numbers, workers)
    for damage in damages:
        for folder in _folders(manifest, damage.domain, out):
            _claim(folder, damage)
    total = CorruptReport()
    for part in with_bar(results, len(numbers), "corrupt", show):
        total.made += part.made
        total.kept += part.kept
        total.failed += part.failed
    return total


def check_records(manifest: Manifest, damages: Sequence[DomainDamage], out: Path | None) -> None:
    """Raise an error for a tree whose record differs from `damages`.

    Trees of other programs have no record and are accepted.
    """
    for damage in damages:
        for folder in _folders(manifest, damage.domain, out):
            _is_recorded(_record(folder, damage), _settings(damage))


def _folders(manifest: Manifest, domain: Domain, out: Path | None) -> list[Path]:
    """Return the directories that a domain writes to; two sources must not share one."""
    of_modality = {
        clip.video_dir if domain.modality == "video" else clip.audio_dir for clip in manifest.clips
    }
    folders = [
        corrupted_dir(f, domain.corruption, domain.severity, out) for f in sorted(of_modality)
    ]
    if len(set(folders)) < len(folders):
        raise DataError(
            f"several directories of {manifest.name} have the same name and would mix in {out}: "
            "omit out=, so that each copy lies beside its original."
        )
    return folders


def _claim(folder: Path, damage: DomainDamage) -> None:
    """Record how the copies in `folder` are made; raise an error if others are there."""
    record, settings = _record(folder, damage), _settings(damage)
    if _is_recorded(record, settings):
        remove_leftovers(folder)
        return
    pattern = "*.jpg" if damage.modality == "video" else "*.wav"
    if folder.is_dir() and next(folder.rglob(pattern), None) is not None:
        raise DataError(
            f"{folder} contains files of another program: remove it, or choose another out."
        )
    with atomic_path(record) as part:
        part.write_text(json.dumps(settings, indent=1), encoding="utf-8")


def _is_recorded(record: Path, settings: dict[str, str | int]) -> bool:
    """Return whether there is a `record`; raise an error if it has other settings."""
    folder = record.parent
    if not record.exists():
        return False
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{record} cannot be read: {error}; remove {folder}.") from error
    if found != settings:
        raise DataError(
            f"{folder} was made with {found}, not {settings}: another seed, other textures or "
            "recordings, or another version. Remove it, or choose another out."
        )
    return True


def _record(folder: Path, damage: DomainDamage) -> Path:
    return folder / f"dasp-{damage.modality}.json"


def _settings(damage: DomainDamage) -> dict[str, str | int]:
    return {
        "domain": str(damage.domain),
        "seed": damage.seed,
        "fingerprint": damage.fingerprint(),
    }
