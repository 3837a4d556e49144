"""What a section shows beside the comparison: forgetting, sensitivity, indicators, costs."""

from dasp.report.batch_size import batch_size_figures, batch_size_table
from dasp.report.diagnosis_rates import rates_table
from dasp.report.diagnosis_sizes import sizes_table
from dasp.report.efficiency_figure import efficiency_figures
from dasp.report.efficiency_tables import efficiency_table, passes_table
from dasp.report.flag_figures import flag_figures
from dasp.report.flag_tables import flag_tables
from dasp.report.flags import flag_groups
from dasp.report.forgetting import forgetting_figure, forgetting_table
from dasp.report.groups import Group
from dasp.report.indicator_figures import indicator_figures
from dasp.report.indicator_tables import indicator_tables
from dasp.report.indicators import indicator_groups
from dasp.report.parts import Part, known
from dasp.report.sections import Section
from dasp.report.sensitivity import sensitivity_figures, sensitivity_table


def forgetting(group: Group) -> list[Part]:
    """Return what each method forgot of clean data, stream by stream."""
    figures = [forgetting_figure(group, protocol) for protocol in group.protocols]
    return [Part("Forgetting", known([forgetting_table(group), *figures]))]


def sensitivity(group: Group) -> list[Part]:
    """Return how accuracy depends on the options that were varied."""
    figures = sensitivity_figures(group.runs)
    tables = [sensitivity_table(group.runs)] if figures else []
    return [Part("Sensitivity", [*figures, *tables])]


def batch_size(section: Section) -> list[Part]:
    """Return how accuracy depends on the size of a batch."""
    figures = batch_size_figures(section.runs)
    tables = [batch_size_table(section.runs)] if figures else []
    return [Part("Size of a batch", [*figures, *tables])]


def diagnosis(section: Section) -> list[Part]:
    """Return how often the diagnosis is right, by stream and by the size of a batch."""
    return [Part("Diagnosis", known([sizes_table(section), rates_table(section)]))]


def indicators(section: Section) -> list[Part]:
    """Return what source models show under shift, data set by data set."""
    groups = indicator_groups(section.indicators)
    parts = [
        Part("What the source models show", [*indicator_figures(views), *indicator_tables(views)])
        for views in groups
    ]
    several = len(groups) > 1
    return [part.of_setting(f"data {n}") if several else part for n, part in enumerate(parts, 1)]


def flags(section: Section) -> list[Part]:
    """Return what each indicator flags, data set by data set."""
    groups = flag_groups(section.flags)
    parts = [Part("What each indicator flags", [*flag_tables(g), *flag_figures(g)]) for g in groups]
    several = len(groups) > 1
    return [part.of_setting(f"data {n}") if several else part for n, part in enumerate(parts, 1)]


def efficiency(section: Section) -> list[Part]:
    """Return what each method costs, beside its accuracy in the runs of the folder."""
    found = section.efficiencies
    if not found:
        return []
    tables = [efficiency_table(found, section.beside), passes_table(found)]
    return [Part("Efficiency", [*efficiency_figures(found, section.beside), *tables])]
