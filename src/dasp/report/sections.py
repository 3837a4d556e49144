"""The sections of a report: one a plan, and a last one of the runs that belong to no plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from dasp.report.efficiencies import Efficiency
from dasp.report.flags import Flags
from dasp.report.folder import Folder, PlanRecord
from dasp.report.groups import Group, group_runs, text
from dasp.report.indicators import Indicators
from dasp.report.parts import slug
from dasp.report.runs import Run

STREAMS, JUDGED, TOGETHER = "streams", "robustness", "together"


@dataclass(frozen=True)
class Section:
    """What was measured for one plan; `name` is fit for a folder, empty if there is no plan."""

    name: str
    plan: PlanRecord
    groups: Sequence[Group]
    indicators: Sequence[Indicators]
    flags: Sequence[Flags]
    efficiencies: Sequence[Efficiency]
    beside: Sequence[Run]  # all runs of the folder, for the accuracy of what is measured here
    missing: int  # files of the plan that are not there, or damaged

    @property
    def runs(self) -> list[Run]:
        """Return the runs of all groups."""
        return [run for group in self.groups for run in group.runs]

    @property
    def asked(self) -> list[str]:
        """Return the names of what is to be shown."""
        kind = [self.plan.kind] if self.plan.kind != STREAMS else []
        return list(dict.fromkeys([*self.plan.show, *kind]))


def sections_of(folder: Folder) -> list[Section]:
    """Return the sections of a folder, in the order of the plan records."""
    taken: set[str] = set()
    sections = []
    for plan in [*folder.plans, *_together(folder), *_leftover(folder)]:
        tries = (slug(plan.name) + (f"-{n}" if n > 1 else "") for n in count(1))
        name = next(name for name in tries if name not in taken)
        taken.add(name)
        sections.append(
            Section(
                name,
                plan,
                group_runs(folder.runs[f] for f in plan.files if f in folder.runs),
                [folder.indicators[f] for f in plan.files if f in folder.indicators],
                [folder.flags[f] for f in plan.files if f in folder.flags],
                [folder.efficiencies[f] for f in plan.files if f in folder.efficiencies],
                beside=list(folder.runs.values()),
                missing=len(set(plan.files) - folder.files),
            )
        )
    return sections


def _together(folder: Folder) -> list[PlanRecord]:
    """Return a plan of the streams of all plans that ask to be judged as a whole."""
    plans = [plan for plan in folder.plans if TOGETHER in plan.show]
    if len(plans) < 2:
        return []
    files = dict.fromkeys(name for plan in plans for name in plan.files)
    about = f"All streams of these plans at once: {', '.join(plan.title for plan in plans)}."
    return [PlanRecord("together", "All streams together", about, JUDGED, (), "", list(files))]


def _leftover(folder: Folder) -> list[PlanRecord]:
    """Return a plan that was never written down, of the files that no plan asked for."""
    files = sorted(folder.files - {name for plan in folder.plans for name in plan.files})
    if not files:
        return []
    kinds: dict[str, Mapping[str, object]] = {
        "comparison": folder.runs,
        "indicators": folder.indicators,
        "flags": folder.flags,
        "efficiency": folder.efficiencies,
    }
    show = [name for name, found in kinds.items() if not found.keys().isdisjoint(files)]
    if not folder.plans:
        return [PlanRecord("", "All runs", "", STREAMS, show, "", files)]
    about = "Runs in this folder that belong to none of the plans above."
    return [PlanRecord("other", "Other runs", about, STREAMS, show, "", files)]


def setting_names(groups: Sequence[Group]) -> list[str]:
    """Return what tells each group from the others, such as "severity 3"; one alone has no name."""
    settings = []
    for group in groups:
        run = group.runs[0]
        only = " ".join(run.corruptions) or "all"
        more = {"only": only, "batch": run.batch_size, "severity": run.severity}
        settings.append({**run.data, **more})
    names = dict.fromkeys(name for setting in settings for name in setting)
    differing = [n for n in names if len({text(s.get(n)) for s in settings}) > 1]
    return [", ".join(f"{n} {text(s.get(n))}" for n in differing) for s in settings]
