"""What `make benchmarks` runs, how long each takes, and the goals that the figures are held to."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import HERE, code_digest, command

RESULTS = HERE / "results"


@dataclass(frozen=True)
class Benchmark:
    """One file of results: a script and its words; `quick` are those for a look."""

    name: str
    minutes: float
    """On two cores that do nothing else."""
    words: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    quick_minutes: float = 1.0
    script: str = ""
    reckons: bool = False
    """Whether it only reckons with other files, which may have changed: then it is always run."""

    @property
    def path(self) -> Path:
        """Return the script."""
        return HERE / f"{self.script or self.name}.py"

    def is_done(self, result: Path, quick: bool) -> bool:
        """Tell whether a file has figures of this very code and these settings."""
        if self.reckons:
            return False
        try:
            content = read(result)
        except (OSError, ValueError):
            return False
        words = [str(self.path), *(self.quick if quick else self.words)]
        return (content.get("command"), content.get("code")) == (
            command(words),
            code_digest(self.path.stem),
        )


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


def find(figures: Any, path: Sequence[str]) -> Iterator[Any]:
    """Give what lies at a path of names, of which some may be stars."""
    if not path:
        yield figures
        return
    if isinstance(figures, dict):
        names = figures if path[0] == "*" else [path[0]] if path[0] in figures else []
        for name in names:
            yield from find(figures[name], path[1:])


def read(path: Path) -> dict[str, Any]:
    """Read a file of figures."""
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def judged(folder: Path) -> list[tuple[Goal, float | None]]:
    """Return every goal with what was measured; None where there is no figure yet."""
    found = []
    for goal in GOALS:
        path = folder / f"{goal.result}.json"
        found.append((goal, goal.measured(read(path).get("figures")) if path.exists() else None))
    return found


PROFILE = ("--profile", "video", "--batch", "16")
SUITE = (
    Benchmark("samples", 0.8, quick=("--calls", "5"), quick_minutes=0.2),
    Benchmark("corruptions", 2.0, quick=("--seconds", "0.1"), quick_minutes=0.3),
    Benchmark("operation", 1.0, quick=("--rounds", "10"), quick_minutes=0.3),
    Benchmark("step", 40.0, quick=("--batch", "4", "--rounds", "1")),
    Benchmark("profile", 1.0, PROFILE, (*PROFILE[:-1], "4"), script="step"),
    Benchmark("grid", 15.0, ("--vit", "3"), ("--samples", "16"), 2.0),
    Benchmark("store", 4.0, quick=("--rows", "64", "--rounds", "1"), quick_minutes=0.3),
    Benchmark("loading", 8.0, quick=("--rounds", "1"), quick_minutes=4.0),
    Benchmark("tokens", 6.0, quick=("--samples", "64")),
    Benchmark("encoders", 10.0, quick=("--batches", "4", "--rounds", "1"), quick_minutes=3.0),
    Benchmark("encoder_effect", 6.0, quick=("--samples", "64")),
    Benchmark("ranks", 2.0, quick=("--rounds", "1")),
    Benchmark("growth", 4.0, quick=("--rounds", "2", "--streams", "1", "--samples", "32")),
    Benchmark("arithmetic", 0.5),
    Benchmark("scaling", 0.2, reckons=True),
)

STEP = "a step of DASP next to a plain forward, ViT-B, batch"
GOALS = (
    *(
        goal
        for size in (16, 64)
        for goal in (
            Goal("step", f"batch {size}/stream/ratio", f"{STEP} {size}: the paper's stream", 1.25),
            Goal("step", f"batch {size}/*/ratio", f"{STEP} {size}: the dearest case", 1.25),
            Goal("step", f"batch {size}/*/memory", f"{STEP} {size}: memory, dearest case", 1.3),
        )
    ),
    Goal(
        "grid",
        "clock/times_as_long/corrupt and encode in every run",
        "the comparison without the store, built-in model",
        at_least=5,
    ),
    Goal("grid", "vit/store/ratio", "encoding in every run, ViT-B, reckoned", at_least=5),
    Goal("store", "read, cold/store/ratio", "reading the store next to a plain file", 1.25),
    Goal("store", "write/store/ratio", "writing the store next to a plain file", 1.25),
    Goal("growth", "stream/fits/*/deviation", "stream length: from a straight line", 0.1),
    Goal("growth", "stream_memory/fits/*/exponent", "memory along a stream: exponent", 0.01),
    Goal("growth", "batch/fits/*/deviation", "batch size: from a straight line", 0.1),
    Goal("growth", "batch_memory/fits/*/deviation", "memory of a batch: from a straight line", 0.1),
    Goal("growth", "width/fits/*/deviation", "width: from a line in its square", 0.1),
    Goal("growth", "modalities/fits/*/deviation", "modalities: from a straight line", 0.1),
    Goal("growth", "methods/fits/*/deviation", "methods compared: from a straight line", 0.1),
    Goal(
        "samples",
        "sounds/*/slowest_times_real_time",
        "slowest sound corruption, times faster than real time",
        at_least=200,
    ),
    Goal(
        "corruptions",
        "times_the_plain_speed/glass_blur",
        "glass blur, times the plain speed",
        at_least=30,
    ),
    Goal(
        "corruptions",
        "times_the_plain_speed/others",
        "the other frame corruptions, times the plain speed",
        at_least=3,
    ),
)
