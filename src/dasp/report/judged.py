"""The streams of a section side by side, whatever their settings: gains, averages and floors."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from dasp.report.grid import Quantity
from dasp.report.groups import Group, mean_std
from dasp.report.runs import CLEAN, Run
from dasp.report.sections import setting_names
from dasp.report.tables import Values, accuracies, pretty

HARM = 0.5  # points below Source; so much may be chance, more is harm
OURS = "dasp"


@dataclass(frozen=True)
class Stream:
    """One protocol in one setting; `name` tells it from the others of its section."""

    name: str
    protocol: str
    group: Group

    @property
    def votes(self) -> bool:
        """Say whether it counts in an average: clean data have no vote, here as elsewhere."""
        return self.protocol != CLEAN

    def runs(self, label: str) -> list[Run]:
        """Return the replicates of one label."""
        return self.group.of(label, self.protocol)

    def gains(self, label: str) -> Values:
        """Return the gain over Source of each replicate that both ran; none for Source itself."""
        source = self.group.source_label
        return {} if source in (None, label) else self.over(label, source)

    def over(self, label: str, other: str | None) -> Values:
        """Return the accuracy minus that of another label, by replicate."""
        base = accuracies(self.group, other, self.protocol) if other is not None else {}
        mine = accuracies(self.group, label, self.protocol)
        return {key: value - base[key] for key, value in mine.items() if key in base}

    def gain(self, label: str) -> Quantity:
        """Return the mean gain over Source and its spread."""
        return Quantity(*mean_std(self.gains(label).values()), signed=True)


def streams_of(groups: Sequence[Group]) -> list[Stream]:
    """Return the streams of all groups; one protocol in several settings is named by them."""
    names = setting_names(groups)
    pairs = [(p, group, s) for group, s in zip(groups, names, strict=True) for p in group.protocols]
    often = [protocol for protocol, _, _ in pairs]
    return [
        Stream(f"{pretty(p)} ({s})" if often.count(p) > 1 else pretty(p), p, group)
        for p, group, s in pairs
    ]


def labels_of(streams: Sequence[Stream]) -> list[str]:
    """Return the labels of all streams, in the usual order."""
    groups = {id(stream.group): stream.group for stream in streams}
    return Group([run for group in groups.values() for run in group.runs]).labels


def adapting(streams: Sequence[Stream]) -> list[str]:
    """Return the labels that have a gain over Source somewhere."""
    return [label for label in labels_of(streams) if any(s.gains(label) for s in streams)]


def ours(streams: Sequence[Stream]) -> list[str]:
    """Return the labels that are DASP, with whatever options."""
    return [
        label
        for label in adapting(streams)
        if any(run.method == OURS for stream in streams for run in stream.runs(label))
    ]


def average(streams: Sequence[Stream], label: str) -> Quantity:
    """Return the mean gain over the streams with a vote, each with the same weight.

    Unknown if the label lacks a stream. The spread is that of the replicates' own averages,
    where every replicate ran all streams.
    """
    each = [stream.gains(label) for stream in voting(streams)]
    if not each or not all(each):
        return Quantity(None, signed=True)
    keys = sorted(each[0])
    if any(sorted(values) != keys for values in each):
        return Quantity(fmean(fmean(values.values()) for values in each), signed=True)
    own = [fmean(values[key] for values in each) for key in keys]
    return Quantity(*mean_std(own), signed=True)


def voting(streams: Sequence[Stream]) -> list[Stream]:
    """Return the streams that an average is over: all but clean ones, if there are any."""
    return [stream for stream in streams if stream.votes] or list(streams)


def floor(streams: Sequence[Stream], label: str) -> tuple[Quantity, str]:
    """Return the lowest mean gain of a label, and the name of that stream."""
    found = [(stream.gain(label), stream.name) for stream in streams]
    known = [(gain.value, gain, name) for gain, name in found if gain.value is not None]
    _, gain, name = min(known, key=lambda entry: entry[0])
    return gain, name


def harms(gain: Quantity) -> bool:
    """Say whether a gain lies more than `HARM` below Source, before rounding."""
    return gain.value is not None and gain.value < -HARM


def harmed(streams: Sequence[Stream], label: str) -> list[Stream]:
    """Return the streams on which a label does harm."""
    return [stream for stream in streams if harms(stream.gain(label))]


def several(count: int) -> str:
    """Return a number of streams in words.

    >>> several(1), several(12)
    ('one stream', '12 streams')
    """
    return "one stream" if count == 1 else f"{count} streams"
