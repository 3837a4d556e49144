"""The schema of a result: what was run, what was counted, what it cost. Defined here, once.

A `Result` belongs to one `RunConfig`, which holds everything that decides its numbers. The hash of
that is its key: a run with another key is another run, and a run with the same key is never run
twice. Results live in a folder:

    runs/<protocol>-<method>-<model>-<key>.json   one file per run while a benchmark is running
    runs.jsonl.gz                                 the same, one line per run, once it has finished
    plans.json                                    which runs belong to which plan, and as which row

`read_folder` reads all of it; `dasp.results(folder)` gives it as a DataFrame.
"""

import gzip
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from dasp.core.errors import DataError, InputError
from dasp.core.files import atomic_path, remove_parts

FORMAT = "dasp-result-3"
PACKED = "runs.jsonl.gz"
STREAM, COST = "stream", "cost"
ROUNDING = 0.011  # of an accuracy written with two decimals


def digest(content: Any) -> str:
    """Hash plain data: 16 hex digits, the same on every machine."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the numbers of one run.

    The name of the model and the folder of a user's own method are for readers; the key leaves
    them out.
    """

    data: dict[str, Any]
    """What the data set says of itself: name, split, number of samples, seed, version."""
    model: dict[str, str]
    """Its name and digest."""
    method: str
    versions: dict[str, Any]
    """Of the code of the method, of the methods that it is built on, and of the update loop."""
    options: dict[str, Any]
    """All options of the method, defaults included."""
    protocol: str
    severity: int
    domains: dict[str, str]
    """The domains of the stream in order of first appearance, each with a hash of what it does."""
    visits: int
    """The number of domains visited, repetitions included."""
    seed: int
    batch_size: int
    clean_after: int = 0
    """The number of clean samples evaluated after each domain."""
    source: dict[str, Any] = field(default_factory=dict)
    """The clean training samples that the method is fitted with, empty if there are none."""
    tokens: str = "float32"
    """The precision in which encoded data are stored."""
    corruptions: list[str] = field(default_factory=list)
    """The only ones kept of the protocol; empty: all."""
    cost: dict[str, int] = field(default_factory=dict)
    """Rounds and threads of a measurement of cost, empty for other runs."""

    @property
    def key(self) -> str:
        """Return the hash of all settings; two runs share it only if their numbers agree."""
        settings = asdict(self)
        del settings["severity"], settings["corruptions"]  # the domains say it
        settings["model"] = self.model["digest"]
        settings["method"] = self.method.rpartition("/")[2]  # of "folder/file.py:Name" the rest
        settings["domains"] = list(self.domains.items())  # their order counts
        return digest(settings)

    @property
    def kind(self) -> str:
        """Return "cost" for a measurement of time and memory, "stream" for all others."""
        return COST if self.cost else STREAM

    @property
    def filename(self) -> str:
        """Return a readable and unique file name, short enough for any file system."""
        words = (self.kind, self.protocol, self.method, self.model["name"], self.key)
        return "-".join(re.sub(r"[^A-Za-z0-9_.=]+", "_", word)[-40:] for word in words) + ".json"


@dataclass(frozen=True)
class DomainCount:
    """What was counted in one visit of a domain."""

    name: str
    """The conditions of the sensors as `Condition.name` writes them, such as "video/fog/5"."""
    right: int
    seen: int
    first_batch: int
    batches: int
    """0 if its samples share their batches with those of other domains."""
    hits: str
    """One bit per sample, in the order of the data set, packed and written in hexadecimal."""

    def sample_hits(self) -> NDArray[np.bool_]:
        """Return which samples were right: (seen,)."""
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(self.hits), dtype=np.uint8))
        return bits[: self.seen].astype(bool)


@dataclass(frozen=True)
class BatchCounts:
    """What happened in each batch; every list has the length of the stream."""

    right: list[int]
    seen: list[int]
    updated: list[bool]
    rejected: list[str | None]
    scores: dict[str, list[float | None]] | None
    """The diagnostic score of each modality, None for methods that do not diagnose."""
    biased: list[list[str]] | None


