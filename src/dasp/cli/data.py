"""The commands `dasp prepare`, `dasp data …`, `dasp corrupt` and `dasp preview…`.

Each function prints its result and returns an exit code: 0 on success, else 1.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dasp.core.errors import OptionError, failure_lines
from dasp.core.files import check_writable
from dasp.data.check import check_tree
from dasp.data.clips import Manifest, Spec, open_manifest, spec_of
from dasp.data.prepare import prepare_tree
from dasp.streams import preview as sheets
from dasp.streams.checksum import (
    BUILT_IN,
    checksums,
    differences,
    read_checksums,
    save_checksums,
    shapes_checksums,
)
from dasp.streams.corrupt import corrupt_tree
from dasp.streams.domains import Domain, all_domains


@dataclass(frozen=True)
class ClipOptions:
    """The data set."""

    root: tyro.conf.Positional[Annotated[Path | None, tyro.conf.arg(metavar="ROOT")]] = None
    """Directory of the data set: READ's layout, or <class>/<clip>.wav with .jpg or .png."""
    dataset: str | None = None
    """kinetics50 or vggsound for READ's release, with its directories."""
    split: str = "test"
    """Name of the list at the root, <split>.json."""
    list_file: Path | None = None
    """The JSON list, if it is not at the root."""
    label_file: Path | None = None
    """The label CSV (index,mid[,display_name]), if it is not at the root."""

    def manifest(self) -> Manifest:
        """Return the clips of the data set."""
        if self.root is None:
            raise OptionError("give the directory of the data set, e.g. dasp data check DIR.")
        return open_manifest(self.root, self.dataset, self.split, self.list_file, self.label_file)

    def spec(self) -> Spec | None:
        """Return the specification of a published data set, else None."""
        return None if self.dataset is None else spec_of(self.dataset)


@dataclass(frozen=True)
class DomainOptions:
    """The corruptions, and the files they use."""

    modality: Literal["both", "video", "audio"] = "both"
    """The files to corrupt."""
    corruptions: tuple[str, ...] = ()
    """Names such as fog or rain; by default all."""
    severities: tuple[int, ...] = (5,)
    """Some of 1 to 5."""
    seed: int = 0
    """Seed of the corruptions; the same seed gives the same data everywhere."""
    frost_dir: Path | None = None
    """Directory of frost pictures; by default textures are generated."""
    noise_dir: Path | None = None
    """Directory of traffic.wav, crowd.wav, …; by default the sounds are synthesised."""
    out: Path | None = None
    """Directory for the -C directories; by default beside the originals."""

    def domains(self) -> list[Domain]:
        """Return the chosen domains."""
        both = self.modality == "both"
        modalities = ("video", "audio") if both else (self.modality,)
        return all_domains(modalities, self.corruptions, self.severities)


Data = Annotated[ClipOptions, tyro.conf.arg(name="")]
Domains = Annotated[DomainOptions, tyro.conf.arg(name="")]
ALL = DomainOptions()


def prepare(
    source: Annotated[Path, tyro.conf.arg(metavar="SOURCE")],
    root: Annotated[Path, tyro.conf.arg(metavar="ROOT")],
    /,
    refer: Path | None = None,
    labels: Path | None = None,
    split: str = "test",
    workers: int | None = None,
) -> int:
    """Turn mp4 videos into a data set: ten frames and a 16 kHz mono wav per clip.

    Writes audio/, video/frame_0 … frame_9/, <split>.json and labels.csv below the root. Run it
    again after an interruption: complete clips are kept, except those whose video was replaced
    since (its size and time are in .sources.json), which are made again. A video that cannot be
    read is reported and omitted from the list, and the exit code is 1.

    Args:
        source: Directory of the videos, <class>/<clip>.mp4.
        root: Directory to write, outside of the source; created if needed.
        refer: List in READ's format with ids and labels; the videos are then <id>.mp4.
        labels: Label file of that list (index,mid[,display_name]).
        split: Name of the list to write.
        workers: Worker processes; by default one per core, 0 for none.
    """
    report = prepare_tree(source, root, refer, labels, split, workers, show=True)
    again = f" ({report.remade} of them again, as the video was replaced)" if report.remade else ""
    print(f"{report.made} clips made{again}, {report.kept} kept, {len(report.failed)} failed.")
    if report.remade and any(root.glob("*-C")):
        print(f"  corrupted copies in {root} were made from old videos: remove its -C directories")
    for video in report.unused:
        print(f"  {video}: not used, as it is not {source}/<class>/<clip>.mp4")
    return _failures(report.failed)


def data_check(data: Data, frames: tuple[int, ...] = (), workers: int | None = None) -> int:
    """Check every file of a data set and report the problems.

    Prints clips per class, sample rates, frame sizes, and each missing or unreadable file;
    for a published data set also whether its counts are right. The exit code is 1 if there are
    problems.

    Args:
        data: The data set.
        frames: Frames to check, for instance 5; by default all ten.
        workers: Worker processes; by default one per core, 0 for none.
    """
    report = check_tree(data.manifest(), data.spec(), frames or None, workers, show=True)
    for line in report.lines():
        print(line)
    return 0 if report.ok else 1


