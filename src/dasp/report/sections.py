"""The sections of a report, one per plan, and the tables and figures that each shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from dasp.bench.results import PlanRecord, Result, ResultFolder
from dasp.core.errors import InputError
from dasp.report import figures, published, tables
from dasp.report.compare import PlanRun, RunGroup, group_runs, streams_of
from dasp.report.figures import Chart, Looks
from dasp.report.formats import Table
from dasp.report.frame import leftover, slug

TOGETHER, DETAILS = "together", "details"
BY_GROUP = ("comparison", "published", "forgetting", "sensitivity", DETAILS)
BY_SECTION = ("robustness", "stretches", "diagnosis", "batch_size", "efficiency", TOGETHER)
FOLDED = ("Accuracy by domain", "Options", "Every run")  # they open on a click
Item = Table | Chart
Items = Sequence[Item | None]


@dataclass(frozen=True)
class Part:
    """Tables and figures under one heading."""

    title: str
    items: Sequence[Item]
    folded: bool


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
        asked = list(dict.fromkeys(self.plan.show))
        unknown = [name for name in asked if name not in BY_GROUP + BY_SECTION]
        self.notes.extend(self.unfinished)
        self.notes.extend(f"this version cannot show {name!r}." for name in unknown)
        self.notes.extend(note for group in self.groups for note in group.notes)
        for name in asked if self.name == TOGETHER else [*asked, DETAILS]:
            try:
                for title, group, items in _parts(name, self):
                    known = [i for i in items if isinstance(i, Chart) or (i and i.rows)]
                    if group:  # one of several: the name says how it differs
                        known = [replace(i, name=f"{slug(group)}-{i.name}") for i in known]
                    heading = f"{title}: {group}" if group else title
                    self.parts.extend([Part(heading, known, title in FOLDED)] if known else [])
            except InputError as error:  # the rest can still be shown
                self.notes.append(str(error))


def sections_of(found: ResultFolder) -> list[Section]:
    """Return one section per plan, in the order of the plans, and one of all other runs."""
    plans = [*found.plans, *_together(found.plans), *leftover(found)]
    have = [
        [(label, found.results[key]) for label, key in plan.rows if key in found.results]
        for plan in plans
    ]
    runs = [[PlanRun(label, r) for label, r in own if r.counts is not None] for own in have]
    beside = list({(run.label, run.key): run for own in runs for run in own}.values())
    grouped = [group_runs(own) for own in runs]  # which may tell the runs of one label apart
    apart = [label for groups in grouped for group in groups for label in group.labels]
    labels = [*(r.label for r in beside), *(n for own in have for n, _ in own), *apart]
    looks = figures.looks_of(labels)
    sections: list[Section] = []
    for plan, results, groups in zip(plans, have, grouped, strict=True):
        taken = {section.name for section in sections}
        tries = (slug(plan.name) + (f"-{n}" if n > 1 else "") for n in count(1))
        name = next(name for name in tries if name not in taken)
        costs = [(label, result) for label, result in results if result.counts is None]
        again = f"; run `{plan.command}` to finish" if plan.command else ""
        missing = len(plan.rows) - len(results)
        note = f"{plan.title}: {missing} of {len(plan.rows)} runs are missing{again}."
        notes = [note] if missing else []
        sections.append(Section(name, plan, groups, costs, beside, looks, notes))
        sections[-1].show()
    return sections


def _together(plans: Sequence[PlanRecord]) -> list[PlanRecord]:
    """Return a plan with the runs of all plans that ask to be shown together."""
    asked = [plan for plan in plans if TOGETHER in plan.show]
    rows = list(dict.fromkeys(row for plan in asked for row in plan.rows))
    about = f"All streams of these plans: {', '.join(plan.title for plan in asked)}."
    record = PlanRecord(TOGETHER, "All streams together", about, ["robustness"], "", rows)
    return [record] if len(asked) > 1 else []


def _parts(name: str, section: Section) -> Iterator[tuple[str, str, Items]]:
    """Yield heading, name of the group, tables and figures of what a plan's `show` names."""
    groups, looks, costs = section.groups, section.looks, section.costs
    match name:
        case "robustness":
            yield "Robustness", "", tables.robustness_tables(streams_of(groups))
        case "stretches":
            yield "Clean stretches", "", [tables.stretches_table(streams_of(groups))]
        case "diagnosis":
            yield "Diagnosis", "", [tables.diagnosis_by_stream_table(streams_of(groups))]
        case "batch_size":
            charts = figures.batch_size_charts(groups, looks)
            yield "Batch size", "", [*charts, tables.batch_size_table(groups)]
        case "efficiency" if costs:
            both = [tables.efficiency_table(costs, section.beside), tables.passes_table(costs)]
            yield "Efficiency", "", both
    for group in groups:
        for title, items in _group_parts(name, group, looks):
            yield title, group.name, items


def _group_parts(name: str, group: RunGroup, looks: Looks) -> Iterator[tuple[str, Items]]:
    match name:
        case "comparison":
            yield (
                "Comparison",
                [
                    tables.main_table(group),
                    figures.overview_chart(group, looks),
                    tables.diagnosis_table(group),
                    # of many settings, each in full would be too much
                    None if group.name else figures.stream_chart(group, looks),
                ],
            )
            yield "Accuracy by domain", [tables.domain_table(group, p) for p in group.protocols]
            yield "On the same samples", [tables.paired_table(group), tables.rivals_table(group)]
        case "published":
            found = [published.published_table(group, protocol) for protocol in group.protocols]
            yield "Beside published results", found
        case "forgetting":
            yield "Forgetting", [tables.forgetting_table(group)]
        case "sensitivity":
            charts = figures.sensitivity_charts(group, looks)
            yield "Sensitivity", [*charts, tables.sensitivity_table(group)]
        case "details":
            yield "Options", [tables.options_table(group)]
            yield "Every run", [tables.runs_table(group)]
