"""The schema of a result: what was run, what was counted, what it cost. Defined here, once.

A `Result` belongs to one `RunConfig`, which holds everything that decides its numbers. The hash of
that is the key of the run: a run with the same key is never run twice. Results live in a folder:

    runs/<kind>-<protocol>-<method>-<model>-<key>.json   one per run, while a benchmark is running
    runs.jsonl.gz     the same, one line per run, once it has finished
    plans.json        which runs belong to which plan, and as which row

`read_folder` reads all of it, and folders below; `dasp.results(folder)` gives it as a DataFrame.
"""

import gzip
import hashlib
import json
import math
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from dasp.core.errors import DataError, InputError
from dasp.core.files import atomic_path

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
    """Everything that decides the numbers of one run, and a few names for readers."""

    data: dict[str, Any]  # what the data set says of itself: name, split, samples, seed, version
    model: dict[str, str]  # name and digest
    method: str
    versions: dict[str, Any]  # of the method, of the methods it is built on, of the update loop
    options: dict[str, Any]  # of the method, defaults included
    protocol: str
    severity: int
    domains: dict[str, str]  # in order of first appearance, each with a hash of what it does
    visits: int  # domains visited, repetitions included
    seed: int
    batch_size: int
    clean_after: int = 0  # clean samples evaluated after each domain
    source: dict[str, Any] = field(default_factory=dict)  # samples that the method is fitted with
    tokens: str = "float32"  # the precision in which encoded data are stored
    corruptions: list[str] = field(default_factory=list)  # kept of the protocol; empty: all
    cost: dict[str, int] = field(default_factory=dict)  # rounds and threads, if it is measured

    @property
    def key(self) -> str:
        """Return the hash of all settings; two runs share it only if their numbers agree.

        The name of the model and the folder of a user's own method are left out.
        """
        settings = asdict(self)
        del settings["severity"], settings["corruptions"]  # the domains say it
        settings["model"] = self.model["digest"]
        settings["method"] = self.method.rpartition("/")[2]
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

    name: str  # the conditions of the sensors as `Condition.name` writes them: "video/fog/5"
    right: int
    seen: int
    first_batch: int
    batches: int  # 0 if its samples share their batches with those of other domains
    hits: str  # one bit per sample of the data set, in its order, packed, in hexadecimal

    def sample_hits(self, samples: int) -> NDArray[np.bool_]:
        """Return which samples of the data set were right here: (samples,)."""
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(self.hits), dtype=np.uint8))
        return bits[:samples].astype(bool)


@dataclass(frozen=True)
class BatchCounts:
    """What happened in each batch; every list has the length of the stream."""

    right: list[int]
    seen: list[int]
    updated: list[bool]
    rejected: list[str | None]
    scores: dict[str, list[float | None]] | None  # by modality; None: the method does not diagnose
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
    skipped: list[dict[str, str]] = field(default_factory=list)  # unreadable clips, and why
    rollbacks: list[dict[str, Any]] = field(default_factory=list)  # to earlier weights, and why
    clean_after: dict[str, Any] | None = None
    """Clean samples that were right before the first domain and after each: "seen", "joint", and
    one list per modality alone. None if they were not evaluated."""

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return checked counts from plain data."""
        domains = [DomainCount(**domain) for domain in content["domains"]]
        batches = BatchCounts(**content["batches"])
        counts = cls(**{**content, "domains": domains, "batches": batches})
        counts.check()
        return counts

    def check(self) -> None:
        """Raise an error if the counts contradict each other."""
        batches, length = self.batches, len(self.batches.right)
        lists: list[Sequence[Any]] = [batches.seen, batches.updated, batches.rejected]
        lists += [*(batches.scores or {}).values(), batches.biased or batches.right]
        stops = len({domain.first_batch for domain in self.domains})
        clean = [v for k, v in (self.clean_after or {}).items() if k != "seen"]
        consistent = (
            0 <= self.right <= self.seen
            and self.seen > 0
            and math.isclose(self.accuracy, 100 * self.right / self.seen, abs_tol=ROUNDING)
            and sum(batches.right) == sum(d.right for d in self.domains) == self.right
            and sum(batches.seen) == sum(d.seen for d in self.domains) == self.seen
            and all(len(entries) == length for entries in lists)
            and all(d.first_batch + d.batches <= length for d in self.domains)
            and all(int(d.sample_hits(self.seen).sum()) == d.right for d in self.domains)
            # A domain has every sample of the data set, or all domains together have them once.
            and all(len(d.hits) // 2 in (-(-d.seen // 8), -(-self.seen // 8)) for d in self.domains)
            and all(len(entries) == stops + 1 for entries in clean)
        )
        if not consistent:
            raise InputError("the counts contradict each other")


@dataclass(frozen=True)
class Result:
    """One run: its settings, what was counted, and what it cost on the machine it ran on."""

    run: RunConfig
    counts: Counts | None  # None for a measurement of cost
    measured: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as it is written."""
        return {"format": FORMAT, "key": self.run.key, **asdict(self)}

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """Return the result that `as_dict` wrote; raise `InputError` if it is damaged."""
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise InputError(f"it is not a result of format {FORMAT}")
        try:
            run, counts = RunConfig(**content["run"]), content["counts"]
            counted = None if counts is None else Counts.from_dict(counts)
            result = cls(run, counted, dict(content["measured"]))
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
    rows: list[tuple[str, str]]  # (label, key) of each run, in the order of the plan


