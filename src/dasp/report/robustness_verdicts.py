"""What the streams say of each row of DASP, in sentences that say "fails" where it fails."""

from collections.abc import Sequence
from statistics import fmean

from dasp.report.grid import Quantity
from dasp.report.groups import PROTOCOLS, mean_std
from dasp.report.judged import (
    HARM,
    OURS,
    Stream,
    adapting,
    floor,
    harmed,
    ours,
    several,
    streams_of,
    voting,
)
from dasp.report.runs import CLEAN
from dasp.report.sections import Section

BATCH = 64  # of the paper's own protocols


def robustness_verdicts(section: Section) -> list[str]:
    """Return a sentence for each row of DASP: harm, rivals, and the paper's own protocols."""
    streams = [s for s in streams_of(section.groups) if s.group.source_label is not None]
    found = []
    for label in ours(streams):
        words = [_harm(streams, label), _rivals(streams, label), _paper(streams, label)]
        found.append(f"{label}: {'; '.join(word for word in words if word)}.")
    return found


def _harm(streams: Sequence[Stream], label: str) -> str:
    """Say on which streams a row does harm, the worst first."""
    ran = [stream for stream in streams if stream.gains(label)]
    short = "" if len(ran) == len(streams) else f", of {len(streams)} in the plan"
    bad = sorted(harmed(ran, label), key=lambda stream: stream.gain(label).value or 0.0)
    if not bad:
        gain, name = floor(ran, label)
        return (
            f"never more than {HARM} points below Source on {several(len(ran))}{short} "
            f"(floor {_number(gain.value)}, {name})"
        )
    each = ", ".join(f"{s.name} {_number(s.gain(label).value)}" for s in bad)
    where = f"{len(bad)} of {len(ran)} streams{short}"
    return f"fails on {where}, more than {HARM} points below Source: {each}"


def _rivals(streams: Sequence[Stream], label: str) -> str:
    """Say whether the average is above Source and every other method, on the streams both ran."""
    own = [stream.gain(label).value for stream in voting(streams)]
    ran = [value for value in own if value is not None]
    if not ran:
        return ""
    above = fmean(ran)
    if above <= 0:
        return f"its average {_number(above)} fails to be above Source"
    rivals = [name for name in adapting(streams) if name not in ours(streams)]
    pairs = {name: _averages(streams, label, name) for name in rivals}
    known = {name: pair for name, pair in pairs.items() if pair is not None}
    if not known:
        return f"its average {_number(above)} is above Source"
    lost = [
        f"{name} ({_number(mine)} against {_number(other)})"
        for name, (mine, other) in known.items()
        if mine <= other
    ]
    if lost:
        return f"its average fails to be above {', '.join(lost)}"
    near = min(known, key=lambda name: known[name][0] - known[name][1])
    mine, other = map(_number, known[near])
    return f"its average {mine} is above every other method (next: {near} {other})"


def _averages(streams: Sequence[Stream], label: str, rival: str) -> tuple[float, float] | None:
    """Return the mean gains of two labels over the streams that both ran; None if there is none."""
    pairs = [(stream.gain(label).value, stream.gain(rival).value) for stream in voting(streams)]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    return (fmean(a for a, _ in both), fmean(b for _, b in both)) if both else None


def _paper(streams: Sequence[Stream], label: str) -> str:
    """Say whether a row is no worse than plain DASP where the paper tests; empty if not run."""
    own = [
        s
        for s in streams
        if s.protocol in PROTOCOLS and s.protocol != CLEAN and s.group.runs[0].batch_size == BATCH
    ]
    if label == OURS:
        return ""
    each = {s.name: Quantity(*mean_std(s.over(label, OURS).values()), signed=True) for s in own}
    found = {name: gap for name, gap in each.items() if gap.value is not None}
    if not found:
        return ""
    words = ", ".join(f"{name} {gap.text}" for name, gap in found.items())
    worse = [name for name, gap in found.items() if (gap.rounded or 0.0) < 0]
    verdict = "fails to be as good as" if worse else "no worse than"
    return f"{verdict} {OURS} on the paper's own protocols ({words})"


def _number(value: float | None) -> str:
    return Quantity(value, digits=2, signed=True).text
