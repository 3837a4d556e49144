"""Where recordings are published, and how they are fetched, verified and unpacked."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.request import urlopen

from dasp.core.errors import DataError, OptionError, cause
from dasp.core.files import atomic_path
from dasp.core.registry import Registry
from dasp.data import grid, inertial

BLOCK = 2**20
TIMEOUT = 30  # seconds without an answer
ZENODO = "https://zenodo.org/api/records/3625687"
UCI = "https://archive.ics.uci.edu/static/public/256/daily+and+sports+activities.zip"

Open = Callable[[str], IO[bytes]]
Show = Callable[[str], None]


@dataclass(frozen=True)
class RemoteFile:
    """An archive, and what its publisher says of it; empty where nothing is said."""

    name: str
    url: str
    size: int = 0  # bytes
    checksum: str = ""  # "md5:…"

    def __str__(self) -> str:
        size = f", {self.size / 1e6:.0f} MB" if self.size else ""
        return f"{self.name} ({self.url}{size}{', ' if self.checksum else ''}{self.checksum})"


@dataclass(frozen=True)
class Publication:
    """A published data set."""

    about: str  # what it is, who made it, licence, size, page
    layout: str  # of the directory, in words
    files: Callable[[Sequence[str], Open], list[RemoteFile]]
    count: Callable[[Path], str]  # reads the directory, and says what it found

    def archives(self, parts: Sequence[str]) -> list[RemoteFile]:
        """Return the archives by name, without asking the publisher."""
        return self.files(parts, _no_answer)


SOURCES: Registry[Publication] = Registry("data set that can be fetched")


def fetch(
    name: str, folder: Path, parts: Sequence[str] = (), show: Show = print, ask: Open | None = None
) -> None:
    """Fetch, verify and unpack a data set into `folder`; archives that lie there are used.

    `parts` are speakers of GRID. An error says what to download by hand and where to put it.
    """
    source, ask = SOURCES[name], ask or _ask
    show(source.about)
    wanted = source.archives(parts)
    if all((folder / file.name).is_file() for file in wanted):
        show(f"found {', '.join(file.name for file in wanted)} in {folder}")
    else:
        try:
            wanted = source.files(parts, ask)
            for file in wanted:
                if not (folder / file.name).is_file():
                    show(f"fetching {file}")
                    _download(file, folder, ask)
        except (URLError, OSError, ValueError, KeyError) as error:
            reason = getattr(error, "reason", None) or cause(error)
            listed = "\n".join(f"  {file}" for file in source.archives(parts))
            raise DataError(
                f"cannot fetch {name} ({reason}). Download by hand\n{listed}\ninto {folder}, then "
                f"run the same command again; or unpack them there yourself: {source.layout}."
            ) from error
    for file in wanted:
        _verify(file, folder / file.name, show)
        _unpack(folder / file.name, folder)
    show(f"{folder}: {source.count(folder)}")


def _ask(url: str) -> IO[bytes]:
    return urlopen(url, timeout=TIMEOUT)  # type: ignore[no-any-return]


def _no_answer(url: str) -> IO[bytes]:
    raise URLError(f"{url} was not asked")


def _download(file: RemoteFile, folder: Path, ask: Open) -> None:
    with ask(file.url) as answer, atomic_path(folder / file.name) as part, part.open("wb") as out:
        while block := answer.read(BLOCK):
            out.write(block)


def _verify(file: RemoteFile, path: Path, show: Show) -> None:
    """Compare size and checksum with what the publisher says; print what can be compared later."""
    sums = {"md5": hashlib.md5(usedforsecurity=False), "sha256": hashlib.sha256()}
    with path.open("rb") as opened:
        while block := opened.read(BLOCK):
            for each in sums.values():
                each.update(block)
    found = {f"{kind}:{each.hexdigest()}" for kind, each in sums.items()}
    size = path.stat().st_size
    if size != (file.size or size) or (file.checksum and file.checksum not in found):
        raise DataError(
            f"{path} is not the published file: it has {size} bytes and "
            f"{' '.join(sorted(found))}, instead of {file}; remove it and fetch it again."
        )
    known = "as published" if file.checksum else "its publisher gives no checksum"
    show(f"{path}: sha256:{sums['sha256'].hexdigest()} ({known})")


def _unpack(path: Path, folder: Path) -> None:
    """Unpack a zip, and those that it consists of."""
    try:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
            inner = [name for name in archive.namelist() if name.endswith(".zip")]
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"cannot unpack {path}: {cause(error)}; fetch it again.") from error
    for name in inner:
        _unpack(folder / name, folder)


def _grid_files(speakers: Sequence[str], ask: Open) -> list[RemoteFile]:
    for speaker in speakers:
        number = speaker.removeprefix("s")
        if not number.isdecimal() or not 1 <= int(number) <= 34 or number == "21":
            raise OptionError(f"speakers of GRID are s1 to s34 without s21, not '{speaker}'.")
    names = ["alignments.zip", *(f"{speaker}.zip" for speaker in speakers or ("s1",))]
    if ask is _no_answer:
        page = "https://zenodo.org/records/3625687/files/"
        return [RemoteFile(name, f"{page}{name}") for name in names]
    with ask(ZENODO) as answer:
        entries: dict[str, Any] = {entry["key"]: entry for entry in json.load(answer)["files"]}
    return [
        RemoteFile(
            name, entries[name]["links"]["self"], entries[name]["size"], entries[name]["checksum"]
        )
        for name in names
    ]


def _grid_count(folder: Path) -> str:
    clips = grid.find_clips(folder)
    speakers = {clip.speaker for clip in clips}
    return f"{len(clips)} words of {len({c.path for c in clips})} files, {len(speakers)} speaker(s)"


def _dsa_files(people: Sequence[str], ask: Open) -> list[RemoteFile]:  # noqa: ARG001
    if people:
        raise OptionError("Daily and Sports Activities come as one archive: omit --speakers.")
    return [RemoteFile("daily+and+sports+activities.zip", UCI)]


def _dsa_count(folder: Path) -> str:
    segments = inertial.find_segments(folder, inertial.PEOPLE)
    for segment in segments:
        inertial.read_segment(segment.path)
    return f"{len(segments)} segments of {len(inertial.PEOPLE)} people, all read"


SOURCES.register("grid")(
    Publication(
        "GRID: 1,000 sentences each of 34 speakers (s21 without video), with word alignments.\n"
        "  Cooke, Barker, Cunningham and Shao, JASA 2006. Licence CC BY 4.0. A speaker is a zip of "
        "about 400 MB.\n  https://zenodo.org/records/3625687 publishes sizes and md5 checksums.",
        "s1/*.mpg with alignments/s1/*.align",
        _grid_files,
        _grid_count,
    )
)
SOURCES.register("dsa")(
    Publication(
        "Daily and Sports Activities: 19 activities, 8 people, 5 body-worn units.\n"
        "  Barshan and Altun 2010, UCI Machine Learning Repository. Licence CC BY 4.0. One zip of "
        "about 170 MB, 400 MB unpacked.\n  https://archive.ics.uci.edu/dataset/256 publishes no "
        "checksum: the files are counted and read instead.",
        "data/aAA/pP/sSS.txt",
        _dsa_files,
        _dsa_count,
    )
)
