"""What all benchmarks share: ways timed in turn, ratios with their spread, one kind of JSON file.

from measuring import against, options_of, take_turns, write_figures

times = take_turns({"source": lambda: source(inputs), "dasp": lambda: tta(inputs)}, rounds=5)
figures = {"dasp": against(times["dasp"], times["source"])}
write_figures(options.json, "My title", options_of(options), figures)
"""

import argparse
import hashlib
import json
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from machine import machine
from rich.progress import Progress

from dasp.core.files import atomic_path

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "dasp"
MEASURED_ROOMS = ("core", "data", "corruptions", "streams", "models", "methods", "bench", "plans")
Figures = Mapping[str, Any]


class Seconds(NamedTuple):
    """How long a call took: on the clock, and of processor time, which others disturb less."""

    clock: float
    processor: float


def timed(call: Callable[[], object]) -> Seconds:
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return Seconds(time.perf_counter() - clock, time.process_time() - processor)


def take_turns(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    warm_up: int = 1,
    before: Callable[[], object] | None = None,
) -> dict[str, list[Seconds]]:
    """Time every way once a round, so that a busy machine slows all alike.

    Who comes first changes from round to round: what a way leaves in the caches falls to each.
    `before` is done before each of them and is not timed.
    """
    times: dict[str, list[Seconds]] = {name: [] for name in ways}
    turns = list(ways.items())
    with Progress(transient=True) as progress:
        for round_ in progress.track(range(rounds + warm_up), description="timing in turn"):
            for name, call in turns:
                if before is not None:
                    before()
                seconds = timed(call)
                if round_ >= warm_up:
                    times[name].append(seconds)
            turns = turns[1:] + turns[:1]
    return times


def against(mine: Sequence[Seconds], base: Sequence[Seconds]) -> dict[str, float]:
    """Return how many times as long as the base of the same round: median, lowest, highest."""
    pairs = list(zip(mine, base, strict=True))
    return spread([a.clock / b.clock for a, b in pairs]) | {
        "processor_ratio": round(statistics.median(a.processor / b.processor for a, b in pairs), 4)
    }


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Return the median with the lowest and the highest."""
    found = {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}
    return {name: round(value, 4) for name, value in found.items()}


def options_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a benchmark as plain data, without the path of its file."""
    return {k: v for k, v in vars(options).items() if k != "json" and v is not None}


def write_figures(path: str | Path | None, title: str, settings: Figures, figures: Figures) -> None:
    """Write the file of the benchmark that is running, or nothing without a path."""
    if path is None:
        return
    script = Path(sys.argv[0])
    content = {
        "benchmark": script.stem,
        "title": title,
        "command": command(sys.argv),
        "code": code_digest(script.stem),
        "machine": machine(),
        "settings": dict(settings),
        "figures": dict(figures),
    }
    with atomic_path(path) as part:
        part.write_text(json.dumps(content, indent=1, default=str) + "\n")


def command(words: Sequence[str]) -> str:
    """Return what to type to make a file of figures again, without where it is written.

    >>> command(["/tmp/benchmarks/grid.py", "--samples", "64", "--json", "grid.json"])
    'python benchmarks/grid.py --samples 64'
    """
    rest = list(words[1:])
    if "--json" in rest:
        place = rest.index("--json")
        del rest[place : place + 2]
    return shlex.join(["python", f"benchmarks/{Path(words[0]).name}", *rest])


def code_digest(benchmark: str) -> str:
    """Hash what is measured and what measures it: figures of other code are other figures."""
    paths = sorted(scripts(benchmark))
    for room in MEASURED_ROOMS:
        paths += sorted(p for p in (PACKAGE / room).rglob("*") if p.suffix in (".py", ".toml"))
    content = hashlib.sha256()
    for path in paths:
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    return content.hexdigest()[:16]


def scripts(benchmark: str) -> set[Path]:
    """Return the script of a benchmark and those beside it that it imports."""
    found, waiting = set(), [benchmark]
    while waiting:
        path = HERE / f"{waiting.pop()}.py"
        if path.exists() and path not in found:
            found.add(path)
            waiting += re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
    return found
