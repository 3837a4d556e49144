"""Check every file of a data set before hours are spent on it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dasp.core.errors import DataError, failure_lines
from dasp.core.extras import extra
from dasp.core.progress import with_bar
from dasp.data.clips import Clip, Manifest, Spec
from dasp.data.loading import run_jobs
from dasp.data.media import read_frame, read_wave


@dataclass
class CheckReport:
    """The content of a data set, and its problems as (file, reason)."""

    name: str
    digest: str
    clips: int
    per_class: dict[str, int]
    problems: list[tuple[str, str]] = field(default_factory=list)
    sample_rates: Counter[str] = field(default_factory=Counter)
    frame_sizes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether there are no problems."""
        return not self.problems

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report, problems last."""
        yield f"{self.name}: {self.clips} clips, {len(self.per_class)} classes"
        yield f"list        {self.digest[:16]}"
        yield f"per class   {_spread(list(self.per_class.values()))}"
        yield from (f"  {count:6d}  {name}" for name, count in self.per_class.items())
        yield f"sounds      {_counts(self.sample_rates)}; {_spread(self.seconds)} s"
        yield f"frames      {_counts(self.frame_sizes)}"
        yield f"problems    {len(self.problems)}"
        yield from (f"  {line}" for line in failure_lines(self.problems))


def check_tree(
    manifest: Manifest, spec: Spec | None = None, workers: int | None = None, show: bool = False
) -> CheckReport:
    """Read every sound and frame; report the problems, and counts other than those of a `spec`."""
    extra("soundfile")
    report = CheckReport(manifest.name, manifest.digest, len(manifest.clips), manifest.per_class())
    if spec is not None and (report.clips, len(report.per_class)) != spec[:2]:
        counts = f"{report.clips} clips of {len(report.per_class)} classes"
        fault = f"{counts}, but {spec.clips} clips of {spec.classes} classes are published"
        report.problems.append((str(manifest.root), fault))
    empty = [name for name, count in report.per_class.items() if count == 0]
    report.problems += [(name, "this class has no clips") for name in empty]
    results = run_jobs(_look, manifest.clips, workers)
    for found in with_bar(results, report.clips, "check", show):
        report.problems += found.problems
        report.sample_rates += found.sample_rates
        report.frame_sizes += found.frame_sizes
        report.seconds += found.seconds
    return report


def _look(clip: Clip) -> CheckReport:
    """Return the findings on one clip; nothing is counted of a sound without a header."""
    found = CheckReport(clip.id, "", 1, {})
    soundfile = extra("soundfile")
    try:
        info = soundfile.info(str(clip.wav))
        found.sample_rates[f"{info.samplerate} Hz x{info.channels}"] += 1
        found.seconds.append(float(info.duration))
    except (OSError, soundfile.SoundFileError):
        pass  # reported below
    for path in clip.files():
        try:
            if path == str(clip.wav):
                read_wave(path)
            else:
                found.frame_sizes["{}x{}".format(*read_frame(path).size)] += 1
        except DataError as error:
            found.problems.append((path, str(error)))
    return found


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counter.most_common(8)) or "none"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return f"{min(values):g} to {max(values):g}, mean {sum(values) / len(values):.4g}"