@dataclass(frozen=True)
class Counts:
    """What was counted in a run; accuracy is from global counts."""

    accuracy: float
    right: int
    seen: int
    domains: list[DomainCount]
    batches: BatchCounts
    updates: int
    rejections: int
    skipped: list[dict[str, str]] = field(default_factory=list)
    """Clips that could not be read, with the reason."""
    rollbacks: list[dict[str, Any]] = field(default_factory=list)
    """Batches after which the method returned to earlier weights, with the reason."""
    clean_after: dict[str, Any] | None = None
    """Clean samples that were right before the first domain and after each: "seen", "joint", and
    one list per modality alone. None if they were not evaluated."""

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return checked counts from plain data."""
        values = {f.name: content[f.name] for f in fields(cls) if f.name in content}
        values["domains"] = [DomainCount(**domain) for domain in content["domains"]]
        values["batches"] = BatchCounts(**content["batches"])
        counts = cls(**values)
        counts.check()
        return counts

    def check(self) -> None:
        """Raise an error if the counts contradict each other."""
        batches, length = self.batches, len(self.batches.right)
        lists: list[Sequence[Any]] = [batches.seen, batches.updated, batches.rejected]
        lists += list((batches.scores or {}).values()) + (
            [batches.biased] if batches.biased else []
        )
        stops = len({domain.first_batch for domain in self.domains})
        clean = {k: v for k, v in (self.clean_after or {}).items() if k != "seen"}
        consistent = (
            0 <= self.right <= self.seen
            and self.seen > 0
            and math.isclose(self.accuracy, 100 * self.right / self.seen, abs_tol=ROUNDING)
            and sum(batches.right) == sum(d.right for d in self.domains) == self.right
            and sum(batches.seen) == sum(d.seen for d in self.domains) == self.seen
            and all(len(entries) == length for entries in lists)
            and all(d.first_batch + d.batches <= length for d in self.domains)
            and all(int(d.sample_hits().sum()) == d.right for d in self.domains)
            and all(len(d.hits) == 2 * -(-d.seen // 8) for d in self.domains)
            and all(len(entries) == stops + 1 for entries in clean.values())
        )
        if not consistent:
            raise InputError("the counts contradict each other")


@dataclass(frozen=True)
class Result:
    """One run: its settings, what was counted, and what it cost on the machine it ran on."""

    run: RunConfig
    counts: Counts | None
    """None for a measurement of cost."""
    measured: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as it is written to a file."""
        return {
            "format": FORMAT,
            "key": self.run.key,
            "run": asdict(self.run),
            "counts": None if self.counts is None else asdict(self.counts),
            "measured": self.measured,
        }

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """Return the result that `as_dict` wrote; raise `InputError` if it is damaged."""
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise InputError(f"it is not a result of format {FORMAT}")
        try:
            run = RunConfig(**content["run"])
            counts = content["counts"]
            result = cls(
                run,
                None if counts is None else Counts.from_dict(counts),
                dict(content["measured"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"a field is missing or of the wrong type ({error!r})") from error
        if run.key != content.get("key"):
            raise InputError("its key does not match its settings")
        return result


@dataclass(frozen=True)
class PlanRecord:
    """Which runs belong to a plan, and what a report shows of them."""

    name: str
    title: str
    about: str
    show: list[str]
    command: str
    rows: list[tuple[str, str]]
    """(label of the row, key of the run) of each run, in the order of the plan."""


@dataclass
class ResultFolder:
    """All results of a folder, and the plans that they belong to."""

    path: Path
    results: dict[str, Result] = field(default_factory=dict)
    """By key."""
    plans: list[PlanRecord] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """What could not be read, and why."""


def read_folder(path: str | Path) -> ResultFolder:
    """Read all results and plan records of a folder; what is damaged becomes a warning."""
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"{root} is not a directory: give the folder that `dasp bench` wrote.")
    found = _read_results(root)
    found.plans = read_plans(root)
    if not found.results:
        why = f" ({'; '.join(found.warnings)})" if found.warnings else ""
        raise InputError(f"{root} holds no results{why}: make some with `dasp bench`.")
    return found


def _read_results(root: Path) -> ResultFolder:
    found = ResultFolder(root)
    for name, _, text in _texts(root):
        try:
            result = Result.from_dict(json.loads(text))
        except ValueError as error:
            found.warnings.append(f"{name} was left out: {error}. Run the plan again.")
        else:
            found.results.setdefault(result.run.key, result)
    return found


def _texts(root: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield name, file and text of every result of a folder.

    Single files come first: what another process packs meanwhile is then found in the packed file.
    """
    for path in sorted((root / "runs").glob("[!.]*.json")):
        with suppress(FileNotFoundError):
            yield f"runs/{path.name}", path, path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(_packed_lines(root / PACKED), start=1):
        yield f"{PACKED}, line {number},", root / PACKED, line


def _packed_lines(packed: Path) -> Iterator[str]:
    if not packed.exists():
        return
    try:
        with gzip.open(packed, "rt", encoding="utf-8") as lines:
            yield from lines
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DataError(
            f"{packed} is damaged ({error}): restore it from version control, or remove it and "
            "run the plan again."
        ) from error


def write_result(folder: Path, result: Result) -> Path:
    """Write one result, whole or not at all."""
    path = folder / "runs" / result.run.filename
    with atomic_path(path) as part:
        part.write_text(json.dumps(result.as_dict(), default=str) + "\n", encoding="utf-8")
    return path


def done_keys(folder: Path) -> set[str]:
    """Return the keys of all runs whose results are in a folder, whole."""
    return set(_read_results(folder).results)


def is_done(folder: Path, run: RunConfig) -> bool:
    """Tell whether the result of a run is in a folder, whole; quick enough to ask before each."""
    for path in (folder / "runs").glob(f"[!.]*-{run.key}.json"):
        with suppress(OSError, ValueError):
            return Result.from_dict(json.loads(path.read_text(encoding="utf-8"))).run.key == run.key
    packed = folder / PACKED
    if not packed.exists():
        return False
    status = packed.stat()
    return run.key in _packed_keys(packed, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=2)
def _packed_keys(packed: Path, *_state: int) -> set[str]:
    """Return the keys in a packed file; read again only when the state of the file has changed."""
    keys = set()
    for line in _packed_lines(packed):
        with suppress(ValueError):
            keys.add(Result.from_dict(json.loads(line)).run.key)
    return keys


def pack(folder: Path) -> Path:
    """Move the results of a folder into one compressed file, sorted by key.

    What cannot be read stays as it is, until its run is done again.
    """
    packed = folder / PACKED
    with claimed(folder, "pack", wait=True):
        results: dict[str, dict[str, Any]] = {}
        damaged: list[str] = []
        moved: list[Path] = []
        for _, path, text in _texts(folder):
            try:
                result = Result.from_dict(json.loads(text))
            except ValueError:
                damaged += [text.rstrip("\n")] if path == packed else []
            else:
                results.setdefault(result.run.key, result.as_dict())
                moved += [path] if path != packed else []
        if not moved:
            return packed
        lines = [json.dumps(results[key], default=str) for key in sorted(results)]
        lines += [line for line in damaged if _key_in(line) not in results]
        remove_parts(packed)
        with (
            atomic_path(packed, durable=True) as part,
            part.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=0) as file,  # no name, no time: the same bytes
        ):
            file.writelines(line.encode() + b"\n" for line in lines)
        for path in moved:
            path.unlink(missing_ok=True)
    return packed


def _key_in(line: str) -> Any:
    """Return the key that a damaged line names, or None."""
    with suppress(ValueError, AttributeError):
        return json.loads(line).get("key")
    return None


def read_plans(folder: Path) -> list[PlanRecord]:
    """Return the plan records of a folder, in the order in which the plans were first run."""
    path = folder / "plans.json"
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [PlanRecord(**{**plan, "rows": list(map(tuple, plan["rows"]))}) for plan in content]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path} is damaged ({error}): restore it, or remove it and run the plan again."
        ) from error


def write_plan(folder: Path, record: PlanRecord) -> None:
    """Add a plan's record to a folder; it replaces the record of the same name."""
    with claimed(folder, "pack", wait=True):
        plans = {plan.name: plan for plan in read_plans(folder)} | {record.name: record}
        with atomic_path(folder / "plans.json") as part:
            part.write_text(json.dumps([asdict(plan) for plan in plans.values()], indent=1) + "\n")


@contextmanager
def claimed(folder: Path, name: str, wait: bool = False) -> Iterator[bool]:
    """Claim a run for this process, and tell whether it succeeded; the system frees it on death."""
    locks = folder / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(locks / name, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
