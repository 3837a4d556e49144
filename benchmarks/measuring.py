"""What all benchmarks share: flags, ways timed in turn, ratios, tables, and one kind of JSON file.

options = parse(__doc__, rounds=3, batch=[16, 64])
times = take_turns({"source": lambda: source(inputs), "dasp": lambda: tta(inputs)}, 3)
finish(options, "My title", {"dasp": against(times["dasp"], times["source"])})
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.progress import Progress

from dasp.core.files import atomic_path
from dasp.data.loading import cores

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PACKAGE = ROOT / "src" / "dasp"
MEASURED_ROOMS = ("core", "data", "corruptions", "streams", "models", "methods", "bench", "plans")
WIDE = 7  # columns of a table
# What decides the speed of float32, bfloat16 and int8 arithmetic.
INSTRUCTION_SETS = (
    "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8",
    "asimd", "bf16", "i8mm", "sve",
)  # fmt: skip
LOAD_AT_START = os.getloadavg() if hasattr(os, "getloadavg") else (0.0, 0.0, 0.0)


def parse(doc: str, what: str = "", /, **defaults: Any) -> argparse.Namespace:
    """Return the flags of a benchmark: one per default, of its type; a list takes several."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if what:
        parser.add_argument("what", choices=what.split(" or "))
    for name, value in defaults.items():
        flag, many = f"--{name.replace('_', '-')}", isinstance(value, list)
        if isinstance(value, bool):
            parser.add_argument(flag, action="store_true")
            continue
        kind = type(value[0] if many else value) if value is not None else str
        parser.add_argument(flag, type=kind, nargs="+" if many else None, default=value)
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args()


class Seconds(NamedTuple):
    """Duration of a call: on the clock, and of processor time, which other load disturbs less."""

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
    """Time every way once per round, so that other load slows all alike.

    The order rotates from round to round: what a way leaves in the caches falls to each. `before`
    is called before each of them and is not timed.
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
    """Return the ratio to the base of the same round: median, lowest, highest."""
    pairs = list(zip(mine, base, strict=True))
    return spread([a.clock / b.clock for a, b in pairs]) | {
        "processor_ratio": round(statistics.median(a.processor / b.processor for a, b in pairs), 4)
    }


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Return the median with the lowest and the highest."""
    found = {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}
    return {name: round(value, 4) for name, value in found.items()}


def random_inputs(
    shapes: Mapping[str, Sequence[int]], size: int, seed: int = 0
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(size, *shape, generator=generator) for n, shape in shapes.items()}


def vit_inputs(batch: int) -> dict[str, torch.Tensor]:
    """Return random inputs of CAV-MAE ViT-B."""
    return random_inputs({"audio": (1024, 128), "video": (3, 224, 224)}, batch)


def finish(options: argparse.Namespace, title: str, figures: Mapping[str, Any]) -> None:
    """Print the figures of the benchmark that is running, and write its file if one is named."""
    print(f"{title}\n")
    for name, part in figures.items():
        print(f"{words(name)}:\n{table_of(part)}" if isinstance(part, dict) else f"{name}: {part}")
    if options.json is None:
        return
    script = Path(sys.argv[0])
    content = {
        "benchmark": script.stem,
        "title": title,
        "command": command(sys.argv),
        "code": code_digest(script),
        "machine": machine(),
        "settings": {k: v for k, v in vars(options).items() if k != "json" and v is not None},
        "figures": dict(figures),
    }
    with atomic_path(options.json) as part:
        part.write_text(json.dumps(content, indent=1, default=str) + "\n")


def command(arguments: Sequence[str]) -> str:
    """Return what to type to make a file of figures again, without where it is written.

    >>> command([__file__, "--samples", "64", "--json", "grid.json"])
    'python benchmarks/measuring.py --samples 64'
    """
    rest = list(arguments[1:])
    if "--json" in rest:
        place = rest.index("--json")
        del rest[place : place + 2]
    script = Path(arguments[0]).resolve().relative_to(ROOT)
    return shlex.join(["python", str(script), *rest])


def code_digest(script: Path) -> str:
    """Hash what is measured and what measures it: figures of other code are other figures."""
    paths, waiting = set(), [script.resolve()]
    while waiting:
        path = waiting.pop()
        if path.exists() and path not in paths:
            paths.add(path)
            names = re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
            waiting += [folder / f"{name}.py" for name in names for folder in (HERE, path.parent)]
    measured = [p for room in MEASURED_ROOMS for p in sorted((PACKAGE / room).rglob("*"))]
    content = hashlib.sha256()
    for path in [*sorted(paths), *(p for p in measured if p.suffix in (".py", ".toml"))]:
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    return content.hexdigest()[:16]


def machine() -> dict[str, object]:
    """Return the machine, the versions, and how busy it was when this process began; no names."""
    info = Path("/proc/cpuinfo")
    lines = [line.partition(":") for line in info.read_text().splitlines()] if info.exists() else []
    fields = {key.strip(): value.strip() for key, _, value in reversed(lines)}
    flags = (fields.get("flags") or fields.get("Features", "")).split()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": fields.get("model name") or platform.processor() or platform.machine(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(memory / 2**30, 1),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
        "torch_uses": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "load_at_start": [round(load, 2) for load in LOAD_AT_START],
    }


def find(figures: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield what lies at a path of names, of which some may be stars."""
    if not path:
        yield figures
    elif isinstance(figures, dict):
        names = figures if path[0] == "*" else [path[0]] if path[0] in figures else []
        for name in names:
            yield from find(figures[name], path[1:])


def table_of(content: Any) -> str:
    """Return a table of a map of values, of a map of rows, or one for each map of rows."""
    if not all(isinstance(row, dict) for row in content.values()):
        return table(("", ""), [(words(name), shown(value)) for name, value in content.items()])
    if all(isinstance(part, dict) for row in content.values() for part in row.values()):
        return "\n".join(f"{words(name)}:\n\n{table_of(row)}" for name, row in content.items())
    columns = list(dict.fromkeys(name for row in content.values() for name in row))
    if len(columns) > max(WIDE, len(content)):  # too wide for a page: transpose
        return table_of({c: {r: row.get(c, "") for r, row in content.items()} for c in columns})
    ratio = {"ratio", "low", "high"} <= set(columns)  # one column instead of three
    kept = [name for name in columns if not (ratio and name in ("low", "high"))]

    def cell(row: Mapping[str, Any], name: str) -> str:
        if name not in row:
            return ""
        return shown(row if ratio and name == "ratio" and "low" in row else row[name])

    rows = [(words(label), *(cell(row, name) for name in kept)) for label, row in content.items()]
    heads = ["ratio (low to high)" if ratio and n == "ratio" else words(n) for n in kept]
    return table(("", *heads), rows)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, ("---", *("---:" for _ in heads[1:])), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def words(name: str) -> str:
    return name.replace("_", " ").replace(" tb", " (TB)").replace(" mib", " (MiB)")


def shown(value: Any) -> str:
    if isinstance(value, dict) and {"ratio", "low", "high"} <= value.keys():
        return f"{value['ratio']:.2f} ({value['low']:.2f} to {value['high']:.2f})"
    if isinstance(value, dict):
        return ", ".join(f"{words(name)} {shown(own)}" for name, own in value.items())
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
