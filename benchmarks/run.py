"""Run all benchmarks: figures as JSON, then one table of ratios and their goals.

    make benchmarks                                   # or: python benchmarks/run.py
    python benchmarks/run.py growth samples           # only these
    python benchmarks/run.py --quick                  # small sizes, written to out/benchmarks

What exists of the same code and settings is not measured again (`--again` does), so an interrupted
run continues. A goal that is missed is reported and is not an error; a benchmark that fails is.
At the end the figures and pictures of the pages in docs/ are made anew (`tools/fill_pages.py`).
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import RESULTS, ROOT, code_digest, command, find, shown, table

OUT = ROOT / "out" / "benchmarks"


@dataclass(frozen=True)
class Benchmark:
    """One file of results: a script and its flags; `quick` are those of a small size."""

    name: str
    minutes: float
    """On two idle cores."""
    flags: str = ""
    quick: str = ""
    script: str = ""
    derived: bool = False
    """Computed from other files, which may have changed: always run."""

    @property
    def path(self) -> Path:
        """Return the script."""
        return ROOT / (self.script or f"benchmarks/{self.name}.py")

    def words(self, quick: bool) -> list[str]:
        """Return the script and its flags."""
        return [str(self.path), *(self.quick if quick else self.flags).split()]

    def is_done(self, result: Path, quick: bool) -> bool:
        """Tell whether a file has figures of this very code and these settings."""
        try:
            content = json.loads(result.read_text())
        except (OSError, ValueError):
            return False
        expected = (command(self.words(quick)), code_digest(self.path))
        return not self.derived and (content.get("command"), content.get("code")) == expected


@dataclass(frozen=True)
class Goal:
    """A figure and its bound. A star in `figure` stands for every name; then the worst counts."""

    result: str
    figure: str
    text: str
    at_most: float | None = None
    at_least: float | None = None

    def measured(self, figures: Any) -> float | None:
        """Return the figure that counts, or None if the file has none."""
        found = [float(value) for value in find(figures, self.figure.split("/"))]
        worst = max if self.at_most is not None else min
        return worst(found) if found else None

    def met(self, value: float) -> bool:
        """Tell whether a figure keeps within the bound."""
        return (self.at_most is None or value <= self.at_most) and (
            self.at_least is None or value >= self.at_least
        )

    @property
    def bound(self) -> str:
        """Return the bound in words."""
        return f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:g}"


PROFILE, PRECISION = "--profile video --batch", "studies/precision/precision.py"
FULL = "studies/full_evaluation"
MEMORY = "--seconds 0 --rounds 0 --steady"
SUITE = (
    Benchmark("samples", 0.8, quick="--calls 5"),
    Benchmark("corruptions", 2, quick="--seconds 0.1"),
    Benchmark("operation", 1, quick="--rounds 10"),
    Benchmark("serving", 8, quick="--clients 4 --seconds 6 --rounds 1 --round-seconds 2"),
    Benchmark("serving_memory", 8, f"{MEMORY} 480", f"{MEMORY} 60", "benchmarks/serving.py"),
    Benchmark("step", 40, quick="--batch 4 --rounds 1"),
    Benchmark("profile", 1, f"{PROFILE} 16", f"{PROFILE} 4", "benchmarks/step.py"),
    Benchmark("triage_cost", 2, quick="--rounds 1"),
    Benchmark("grid", 15, "--vit 3", "--samples 16"),
    Benchmark("store", 4, quick="--rows 64 --rounds 1"),
    Benchmark("loading", 8, quick="--rounds 1"),
    Benchmark("tokens", 6, "tokens", "tokens --samples 64", PRECISION),
    Benchmark("encoders", 10, quick="--batches 4 --rounds 1"),
    Benchmark("encoder_effect", 6, "encoders", "encoders --samples 64", PRECISION),
    Benchmark("ranks", 2, quick="--rounds 1"),
    Benchmark("growth", 4, quick="--rounds 2 --streams 1 --samples 32"),
    Benchmark("arithmetic", 0.5, script=f"{FULL}/arithmetic.py"),
    Benchmark("scaling", 0.2, script=f"{FULL}/scaling.py", derived=True),
)
STEP = "DASP step relative to a plain forward pass, ViT-B, batch"
ANEW = "clock/times_as_long/corrupt and encode in every run"
REAL_TIME = "slowest sound corruption, relative to real time"
SPEED, OTHERS = "times_the_plain_speed", "other frame corruptions, relative to plain code"
GOALS = (
    *(
        Goal("step", f"batch {size}/{figure}", f"{STEP} {size}: {text}", bound)
        for size in (16, 64)
        for figure, text, bound in (
            ("stream/ratio", "the paper's stream", 1.25),
            ("*/ratio", "most expensive case", 1.25),
            ("*/memory", "memory, most expensive case", 1.3),
        )
    ),
    Goal("grid", ANEW, "comparison without the store, built-in model", at_least=5),
    Goal("grid", "vit/store/ratio", "encoding in every run, ViT-B, estimated", at_least=5),
    Goal("store", "read, cold/store/ratio", "reading the store relative to a plain file", 1.25),
    Goal("store", "write/store/ratio", "writing the store relative to a plain file", 1.25),
    Goal("growth", "stream/fits/*/deviation", "stream length: deviation from a line", 0.1),
    Goal("growth", "stream_memory/fits/*/exponent", "memory over a stream: exponent", 0.01),
    Goal("growth", "batch/fits/*/deviation", "batch size: deviation from a line", 0.1),
    Goal("growth", "batch_memory/fits/*/deviation", "batch memory: deviation from a line", 0.1),
    Goal("growth", "width/fits/*/deviation", "width: deviation from a line in D²", 0.1),
    Goal("growth", "modalities/fits/*/deviation", "modalities: deviation from a line", 0.1),
    Goal("growth", "methods/fits/*/deviation", "number of methods: deviation from a line", 0.1),
    Goal("serving", "load/answers/not_promised", "served under load: answers not promised", 0),
    Goal("serving", "load/replay/differing", "served under load: answers a replay changes", 0),
    Goal("samples", "sounds/*/slowest_times_real_time", REAL_TIME, at_least=200),
    Goal("corruptions", f"{SPEED}/glass_blur", "glass blur, relative to plain code", at_least=30),
    Goal("corruptions", f"{SPEED}/others", OTHERS, at_least=3),
)


def goal_table(folder: Path) -> str:
    """Return every goal with what was measured."""
    rows = []
    for goal in GOALS:
        path = folder / f"{goal.result}.json"
        content = json.loads(path.read_text()) if path.exists() else {}
        value = goal.measured(content.get("figures"))
        verdict = "–" if value is None else "met" if goal.met(value) else "**missed**"
        rows.append((goal.text, goal.bound, "–" if value is None else shown(value), verdict))
    return table(("", "goal", "measured", ""), rows)


def run_one(one: Benchmark, folder: Path, quick: bool) -> bool:
    """Run a benchmark in a process of its own, and tell whether it succeeded."""
    words = [sys.executable, *one.words(quick), "--json", f"{folder / one.name}.json"]
    return subprocess.run(words, check=False).returncode == 0


def main() -> int:
    names = [one.name for one in SUITE]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="small sizes, to out/benchmarks")
    parser.add_argument("--again", action="store_true", help="measure what is done, too")
    options = parser.parse_args()
    for name in set(options.names) - set(names):
        parser.error(f"no benchmark '{name}': choose from {', '.join(names)}.")
    folder, failed = OUT if options.quick else RESULTS, []
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(SUITE, 1):
        if options.names and one.name not in options.names:
            continue
        if not options.again and one.is_done(folder / f"{one.name}.json", options.quick):
            print(f"{one.name}: kept, same code and same settings")
            continue
        minutes = "" if options.quick else f", about {one.minutes:g} minutes"
        print(f"{number} of {len(SUITE)}: {one.name}{minutes}", flush=True)
        if not run_one(one, folder, options.quick):
            failed.append(one.name)
    print(goal_table(folder))
    if not options.quick:
        subprocess.run([sys.executable, str(ROOT / "tools" / "fill_pages.py")], check=True)
    if failed:
        print(f"failed: {', '.join(failed)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