@dataclass
class ResultFolder:
    """All results of a folder, and the plans that they belong to."""

    path: Path
    results: dict[str, Result] = field(default_factory=dict)  # by key
    plans: list[PlanRecord] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # what could not be read, and why


def read_folder(path: str | Path) -> ResultFolder:
    """Read the results and plan records of a folder and of all folders below it, as one.

    What is damaged becomes a warning; `InputError` is raised if nothing can be read.
    """
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"{root} is not a directory: give the folder that `dasp bench` wrote.")
    folder = ResultFolder(root)
    for place in [root, *sorted(inner for inner in root.rglob("*") if inner.is_dir())]:
        if not (place / PACKED).exists() and not any((place / "runs").glob("[!.]*.json")):
            continue
        try:
            plans, entries = read_plans(place), list(_entries(place))
        except DataError as error:
            folder.warnings.append(str(error))
            continue
        folder.plans += plans
        for file, line, _, found in entries:
            if isinstance(found, Result):
                folder.results.setdefault(found.run.key, found)
            else:
                name = file.relative_to(root).as_posix() + line
                folder.warnings.append(f"{name} was left out: {found}. Run the plan again.")
    _name_models(folder.results)
    if not folder.results:
        why = f" ({'; '.join(folder.warnings)})" if folder.warnings else ""
        raise InputError(f"{root} holds no results{why}: make some with `dasp bench`.")
    return folder


def _name_models(results: dict[str, Result]) -> None:
    """Give each model one name, and different ones different names, whatever runs called them."""
    names: dict[str, str] = {}
    for model in (result.run.model for result in results.values()):
        names[model["digest"]] = max(names.get(model["digest"], ""), model["name"], key=len)
    for key, result in results.items():
        digest = result.run.model["digest"]
        shared = list(names.values()).count(names[digest]) > 1
        model = {"name": names[digest] + f"-{digest[:6]}" * shared, "digest": digest}
        results[key] = replace(result, run=replace(result.run, model=model))


def _entries(root: Path) -> Iterator[tuple[Path, str, str, Result | ValueError]]:
    """Yield file, line and text of every result of a folder, and the result or what is wrong.

    Single files come first: what another process packs meanwhile is then found in the packed file.
    """
    for path in sorted((root / "runs").glob("[!.]*.json")):
        with suppress(FileNotFoundError):
            text = path.read_text(encoding="utf-8", errors="replace")
            yield path, "", text, _parsed(text)
    for number, line in enumerate(_packed_lines(root / PACKED), start=1):
        yield root / PACKED, f", line {number},", line, _parsed(line)


def _parsed(text: str) -> Result | ValueError:
    try:
        return Result.from_dict(json.loads(text))
    except ValueError as error:
        return error


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


def finished(folder: Path) -> dict[str, Result]:
    """Return all results of a folder that are whole, by key."""
    return {found.run.key: found for *_, found in _entries(folder) if isinstance(found, Result)}


def is_done(folder: Path, run: RunConfig) -> bool:
    """Tell whether the result of a run is in a folder, whole; quick enough to ask before each."""
    for path in (folder / "runs").glob(f"[!.]*-{run.key}.json"):
        with suppress(OSError):
            if isinstance(_parsed(path.read_text(encoding="utf-8", errors="replace")), Result):
                return True
    with suppress(FileNotFoundError):
        status = (folder / PACKED).stat()
        state = status.st_mtime_ns, status.st_size, status.st_ino
        return run.key in _packed_keys(folder / PACKED, *state)
    return False


@lru_cache(maxsize=2)
def _packed_keys(packed: Path, *_state: int) -> set[str]:
    """Return the keys in a packed file; read again only when the state of the file has changed."""
    found = map(_parsed, _packed_lines(packed))
    return {result.run.key for result in found if isinstance(result, Result)}


def write_result(folder: Path, result: Result) -> Path:
    """Write one result, whole or not at all."""
    path = folder / "runs" / result.run.filename
    with atomic_path(path) as part:
        part.write_text(json.dumps(result.as_dict(), default=str) + "\n", encoding="utf-8")
    return path


def pack(folder: Path, without: Collection[str] = ()) -> Path:
    """Move the results of a folder into one compressed file, sorted by key, `without` some keys.

    What cannot be read stays as it is, until its run is done again.
    """
    packed, moved = folder / PACKED, []
    results: dict[str, dict[str, Any]] = {}
    damaged: list[str] = []
    with claimed(folder, "pack", wait=True):
        for path, _, text, found in _entries(folder):
            if isinstance(found, Result):
                moved += [path] if path != packed else []
                if found.run.key not in without:
                    results.setdefault(found.run.key, found.as_dict())
            elif path == packed:
                damaged.append(text.rstrip("\n"))
        if not moved and not without:
            return packed
        lines = [json.dumps(results[key], default=str) for key in sorted(results)]
        lines += [line for line in damaged if not any(key in line for key in results)]
        with (
            atomic_path(packed, durable=True) as part,
            part.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=0) as file,  # no name, no time: the same bytes
        ):
            file.writelines(line.encode() + b"\n" for line in lines)
        for path in moved:
            path.unlink(missing_ok=True)
    return packed


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
    lock = FileLock(locks / name)
    with suppress(Timeout):
        lock.acquire(timeout=-1 if wait else 0)
    try:
        yield lock.is_locked
    finally:
        lock.release()
