"""What stands behind `dasp prepare`, `dasp data …`, `dasp corrupt` and `dasp preview…`.

Each function prints for a reader and returns an exit code: 0 when all is well, else 1.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dasp.data.causes import failure_lines
from dasp.data.check import check_tree
from dasp.data.prepare import prepare_tree
from dasp.data.trees import check_writable
from dasp.streams.checksum import (
    BUILT_IN,
    checksums,
    differences,
    read_checksums,
    save_checksums,
    shapes_checksums,
)
from dasp.streams.corrupt import corrupt_tree
from dasp.streams.options import Data, DomainOptions, Domains
from dasp.streams.preview import preview_frames, preview_shapes, preview_sounds, save_sheets

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
    """Turn mp4 videos into a data set: ten frames and a 16 kHz mono wav a clip.

    Writes audio/, video/frame_0 … frame_9/, <split>.json and labels.csv below the root. Run it
    again after an interruption: clips that are complete are kept, but for those whose video was
    replaced since (its size and time are in .sources.json), which are made again. A video that
    cannot be read is reported and left off the list, and the exit code is 1.

    Args:
        source: Folder of the videos, <class>/<clip>.mp4.
        root: Folder to write, outside of the source; made if it is not there.
        refer: List in READ's format with ids and labels; videos are then found by <id>.mp4.
        labels: Label file of that list (index,mid[,display_name]).
        split: Name of the list to write.
        workers: Processes to use; by default one a core, 0 for none but this one.
    """
    report = prepare_tree(source, root, refer, labels, split, workers, show=True)
    again = f" ({report.remade} again, as the video was replaced)" if report.remade else ""
    print(f"{report.made} clips made{again}, {report.kept} kept, {len(report.failed)} failed.")
    if report.remade and any(root.glob("*-C")):
        print(f"  corrupted copies in {root} are of the old videos: remove its -C folders")
    for video in report.unused:
        print(f"  {video}: not used, as it is not {source}/<class>/<clip>.mp4")
    return _failures(report.failed)


def data_check(data: Data, frames: tuple[int, ...] = (), workers: int | None = None) -> int:
    """Look at every file of a data set and say what is wrong with it.

    Prints clips per class, sample rates, frame sizes, and each missing or unreadable file;
    of a published data set also whether its counts are right. The exit code is 1 when
    something is wrong.

    Args:
        data: Which data set.
        frames: Frames to look at, for instance 5; by default all ten.
        workers: Processes to use; by default one a core, 0 for none but this one.
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

    Needed only to share files with other programs: this library can corrupt while loading, to
    the same bits. Run it again after an interruption: files that are there are kept.

    Args:
        data: Which data set.
        domains: Which corruptions.
        frames: Frames to corrupt; by default the middle one, which evaluation uses.
        workers: Processes to use; by default one a core, 0 for none but this one.
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
    """Print a short hash of the first clips of each domain: do two labs have the same data?

    Without a folder: hashes of the built-in set, its first hundred samples of each split and
    sensor, compared with those that come with the package. They are the same on every processor.
    The exit code is 1 if some differ.

    Args:
        data: Which data set; by default the built-in one.
        domains: Which corruptions.
        count: How many clips, from the first of the list on; at least 1.
        frame: Which frame; by default the middle one.
        on_disk: Read the tree that `dasp corrupt` wrote, with the same seed, instead of
            corrupting now.
        save: File to write the hashes to (JSON).
        against: File of hashes to compare with; the exit code is 1 if some differ.
        workers: Processes to use; by default one a core, 0 for none but this one.
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
        print(f"{len(hashes)} hashes, all as in {against.name} of this package")
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
        data: Which data set.
        clip: Id of the clip; by default the first of the list.
        frame: Which frame; by default the middle one.
        seed: Seed of the corruptions.
        frost_dir: Folder of frost pictures; by default textures are grown.
        noise_dir: Folder of recordings; by default the sounds are synthesised.
        out: Folder to write the two pictures to.
    """
    chosen = data.manifest().find(clip)
    check_writable(out)
    frames = preview_frames(chosen, seed, frame, frost_dir)
    sounds = preview_sounds(chosen, seed, noise_dir)
    for path in save_sheets([frames, sounds], out):
        print(path)
    return 0


def preview_built_in(
    index: int = 0,
    flavour: Literal["balanced", "sound"] = "balanced",
    seed: int = 0,
    out: Path = Path(),
) -> int:
    """Draw one sample of the built-in set under every corruption of its three sensors.

    Writes preview-frames.png, preview-sounds.png and preview-depths.png.

    Args:
        index: Number of the sample in the test split.
        flavour: Of the built-in set.
        seed: Seed of the corruptions.
        out: Folder to write the three pictures to.
    """
    check_writable(out)
    for path in save_sheets(preview_shapes(index, flavour, seed), out):
        print(path)
    return 0


def _failures(failed: list[tuple[str, str]]) -> int:
    for line, count in Counter(failure_lines(failed)).items():
        print(f"  {line}" + (f" ({count} times)" if count > 1 else ""))
    return 1 if failed else 0
