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

    @property
    def path(self) -> Path:
        """Return the script."""
        return HERE / f"{self.script or self.name}.py"

    def is_done(self, result: Path, quick: bool) -> bool:
        """Tell whether a file has figures of this very code and these settings."""
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
        found.append((goal, goal.measured(read(path)["figures"]) if path.exists() else None))
    return found


SUITE = (
    Benchmark("samples", 0.5, quick=("--calls", "5"), quick_minutes=0.2),
    Benchmark("corruptions", 2.0, quick=("--seconds", "0.1"), quick_minutes=0.3),
    Benchmark("operation", 1.0, quick=("--rounds", "10"), quick_minutes=0.3),
)

GOALS = (
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
