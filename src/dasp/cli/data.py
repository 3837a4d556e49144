"""The commands `dasp prepare`, `dasp data …` and `dasp preview…`.

Each function prints its result and returns an exit code: 0 on success, else 1.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import tyro

from dasp.core.errors import OptionError, failure_lines, unknown_name
from dasp.core.files import check_writable
from dasp.data.check import check_tree
from dasp.data.clips import SPECS, Clip, Manifest, open_manifest
from dasp.data.grid import WordClip, find_clips
from dasp.data.inertial import Segment, find_segments, people_of
from dasp.data.prepare import prepare_tree
from dasp.streams import preview as sheets
from dasp.streams.checksum import BUILT_IN, checksums, shapes_checksums
from dasp.streams.domains import Domain, DomainDamage, all_domains


@dataclass(frozen=True)
class ClipOptions:
    """The data set."""

    root: tyro.conf.Positional[Annotated[Path | None, tyro.conf.arg(metavar="ROOT")]] = None
    """Directory of the data set: READ's layout, or <class>/<clip>.wav with .jpg or .png."""
    dataset: str | None = None
    """kinetics50 or vggsound for READ's release, with its directories; in `preview` also grid or
    dsa."""
    split: str = "test"
    """Name of the list at the root, <split>.json."""
    list_file: Path | None = None
    """The JSON list, if it is not at the root."""
    label_file: Path | None = None
    """The label CSV (index,mid[,display_name]), if it is not at the root."""
    follow_links: bool = False
    """Read files outside of the directory to which links in it lead."""

    def manifest(self) -> Manifest:
        """Return the clips of the data set."""
        if self.root is None:
            raise OptionError("give the directory of the data set, e.g. dasp data check DIR.")
        files = (self.list_file, self.label_file)
        return open_manifest(self.root, self.dataset, self.split, *files, self.follow_links)


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

    def damages(self) -> list[DomainDamage]:
        """Return the chosen domains, as they corrupt samples."""
        both = self.modality == "both"
        modalities = ("video", "audio") if both else (self.modality,)
        domains = all_domains(modalities, self.corruptions, self.severities)
        return [DomainDamage(d, self.seed, self.frost_dir, self.noise_dir) for d in domains]


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
    follow_links: bool = False,
    workers: Workers = None,
) -> int:
    """Turn mp4 videos into a data set: ten frames and a 16 kHz mono wav per clip.

    Writes audio/, video/frame_0 … frame_9/, <split>.json and labels.csv below the root. Run it
    again after an interruption: complete clips are kept, and made again if their video was
    replaced. A video that cannot be read is reported and omitted from the list, and the exit code
    is 1.

    Args:
        source: Directory of the videos, <class>/<clip>.mp4.
        root: Directory to write, outside of the source; created if needed.
        refer: List in READ's format with ids and labels; the videos are then <id>.mp4.
        labels: Label file of that list (index,mid[,display_name]).
        split: Name of the list to write.
        follow_links: Read files outside of the source to which links in it lead.
    """
    report = prepare_tree(source, root, refer, labels, split, workers, True, follow_links)
    again = f" ({report.remade} of them again, as the video was replaced)" if report.remade else ""
    print(f"{report.made} clips made{again}, {report.kept} kept, {len(report.failed)} failed.")
    for video in report.unused:
        print(f"  {video}: not used, as it is not {source}/<class>/<clip>.mp4")
    for line, count in Counter(failure_lines(report.failed)).items():
        print(f"  {line}" + (f" ({count} times)" if count > 1 else ""))
    return 1 if report.failed else 0


def data_check(data: Data, workers: Workers = None) -> int:
    """Check every file of a data set and report the problems.

    Prints clips per class, sample rates, frame sizes, and each missing or unreadable file;
    for a published data set also whether its counts are right. The exit code is 1 if there are
    problems.
    """
    spec = SPECS[data.dataset] if data.dataset else None
    report = check_tree(data.manifest(), spec, workers, show=True)
    for line in report.lines():
        print(line)
    return 0 if report.ok else 1


def data_checksum(
    data: Data, domains: Domains = ALL, count: int = 4, workers: Workers = None
) -> int:
    """Print a short hash of the first clips of each domain, to compare data between labs.

    Without a directory: hashes of the first hundred samples of each split and sensor of the
    built-in set, compared with those in the package. They are the same on every processor. The
    exit code is 1 if some differ.

    Args:
        count: Number of clips, from the start of the list; at least 1.
    """
    if data.root is None:
        hashes = shapes_checksums(workers=workers, show=True)
        expected = json.loads(BUILT_IN.read_text(encoding="utf-8"))
    else:
        manifest = data.manifest()
        hashes = {"list": manifest.digest[:16]}
        hashes |= checksums(manifest, domains.damages(), count, workers, show=True)
        expected = hashes
    for name, value in hashes.items():
        print(f"{value}  {name}")
    different = [name for name in hashes | expected if hashes.get(name) != expected.get(name)]
    for name in different:
        print(f"differs: {name}")
    if data.root is None and not different:
        print(f"{len(hashes)} hashes, all equal to {BUILT_IN.name} of this package")
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

    Without a directory: one sample of the built-in set, with preview-depths.png. With `--dataset
    grid` a word, with `--dataset dsa` a segment of body-worn sensors: preview-accelerometer.png,
    preview-gyroscope.png and preview-magnetometer.png.

    Args:
        clip: Id of the clip, such as bbaf2n_3 or p7/a01/s01, by default the first of the list; of
            the built-in set the number of a test sample.
        seed: Seed of the corruptions.
        frost_dir: Directory of frost pictures; by default textures are generated.
        noise_dir: Directory of recordings; by default the sounds are synthesised.
        out: Directory to write the pictures to.
    """
    if data.root is None:
        if not (clip or "0").isdecimal():
            raise OptionError(f"--clip is the number of a sample of the built-in set, not {clip}.")
        read = partial(sheets.shape_samples, int(clip or 0))
    elif data.dataset == "grid":
        read = partial(sheets.word_samples, _named(find_clips(data.root), clip))
    elif data.dataset == "dsa":
        segments = find_segments(data.root, people_of(data.split))
        read = partial(sheets.segment_samples, _named(segments, clip))
    else:
        read = partial(sheets.clip_samples, _named(data.manifest().clips, clip))
    check_writable(out)
    damage = DomainDamage(Domain("video", "frost", 1), seed, frost_dir, noise_dir)
    for path in sheets.save_sheets(sheets.draw_sheets(read(), damage), out):
        print(path)
    return 0


Recording = TypeVar("Recording", Clip, WordClip, Segment)


def _named(items: Sequence[Recording], name: str | None) -> Recording:
    """Return the clip, word or segment with this id, by default the first."""
    by_id = {item.id: item for item in items}
    if name is not None and name not in by_id:
        raise OptionError(unknown_name("clip", name, by_id)[:300])
    return items[0] if name is None else by_id[name]
