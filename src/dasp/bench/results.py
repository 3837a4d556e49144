"""One JSON file a cell: what was run, what came out, what it cost."""

import json
import re
from collections.abc import Iterator
from dataclasses import Field, asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from dasp.bench.store import digest
from dasp.core.errors import DataError
from dasp.core.files import atomic_path
from dasp.streams.protocols import visits
from dasp.streams.visits import Visit

FORMAT = "dasp-result-2"


class Settings(Protocol):
    """What a file of results was made with: a dataclass of plain data, all of it in the key."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def model(self) -> dict[str, str]:
        """Return the model's name and digest."""

    @property
    def key(self) -> str:
        """Return the hash of all settings."""

    @property
    def filename(self) -> str:
        """Return the name of the file."""


@dataclass(frozen=True)
class Cell:
    """One run: everything that decides its numbers."""

    data: dict[str, Any]
    model: dict[str, str]
    label: str
    method: str
    options: dict[str, Any]
    protocol: str
    severity: int
    seed: int
    batch_size: int
    corruptions: tuple[str, ...] = ()
    clean_after: int = 0  # clean samples judged after each domain
    code: str = ""  # version of the method, or hash of its file
    source: dict[str, Any] = field(default_factory=dict)  # samples a method learns from first
    tokens: str = "float32"  # how the store keeps them

    @property
    def key(self) -> str:
        """Return the hash of all settings; results of different settings never share it."""
        settings = plain(self)
        if not self.source:  # most methods need none, and keep the keys they had without it
            del settings["source"]
        return digest(settings)

    def visits(self) -> Iterator[Visit]:
        """Give the visits of its stream."""
        return visits(self.protocol, self.severity, self.corruptions, self.data["samples"])

    @property
    def filename(self) -> str:
        """Return a name that a reader understands and that no other cell has."""
        parts = (self.protocol, self.severity, self.label, self.model["name"], self.seed)
        words = (re.sub(r"[^A-Za-z0-9_.=]+", "-", str(part)) for part in parts)
        return f"{'-'.join(words)}-{self.key[:8]}.json"


def plain(cell: Settings) -> dict[str, Any]:
    """Return all settings as plain data.

    The usual precision of tokens is left out: files and keys from before there was another stay.
    """
    settings = asdict(cell)
    if settings.get("tokens") == "float32":
        del settings["tokens"]
    return settings


def write_result(
    folder: Path,
    cell: Settings,
    result: dict[str, Any],
    measured: dict[str, Any],
    format_name: str = FORMAT,
) -> Path:
    """Write one result, whole or not at all."""
    path = folder / cell.filename
    content = {
        "format": format_name,
        "key": cell.key,
        "cell": plain(cell),
        "result": result,
        "measured": measured,
    }
    with atomic_path(path) as part:
        part.write_text(_dump(content) + "\n")
    return path


def read_result(path: Path, format_name: str = FORMAT) -> dict[str, Any]:
    """Read one result file; a damaged one is an error that names it."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no result file: {error}. Remove it and run again.") from error
    if not isinstance(content, dict) or content.get("format") != format_name:
        raise DataError(f"{path} is no result file of this version: remove it and run again.")
    return content


def is_done(folder: Path, cell: Settings, format_name: str = FORMAT) -> bool:
    """Tell whether a cell's result is there, whole."""
    path = folder / cell.filename
    return path.exists() and read_result(path, format_name)["key"] == cell.key


def _dump(content: Any, depth: int = 0) -> str:
    """Write JSON with one line a list of plain values, so that files stay readable."""
    pad = " " * (depth + 1)
    if isinstance(content, dict) and content:
        rows = (f"{pad}{json.dumps(str(k))}: {_dump(v, depth + 1)}" for k, v in content.items())
        return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}"
    if isinstance(content, list | tuple) and content and isinstance(content[0], dict):
        return "[" + ", ".join(json.dumps(item, default=str) for item in content) + "]"
    return json.dumps(content, default=str)
