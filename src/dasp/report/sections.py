"""The sections of a report, one per plan, and the tables and figures that each shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from dasp.bench.plan import SHOWN
from dasp.bench.results import PlanRecord, Result, ResultFolder
from dasp.core.progress import with_bar
from dasp.report import figures, published, tables
from dasp.report.compare import PlanRun, RunGroup, group_runs, streams_of
from dasp.report.figures import Chart, Looks
from dasp.report.formats import Table
from dasp.report.frame import leftover, slug

TOGETHER, DETAILS = "together", "details"
FOLDED = ("Accuracy by domain", "Options", "Every run")  # they open on a click
ONE_RUN = (
    "one run cannot rank these: each method was run with one source model and one seed (n = 1), so "
    "that small differences may be chance."
)
Item = Table | Chart
Items = Sequence[Item | None]


class Part(NamedTuple):
    """Tables and figures under one heading."""

    title: str
    items: Sequence[Item]
    folded: bool


@dataclass(frozen=True)
class Section:
    """What a report shows of one plan; `name` is that of its folder."""

    name: str
    plan: PlanRecord
    runs: Sequence[PlanRun]
    parts: Sequence[Part]
    notes: Sequence[str]
    unfinished: Sequence[str]  # a note if runs of the plan are missing; also among the notes

    @property
    def items(self) -> list[Item]:
        """Return all tables and figures, without their headings."""
        return [item for part in self.parts for item in part.items]


def sections_of(found: ResultFolder, show: bool = False) -> list[Section]:
    """Return one section per plan, in the order of the plans, and one of all other runs.

    With `show`, a bar tells how many are done.
    """
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
    sections: dict[str, Section] = {}
    every = list(zip(plans, have, grouped, strict=True))
    for plan, results, groups in with_bar(every, len(every), "compare", show):
        tries = (slug(plan.name) + (f"-{n}" if n > 1 else "") for n in count(1))
        name = next(name for name in tries if name not in sections)
        costs = [(label, result) for label, result in results if result.counts is None]
        again = f"; run `{plan.command}` to finish" if plan.command else ""
        missing = len(plan.rows) - len(results)
        note = f"{plan.title}: {missing} of {len(plan.rows)} runs are missing{again}."
        unfinished = [note] if missing else []
        unknown = [f"this version cannot show {n!r}." for n in plan.show if n not in SHOWN]
        notes = [*unfinished, *unknown, *(note for group in groups for note in group.notes)]
        if "comparison" in plan.show and any(map(_single, groups)):
            notes.append(ONE_RUN)
        parts = []
        for shown in dict.fromkeys(plan.show if name == TOGETHER else [*plan.show, DETAILS]):
            for title, group, items in _parts(shown, groups, costs, beside, looks):
                known = [item for item in items if isinstance(item, Chart) or (item and item.rows)]
                if group:  # one of several: the name says how it differs
                    known = [replace(i, name=f"{slug(group)}-{i.name}") for i in known]
                heading = f"{title}: {group}" if group else title
                parts += [Part(heading, known, title in FOLDED)] if known else []
        mine = [run for group in groups for run in group.runs]
        sections[name] = Section(name, plan, mine, parts, notes, unfinished)
    return list(sections.values())


def _single(group: RunGroup) -> bool:
    """Return whether several methods were run once each."""
    counts = [len(group.of(n, p)) for n in group.labels for p in group.protocols]
    return len(group.labels) > 1 and max(counts) == 1


def _together(plans: Sequence[PlanRecord]) -> list[PlanRecord]:
    """Return a plan with the runs of all plans that ask to be shown together."""
    asked = [plan for plan in plans if TOGETHER in plan.show]
    rows = list(dict.fromkeys(row for plan in asked for row in plan.rows))
    about = f"All streams of these plans: {', '.join(plan.title for plan in asked)}."
    record = PlanRecord(TOGETHER, "All streams together", about, ["robustness"], "", rows)
    return [record] if len(asked) > 1 else []


def _parts(
    name: str,
    groups: Sequence[RunGroup],
    costs: Sequence[tuple[str, Result]],
    beside: Sequence[PlanRun],
    looks: Looks,
) -> Iterator[tuple[str, str, Items]]:
    """Yield heading, name of the group, tables and figures of what a plan's `show` names.

    `beside` are all runs of the folder, for the accuracy of methods whose cost was measured.
    """
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
            both = [tables.efficiency_table(costs, beside), tables.passes_table(costs)]
            yield "Efficiency", "", both
    for group in groups:
        for title, items in _group_parts(name, group, looks):
            yield title, group.name, items


def _group_parts(name: str, group: RunGroup, looks: Looks) -> Iterator[tuple[str, Items]]:
    match name:
        case "comparison":
            both = [tables.main_table(group), figures.overview_chart(group, looks)]
            # of many settings, each in full would be too much
            stream = None if group.name else figures.stream_chart(group, looks)
            yield "Comparison", [*both, tables.diagnosis_table(group), stream]
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