def corrupt(
    data: Data,
    domains: Domains = ALL,
    frames: tuple[int, ...] = (),
    workers: int | None = None,
) -> int:
    """Write corrupted copies of a data set: <folder>-C/<corruption>/severity_<k>/…

    Only needed to share files with other programs: this library corrupts while loading, with the
    same bits. Run it again after an interruption: existing files are kept.

    Args:
        data: The data set.
        domains: The corruptions.
        frames: Frames to corrupt; by default the middle one, which is used for evaluation.
        workers: Worker processes; by default one per core, 0 for none.
    """
    report = corrupt_tree(
        data.manifest(),
        domains.domains(),
        domains.seed,
        frames or None,
        domains.out,
        domains.frost_dir,
        domains.noise_dir,
        workers,
        show=True,
    )
    print(f"{report.made} files made, {report.kept} kept, {len(report.failed)} failed.")
    return _failures(report.failed)


def data_checksum(
    data: Data,
    domains: Domains = ALL,
    count: int = 4,
    frame: int | None = None,
    on_disk: bool = False,
    save: Path | None = None,
    against: Path | None = None,
    workers: int | None = None,
) -> int:
    """Print a short hash of the first clips of each domain, to compare data between labs.

    Without a directory: hashes of the first hundred samples of each split and sensor of the
    built-in set, compared with those in the package. They are the same on every processor. The
    exit code is 1 if some differ.

    Args:
        data: The data set; by default the built-in one.
        domains: The corruptions.
        count: Number of clips, from the start of the list; at least 1.
        frame: The frame; by default the middle one.
        on_disk: Read the tree written by `dasp corrupt` with the same seed.
        save: File to write the hashes to (JSON).
        against: File of hashes to compare with; the exit code is 1 if some differ.
        workers: Worker processes; by default one per core, 0 for none.
    """
    if data.root is None:
        return _checksum_built_in(save, against or BUILT_IN, workers)
    manifest = data.manifest()
    theirs = read_checksums(against) if against is not None else None
    if save is not None:
        check_writable(save.parent, save.name)
    hashes = {"list": manifest.digest[:16]} | checksums(
        manifest,
        domains.domains(),
        count,
        domains.seed,
        frame,
        domains.frost_dir,
        domains.noise_dir,
        on_disk,
        domains.out,
        workers,
        show=True,
    )
    return _show_checksums(hashes, save, theirs)


def _checksum_built_in(save: Path | None, against: Path, workers: int | None) -> int:
    theirs = read_checksums(against)
    if save is not None:
        check_writable(save.parent, save.name)
    hashes = shapes_checksums(workers=workers, show=True)
    code = _show_checksums(hashes, save, theirs)
    if code == 0:
        print(f"{len(hashes)} hashes, all equal to {against.name} of this package")
    return code


def _show_checksums(
    hashes: dict[str, str], save: Path | None, theirs: dict[str, str] | None
) -> int:
    for name, value in hashes.items():
        print(f"{value}  {name}")
    if save is not None:
        save_checksums(save, hashes)
    different = differences(hashes, theirs) if theirs is not None else []
    for name in different:
        print(f"differs: {name}")
    return 1 if different else 0


def preview(
    data: Data,
    clip: str | None = None,
    frame: int | None = None,
    seed: int = 0,
    frost_dir: Path | None = None,
    noise_dir: Path | None = None,
    out: Path = Path(),
) -> int:
    """Draw one clip under every corruption and severity: preview-frames.png, preview-sounds.png.

    Args:
        data: The data set.
        clip: Id of the clip; by default the first of the list.
        frame: The frame; by default the middle one.
        seed: Seed of the corruptions.
        frost_dir: Directory of frost pictures; by default textures are generated.
        noise_dir: Directory of recordings; by default the sounds are synthesised.
        out: Directory to write the two pictures to.
    """
    chosen = data.manifest().find(clip)
    check_writable(out)
    frames = sheets.preview_frames(chosen, seed, frame, frost_dir)
    sounds = sheets.preview_sounds(chosen, seed, noise_dir)
    for path in sheets.save_sheets([frames, sounds], out):
        print(path)
    return 0


def preview_shapes(
    index: int = 0,
    flavour: Literal["balanced", "sound"] = "balanced",
    seed: int = 0,
    out: Path = Path(),
) -> int:
    """Draw one sample of the built-in set under every corruption of its three sensors.

    Writes preview-frames.png, preview-sounds.png and preview-depths.png.

    Args:
        index: Index of the sample in the test split.
        flavour: The flavour of the built-in set.
        seed: Seed of the corruptions.
        out: Directory to write the three pictures to.
    """
    check_writable(out)
    for path in sheets.save_sheets(sheets.preview_shapes(index, flavour, seed), out):
        print(path)
    return 0


def _failures(failed: list[tuple[str, str]]) -> int:
    for line, count in Counter(failure_lines(failed)).items():
        print(f"  {line}" + (f" ({count} times)" if count > 1 else ""))
    return 1 if failed else 0
