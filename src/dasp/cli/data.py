"""The commands `dasp prepare`, `dasp data …`, `dasp corrupt` and `dasp preview…`.

Each function prints its result and returns an exit code: 0 on success, else 1.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from dasp.core.errors import OptionError, failure_lines
from dasp.core.files import check_writable
from dasp.data.check import check_tree
from dasp.data.clips import Manifest, open_manifest, spec_of
from dasp.data.prepare import prepare_tree
from dasp.streams import checksum
from dasp.streams import preview as sheets
from dasp.streams.corrupt import corrupt_tree
from dasp.streams.domains import all_domains


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

    def arguments(self) -> dict[str, Any]:
        """Return the chosen domains, seed and directories by name."""
        modalities = ("video", "audio") if self.modality == "both" else (self.modality,)
        domains = all_domains(modalities, self.corruptions, self.severities)
        material = {"seed": self.seed, "frost_dir": self.frost_dir, "noise_dir": self.noise_dir}
        return {"domains": domains, **material, "out": self.out}


Data = Annotated[ClipOptions, tyro.conf.arg(name="")]
Domains = Annotated[DomainOptions, tyro.conf.arg(name="")]
Workers = Annotated[
    int | None, tyro.conf.arg(help="Worker processes; by default one per core, 0 for none.")
]
ALL = DomainOptions()


def prepare(
    source: Annotated[Path, tyro.conf.arg(metavar="SOURCE")],
    root: Annotated[Path, tyro.conf.arg(metavar="ROOT")],
    /,
    refer: Path | None = None,
    labels: Path | None = None,
    split: str = "test",
    workers: Workers = None,
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
    """
    report = prepare_tree(source, root, refer, labels, split, workers, show=True)
    again = f" ({report.remade} of them again, as the video was replaced)" if report.remade else ""
    print(f"{report.made} clips made{again}, {report.kept} kept, {len(report.failed)} failed.")
    if report.remade and any(root.glob("*-C")):
        print(f"  corrupted copies in {root} were made from old videos: remove its -C directories")
    for video in report.unused:
        print(f"  {video}: not used, as it is not {source}/<class>/<clip>.mp4")
    return _failures(report.failed)


def data_check(data: Data, frames: tuple[int, ...] = (), workers: Workers = None) -> int:
    """Check every file of a data set and report the problems.

    Prints clips per class, sample rates, frame sizes, and each missing or unreadable file;
    for a published data set also whether its counts are right. The exit code is 1 if there are
    problems.

    Args:
        frames: Frames to check, for instance 5; by default all ten.
    """
    spec = None if data.dataset is None else spec_of(data.dataset)
    report = check_tree(data.manifest(), spec, frames or None, workers, show=True)
    for line in report.lines():
        print(line)
    return 0 if report.ok else 1


def corrupt(
    data: Data,
    domains: Domains = ALL,
    frames: tuple[int, ...] = (),
    workers: Workers = None,
) -> int:
    """Write corrupted copies of a data set: <folder>-C/<corruption>/severity_<k>/…

    Only needed to share files with other programs: this library corrupts while loading, with the
    same bits. Run it again after an interruption: existing files are kept.

    Args:
        frames: Frames to corrupt; by default the middle one, which is used for evaluation.
    """
    options = domains.arguments() | {"frames": frames or None, "workers": workers}
    report = corrupt_tree(data.manifest(), **options, show=True)
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
    workers: Workers = None,
) -> int:
    """Print a short hash of the first clips of each domain, to compare data between labs.

    Without a directory: hashes of the first hundred samples of each split and sensor of the
    built-in set, compared with those in the package. They are the same on every processor. The
    exit code is 1 if some differ.

    Args:
        count: Number of clips, from the start of the list; at least 1.
        frame: The frame; by default the middle one.
        on_disk: Read the tree written by `dasp corrupt` with the same seed.
        save: File to write the hashes to (JSON).
        against: File of hashes to compare with; the exit code is 1 if some differ.
    """
    manifest = None if data.root is None else data.manifest()
    if manifest is None and against is None:
        against = checksum.BUILT_IN
    theirs = None if against is None else checksum.read_checksums(against)
    if save is not None:
        check_writable(save.parent, save.name)
    if manifest is None:
        hashes = checksum.shapes_checksums(workers=workers, show=True)
    else:
        options = domains.arguments() | {"count": count, "frame": frame, "on_disk": on_disk}
        found = checksum.checksums(manifest, **options, workers=workers, show=True)
        hashes = {"list": manifest.digest[:16]} | found
    for name, value in hashes.items():
        print(f"{value}  {name}")
    if save is not None:
        checksum.save_checksums(save, hashes)
    different = [] if theirs is None else checksum.differences(hashes, theirs)
    for name in different:
        print(f"differs: {name}")
    if against is not None and not different:
        print(f"{len(hashes)} hashes, all equal to {against.name}")
    return 1 if different else 0


def preview(
    data: Data,
    clip: str | None = None,
    seed: int = 0,
    frost_dir: Path | None = None,
    noise_dir: Path | None = None,
    out: Path = Path(),
) -> int:
    """Draw one clip under every corruption and severity: preview-frames.png, preview-sounds.png.

    Args:
        clip: Id of the clip; by default the first of the list.
        seed: Seed of the corruptions.
        frost_dir: Directory of frost pictures; by default textures are generated.
        noise_dir: Directory of recordings; by default the sounds are synthesised.
        out: Directory to write the two pictures to.
    """
    chosen = data.manifest().find(clip)
    check_writable(out)
    frames = sheets.preview_frames(chosen, seed, frost_dir=frost_dir)
    pictures = [frames, sheets.preview_sounds(chosen, seed, noise_dir)]
    print(*sheets.save_sheets(pictures, out), sep="\n")
    return 0


def preview_shapes(index: int = 0, out: Path = Path()) -> int:
    """Draw one sample of the built-in set under every corruption of its three sensors.

    Writes preview-frames.png, preview-sounds.png and preview-depths.png.

    Args:
        index: Index of the sample in the test split.
        out: Directory to write the three pictures to.
    """
    check_writable(out)
    print(*sheets.save_sheets(sheets.preview_shapes(index), out), sep="\n")
    return 0


def _failures(failed: list[tuple[str, str]]) -> int:
    for line, count in Counter(failure_lines(failed)).items():
        print(f"  {line}" + (f" ({count} times)" if count > 1 else ""))
    return 1 if failed else 0
