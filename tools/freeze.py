"""Record the figures of this project, and check later that none has changed.

    python tools/freeze.py record    # writes tools/frozen.json.gz
    python tools/freeze.py check     # compares the code with it; exit code 1 if a figure moved

Frozen are: every number in the tables that `dasp report` makes of the committed results; the
results, sample by sample, of a small plan with every method and every kind of protocol; the
golden figures of the methods and the checksums of the data, which have tests of their own.
"""

import csv
import gzip
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dasp.bench.results import read_folder

ROOT = Path(__file__).parents[1]
FROZEN = ROOT / "tools" / "frozen.json.gz"
FOLDERS = ("paper", "real", "robust", "sound")
TESTS = ("tests/methods/test_reference.py", "tests/corruptions", "tests/streams/test_checksum.py")
PLAN = """
models = ["sounding_shapes_0"]
protocols = ["interleaved"]
clean_after = 32
[data]
samples = 72
"""
PROTOCOLS = """
models = ["sounding_shapes_depth_0"]
methods = ["source", "read", "dasp"]
protocols = ["per_domain/video", "continual/audio", "clean", "pairs", "mixed", "dirichlet",
  "sorted", "stretches", "gradual", "missing/audio", "constant/video", "interleaved/depth"]
batch_sizes = [16]
[data]
samples = 36
"""
ROWS = """
models = ["sounding_shapes_1"]
protocols = ["interleaved", "stretches", "sorted"]
batch_sizes = [16]
[data]
samples = 36
[methods]
source = {}
"source rebalance" = { method = "source", rebalance = 0.8 }
"dasp paper" = { method = "dasp", variant = "paper" }
"triage unfitted" = { method = "triage" }
"triage" = { method = "triage", fit = 72 }
"""
RELATIVE = 1e-5  # tables hold six digits


def tables(folder: Path) -> dict[str, float]:
    """Return {"plan/table.csv | row | column": number} of a folder of results."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as out:
        _dasp("report", str(folder), "--out", out)
        for path in sorted(Path(out).rglob("*.csv")):
            name = path.relative_to(Path(out) / "tables").as_posix()
            found |= _cells(path, name.removeprefix(f"{folder.name}-"))
    return found


def study_tables() -> dict[str, dict[str, float]]:
    """Return the numbers of the study of indicators, by the folder of its former tables."""
    found: dict[str, dict[str, float]] = {}
    study = ROOT / "studies" / "indicators" / "study.py"
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([sys.executable, study, "--out", out], check=True, capture_output=True)
        for path in sorted(Path(out).rglob("*.csv")):
            flags = path.parent.name == "flags"
            name = f"{'indicators' if flags else path.parent.name}/{path.name}"
            found.setdefault("robust" if flags else "paper", {}).update(_cells(path, name))
    return found


def _cells(path: Path, name: str) -> dict[str, float]:
    rows = list(csv.DictReader(path.open()))
    found: dict[str, float] = {}
    for number, row in enumerate(rows):
        label = ", ".join(value for value in row.values() if value and _number(value) is None)
        for column, text in row.items():
            value = _number(text)
            if value is not None:
                key = f"{name} | {label} | {column}"
                found[key if key not in found else f"{key} | row {number}"] = value
    return found


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def small_plans() -> dict[str, Any]:
    """Return the counts of each run of three small plans, without what they took."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("methods", PLAN), ("protocols", PROTOCOLS), ("rows", ROWS)):
            plan, results = Path(folder) / f"{name}.toml", Path(folder) / name
            plan.write_text(text)
            _dasp("bench", str(plan), "--results", str(results), "--store", f"{folder}/store")
            folder_of_results = read_folder(results)
            (record,) = folder_of_results.plans
            for label, key in record.rows:
                result = folder_of_results.results[key]
                counts = json.loads(json.dumps(asdict(result.counts)))
                if not counts["rollbacks"]:
                    del counts["rollbacks"]
                found[f"{name} | {result.run.protocol} | {label}"] = counts
    return found


def _dasp(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dasp", *words], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"dasp {' '.join(words)} failed:\n{done.stdout}{done.stderr}")


def record() -> dict[str, Any]:
    """Return all figures of the present code."""
    study = study_tables()
    return {
        "tables": {n: tables(ROOT / "results" / n) | study.get(n, {}) for n in FOLDERS},
        "small_plans": small_plans(),
    }


def differences(frozen: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what moved, was lost or differs; what is new is allowed."""
    found = []
    for folder, cells in frozen["tables"].items():
        for key, value in cells.items():
            other = now["tables"][folder].get(key)
            if other is None:
                found.append(f"gone: {folder}: {key} = {value:g}")
            elif not math.isclose(value, other, rel_tol=RELATIVE, abs_tol=1e-9):
                found.append(f"moved: {folder}: {key}: {value:g} -> {other:g}")
    for key, result in frozen["small_plans"].items():
        if key not in now["small_plans"]:
            found.append(f"gone: run {key}")
        elif now["small_plans"][key] != result:
            found.append(f"moved: run {key}")
    return found


def main() -> int:
    """Record or check."""
    if sys.argv[1:] == ["record"]:
        figures = record()
        with gzip.open(FROZEN, "wt", compresslevel=9) as file:
            json.dump(figures, file, sort_keys=True)
        numbers, runs = sum(map(len, figures["tables"].values())), len(figures["small_plans"])
        print(f"{numbers} numbers of tables, {runs} runs -> {FROZEN.relative_to(ROOT)}")
        return 0
    if sys.argv[1:] == ["check"]:
        with gzip.open(FROZEN, "rt") as file:
            found = differences(json.load(file), record())
        for line in found:
            print(line)
        tests = subprocess.run([sys.executable, "-m", "pytest", "-q", *TESTS], cwd=ROOT)
        print("every figure is equal" if not found else f"{len(found)} figures differ")
        return 1 if found or tests.returncode else 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
