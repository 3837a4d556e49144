"""Make the leaderboard of docs/leaderboard.md from every folder of results in results/.

    python tools/fill_pages.py              # writes it, with all other pages made of results

One table per data set, stream and number of samples per domain, so that all rows of a table are of
the same samples: first the largest number, then each smaller one that has a method which the larger
ones lack. A row comes from one plan; runs in batches nearest to 64 count. If a plan has several
rows of one method, the one that has the method's name counts, else the first.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dasp.bench.plan import plan_names
from dasp.bench.results import PlanRecord, Result, read_folder
from dasp.report.compare import SOURCE, Comparison, PlanRun, RunGroup, compare
from dasp.report.frame import CLEAN

ROOT = Path(__file__).parents[1]
STREAM, BATCH = "interleaved", 64
ELSEWHERE = ("--results", "--store", "--store-gib", "--workers", "--methods", "--again")
PLACES = ("--root", "--noise-dir", "--frost-dir")
HEADER = (
    "method", "accuracy", "gain", "95% interval", "gain on clean data", "settings", "command",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A method on a data set: its runs on one stream, those of Source beside them, and the plan."""

    plan: PlanRecord
    runs: Sequence[PlanRun]  # one per source model and seed
    source: Sequence[PlanRun]
    clean: Comparison | None

    @property
    def stream(self) -> str:
        """Return the first part of the heading that the row stands under: data set and stream."""
        config = self.runs[0].config
        kind, people = config.data.get("flavour", "balanced"), config.data.get("people")
        name = f"{config.data['name']}{'' if kind == 'balanced' else f', flavour {kind}'}"
        return f"{name}{f', people {people}' if people else ''}: {config.protocol}"

    @property
    def samples(self) -> int:
        """Return the number of samples per domain, the second part of the heading."""
        return int(self.runs[0].config.data["samples"])

    @property
    def rank(self) -> tuple[int, bool]:
        """Return what decides among several entries of one method; the largest one counts."""
        config = self.runs[0].config
        return -abs(config.batch_size - BATCH), self.runs[0].label == config.method

    @property
    def method(self) -> str:
        """Return the registered name of the method, or the file and class of another."""
        return self.runs[0].config.method.rpartition("/")[2]

    @property
    def gain(self) -> Comparison:
        """Return the difference from Source on the same samples, models and seeds."""
        found = _against_source([*self.source, *self.runs], self.runs[0].label)
        assert found is not None
        return found

    def cells(self) -> list[str]:
        """Return the row."""
        run, gain = self.runs[0], self.gain
        accuracy = sum(own.accuracy for own in self.runs) / len(self.runs)
        spread = f" ± {gain.spread:.2f}" if len(self.runs) > 1 else ""
        clean = "–" if self.clean is None else _signed(self.clean.difference)
        return [
            self.method if self.method == run.label else f"{self.method} ({run.label})",
            f"{accuracy:.2f}",
            f"{_signed(gain.difference)}{spread}",
            f"[{_signed(gain.low)}, {_signed(gain.high)}]",
            clean,
            self.settings,
            f"`{self.command}`",
        ]

    @property
    def settings(self) -> str:
        """Return models, batch size, severity, rate and samples fitted with, in words."""
        run = self.runs[0].config
        models = len({own.replicate[1] for own in self.runs})
        words = [f"{models} model{'s' * (models > 1)}", f"batch {run.batch_size}"]
        words += [f"severity {run.severity}"]
        words += [f"lr {run.options['lr']:g}"] if any(self._updates()) else []
        words += [f"fitted with {run.source['samples']}"] if run.source.get("samples") else []
        return ", ".join(words)

    def _updates(self) -> Iterator[int]:
        return (own.counts.updates for own in self.runs)

    @property
    def command(self) -> str:
        """Return the command that makes the row: of a plan run as it is, only for this method.

        DIR stands for where recordings lie. A plan of one's own, or one that flags have changed,
        has the command that was given.
        """
        flags = {word for word in shlex.split(self.plan.command) if word.startswith("--")}
        if self.plan.name not in plan_names() or not flags <= {*ELSEWHERE, *PLACES}:
            return self.plan.command
        places = [word for flag in PLACES if flag in flags for word in (flag, "DIR")]
        label = self.runs[0].label
        return shlex.join(["dasp", "bench", self.plan.name, *places, "--methods", SOURCE, label])


def leaderboard(folder: str) -> str:
    """Return a heading and a table per board, best method first."""
    text = []
    for (stream, samples), own in boards(entries(ROOT / folder)).items():
        ranked = sorted(own, key=lambda entry: -entry.gain.difference)
        lines = [HEADER, ["---", *["---:"] * 4, "---", "---"], *(e.cells() for e in ranked)]
        text.append(f"\n## {stream}, {samples} samples per domain\n\n")
        text += [f"| {' | '.join(line)} |\n" for line in lines]
    return "".join([*text, "\n"])


def boards(found: Sequence[Entry]) -> dict[tuple[str, int], list[Entry]]:
    """Return the entries of each table by stream and samples per domain, fullest stream first."""
    kept: dict[tuple[str, int], dict[str, Entry]] = {}
    for entry in found:
        rows, method = kept.setdefault((entry.stream, entry.samples), {}), entry.method
        if method not in rows or entry.rank > rows[method].rank:
            rows[method] = entry
    shown: dict[tuple[str, int], list[Entry]] = {}
    seen: dict[str, set[str]] = {}
    for (stream, samples), rows in sorted(kept.items(), key=lambda item: (item[0][0], -item[0][1])):
        if rows.keys() - seen.setdefault(stream, set()):
            shown[stream, samples] = list(rows.values())
            seen[stream] |= rows.keys()
    return dict(sorted(shown.items(), key=lambda item: -len(seen[item[0][0]])))


def entries(folder: Path) -> list[Entry]:
    """Return every row of every plan that ran an interleaved stream with Source beside it."""
    found = read_folder(folder)
    if found.warnings:
        raise SystemExit("\n".join(found.warnings))
    return [entry for plan in found.plans for entry in _of_plan(plan, found.results)]


def _of_plan(plan: PlanRecord, results: dict[str, Result]) -> Iterator[Entry]:
    groups: dict[tuple[object, ...], dict[str, list[PlanRun]]] = {}
    for label, key in dict.fromkeys(plan.rows):
        result = results.get(key)
        if result is not None and result.counts is not None:
            run, config = PlanRun(label, result), result.run
            setting = repr(config.data), config.batch_size, config.severity, config.protocol
            groups.setdefault(setting, {}).setdefault(label, []).append(run)
    for setting, rows in groups.items():
        source = rows.get(SOURCE, [])
        if not source or setting[-1].partition("/")[0] != STREAM:  # type: ignore[attr-defined]
            continue
        clean = groups.get((*setting[:-1], CLEAN), {})
        for label, runs in rows.items():
            if runs[0].config.method != SOURCE:
                both = [*clean.get(SOURCE, []), *clean.get(label, [])]
                yield Entry(plan, runs, source, _against_source(both, label))


def _against_source(runs: Sequence[PlanRun], label: str) -> Comparison | None:
    if label not in {run.label for run in runs}:
        return None
    group = RunGroup(runs)
    return compare(group, label, SOURCE, runs[0].protocol)


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")
