"""The sections of a report, one per plan, and the tables and figures that each shows."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Self

from dasp.bench.results import PlanRecord, Result, ResultFolder
from dasp.core.errors import InputError
from dasp.report import figures, published, tables
from dasp.report.compare import PlanRun, RunGroup, group_runs, streams_of
from dasp.report.figures import Chart, Looks
from dasp.report.formats import Table
from dasp.report.frame import leftover

TOGETHER = "together"
Item = Table | Chart


@dataclass(frozen=True)
class Part:
    """Tables and figures under one heading; a folded part opens on a click."""

    title: str
    items: Sequence[Item]
    folded: bool = False

    @classmethod
    def of(cls, title: str, *items: Item | None, folded: bool = False) -> Self:
        """Leave out what could not be drawn, and tables without rows."""
        known = [item for item in items if isinstance(item, Chart) or (item and item.rows)]
        return cls(title, known, folded)


@dataclass(frozen=True)
class Section:
    """What was measured for one plan, and what is shown of it; `name` is that of its folder."""

    name: str
    plan: PlanRecord
    groups: Sequence[RunGroup]
    costs: Sequence[tuple[str, Result]]
    beside: Sequence[PlanRun]
    """All runs of the folder, for the accuracy of what is measured here."""
    looks: Looks
    """Of each label, the same in all sections."""
    unfinished: Sequence[str]
    """A note if runs of the plan are missing."""
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def runs(self) -> list[PlanRun]:
        """Return the runs of all groups."""
        return [run for group in self.groups for run in group.runs]

    @property
    def items(self) -> list[Item]:
        """Return all tables and figures, without their headings."""
        return [item for part in self.parts for item in part.items]

    def show(self) -> None:
        """Make the tables and figures, and the notes for a reader."""
        names = list(dict.fromkeys(self.plan.show))
        unknown = [f"this version cannot show {name!r}." for name in names if name not in SHOWN]
        self.notes[:] = [*self.unfinished, *unknown]
        self.notes.extend(note for group in self.groups for note in group.notes)
        details = [] if self.name == TOGETHER else [_by_group(_details)]
        for draw in (*(SHOWN[name] for name in names if name in SHOWN), *details):
            try:
                self.parts.extend(part for part in draw(self) if part.items)
            except InputError as error:  # the rest can still be shown
                self.notes.append(str(error))


Draw = Callable[[Section], Iterator[Part]]


def sections_of(found: ResultFolder) -> list[Section]:
    """Return one section per plan, in the order of the plans, and one of all other runs."""
    plans = [*found.plans, *_together(found.plans), *leftover(found)]
    have = [
        [(label, found.results[key]) for label, key in plan.rows if key in found.results]
        for plan in plans
    ]
    runs = [[PlanRun(label, r) for label, r in own if r.counts is not None] for own in have]
    beside = list({(run.label, run.key): run for own in runs for run in own}.values())
    looks = figures.looks_of([*(r.label for r in beside), *(n for own in have for n, _ in own)])
    sections: list[Section] = []
    for plan, results, own in zip(plans, have, runs, strict=True):
        taken = {section.name for section in sections}
        tries = (slug(plan.name) + (f"-{n}" if n > 1 else "") for n in count(1))
        name = next(name for name in tries if name not in taken)
        costs = [(label, result) for label, result in results if result.counts is None]
        again = f"; run `{plan.command}` to finish" if plan.command else ""
        missing, whole = len(plan.rows) - len(results), len(plan.rows)
        note = f"{plan.title}: {missing} of {whole} runs are missing{again}."
        unfinished = [note] if missing else []
        sections.append(Section(name, plan, group_runs(own), costs, beside, looks, unfinished))
        sections[-1].show()
    return sections


def _together(plans: Sequence[PlanRecord]) -> list[PlanRecord]:
    """Return a plan with the runs of all plans that ask to be shown together."""
    asked = [plan for plan in plans if TOGETHER in plan.show]
    rows = list(dict.fromkeys(row for plan in asked for row in plan.rows))
    about = f"All streams of these plans: {', '.join(plan.title for plan in asked)}."
    record = PlanRecord(TOGETHER, "All streams together", about, ["robustness"], "", rows)
    return [record] if len(asked) > 1 else []


def slug(words: str) -> str:
    """Return words as part of a file name.

    >>> slug("Paper/Ablation, batch 64")
    'paper-ablation-batch-64'
    """
    return re.sub(r"[^a-z0-9._]+", "-", words.lower()).strip("-.")


def _comparison(group: RunGroup, looks: Looks) -> Iterator[Part]:
    first: list[Item | None] = [tables.main_table(group), figures.overview_chart(group, looks)]
    first.append(tables.diagnosis_table(group))
    if not group.name:  # of many settings, each in full would be too much
        first += [figures.stream_chart(group, looks), figures.diagnosis_chart(group)]
    yield Part.of("Comparison", *first)
    by_domain = [tables.domain_table(group, protocol) for protocol in group.protocols]
    yield Part.of("Accuracy by domain", *by_domain, folded=True)
    yield Part.of("On the same samples", tables.paired_table(group), tables.rivals_table(group))


def _published(group: RunGroup, _: Looks) -> Iterator[Part]:
    found = [published.published_table(group, protocol) for protocol in group.protocols]
    yield Part.of("Beside published results", *found, published.claims_table(group))


def _forgetting(group: RunGroup, looks: Looks) -> Iterator[Part]:
    chart = figures.forgetting_chart(group, looks)
    yield Part.of("Forgetting", tables.forgetting_table(group), chart)


def _sensitivity(group: RunGroup, looks: Looks) -> Iterator[Part]:
    charts = figures.sensitivity_charts(group, looks)
    yield Part.of("Sensitivity", *charts, tables.sensitivity_table(group))


def _details(group: RunGroup, _: Looks) -> Iterator[Part]:
    yield Part.of("Options", tables.options_table(group), folded=True)
    yield Part.of("Every run", tables.runs_table(group), folded=True)


def _by_group(draw: Callable[[RunGroup, Looks], Iterator[Part]]) -> Draw:
    """Draw each group of a section; of several groups, each is named by how it differs."""

    def draw_all(section: Section) -> Iterator[Part]:
        for group in section.groups:
            for part in draw(group, section.looks):
                if group.name:
                    items = [replace(i, name=f"{slug(group.name)}-{i.name}") for i in part.items]
                    part = Part(f"{part.title}: {group.name}", items, part.folded)
                yield part

    return draw_all


def _batch_size(section: Section) -> Iterator[Part]:
    charts = figures.batch_size_charts(section.groups, section.looks)
    yield Part.of("Batch size", *charts, tables.batch_size_table(section.groups))


def _efficiency(section: Section) -> Iterator[Part]:
    if section.costs:
        costs, runs = section.costs, section.beside
        charts = figures.efficiency_charts(costs, runs, section.looks)
        both = tables.efficiency_table(costs, runs), tables.passes_table(costs)
        yield Part.of("Efficiency", *charts, *both)


def _by_streams(title: str, draw: Callable[[Sequence[RunGroup]], Sequence[Table]]) -> Draw:
    return lambda section: iter([Part.of(title, *draw(streams_of(section.groups)))])


SHOWN: dict[str, Draw] = {
    "comparison": _by_group(_comparison),
    "published": _by_group(_published),
    "forgetting": _by_group(_forgetting),
    "sensitivity": _by_group(_sensitivity),
    "batch_size": _batch_size,
    "robustness": _by_streams("Robustness", tables.robustness_tables),
    TOGETHER: lambda _: iter(()),  # has a section of its own
    "stretches": _by_streams("Clean stretches", lambda s: [tables.stretches_table(s)]),
    "diagnosis": _by_streams("Diagnosis", lambda s: [tables.diagnosis_by_stream_table(s)]),
    "efficiency": _efficiency,
}
"""What a plan's `show` can ask for."""
