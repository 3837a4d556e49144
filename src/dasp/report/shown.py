"""What a section shows, by the names that plans use; page, files and terminal draw the same.

To show something more, add a line to `SHOWN`: a name, and functions of the section.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dasp.core.errors import InputError
from dasp.report.comparison import (
    beside_published,
    comparison,
    given,
    same_samples,
    single_runs,
)
from dasp.report.finding import finding
from dasp.report.groups import Group
from dasp.report.paired import paired_note
from dasp.report.parts import Part
from dasp.report.robustness import robustness
from dasp.report.sections import STREAMS, Section, setting_names
from dasp.report.stretches import stretches
from dasp.report.studies import (
    batch_size,
    diagnosis,
    efficiency,
    flags,
    forgetting,
    indicators,
    sensitivity,
)

Show = Callable[[Section], list[Part]]


def by_group(draw: Callable[[Group], Sequence[Part]]) -> Show:
    """Draw each group of a section; where there are several, each is named by what differs."""

    def draw_all(section: Section) -> list[Part]:
        names = setting_names(section.groups)
        pairs = zip(section.groups, names, strict=True)
        return [part.of_setting(name) for group, name in pairs for part in draw(group)]

    return draw_all


SHOWN: dict[str, tuple[Show, ...]] = {
    "comparison": (by_group(comparison), by_group(same_samples)),
    "published": (by_group(beside_published),),
    "forgetting": (by_group(forgetting),),
    "sensitivity": (by_group(sensitivity),),
    "batch_size": (batch_size,),
    "robustness": (robustness,),
    "together": (),  # a section of its own, of all plans that ask for it
    "stretches": (stretches,),
    "diagnosis": (diagnosis,),
    "indicators": (indicators,),
    "flags": (flags,),
    "efficiency": (efficiency,),
}
ALWAYS: tuple[Show, ...] = (by_group(given), by_group(single_runs))


@dataclass(frozen=True)
class Shown:
    """A section with all that is drawn and said of it."""

    section: Section
    parts: Sequence[Part]
    finding: str
    notes: Sequence[str]


def show(section: Section) -> Shown:
    """Draw a section, once for the page, the files and the terminal."""
    parts, notes = [], _notes(section)
    asked = [draw for name in section.asked for draw in SHOWN.get(name, ())]
    always = ALWAYS if section.plan.kind == STREAMS else ()
    for draw in (*asked, *always):
        try:
            parts += [part for part in draw(section) if part.items]
        except InputError as error:  # the rest can still be shown
            notes.append(str(error))
    return Shown(section, parts, finding(section), notes)


def _notes(section: Section) -> list[str]:
    """Return what a reader should know before trusting a section."""
    notes = []
    if section.missing:
        again = f"; run `{section.plan.command}` to finish" if section.plan.command else ""
        notes.append(f"{section.missing} of {len(section.plan.files)} runs are missing{again}.")
    notes += [f"this version cannot show {name!r}." for name in section.asked if name not in SHOWN]
    notes += [note for group in section.groups for note in group.notes]
    pairs = section.groups if "comparison" in section.asked else ()
    return notes + [note for note in map(paired_note, pairs) if note is not None]
