"""What a section shows of one group: the comparison of its methods, in parts."""

from dasp.report.cost import cost_table
from dasp.report.dot_plots import corruption_figure, corruption_gain_figure
from dasp.report.figures import Figure, accuracy_figure, diagnosis_figure, gain_figure
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import Group, text
from dasp.report.overview import overview_figure
from dasp.report.paired_tables import paired_figure, paired_table, rival_table
from dasp.report.parts import Part, known
from dasp.report.published import claims_table, published_domains_table, published_table
from dasp.report.tables import corruption_table, diagnosis_table, main_table, pretty


def comparison(group: Group) -> list[Part]:
    """Return the main table, the figures of the group's own protocols, and tables by domain.

    The stream that tells most is drawn open, the others are folded.
    """
    stream = _telling(group)
    others = [protocol for protocol in group.protocols if protocol != stream]
    kinds = (accuracy_figure, gain_figure, corruption_figure, corruption_gain_figure)
    first = [
        main_table(group),
        overview_figure(group),
        diagnosis_table(group),
        accuracy_figure(group, stream),
        gain_figure(group, stream),
        _first_diagnosis(group, stream),
        corruption_figure(group, stream),
        corruption_gain_figure(group, stream),
    ]
    more = [kind(group, name) for name in others for kind in kinds]
    by_domain = [corruption_table(group, protocol) for protocol in group.protocols]
    return [
        Part("Comparison", known(first)),
        Part("Figures of the other protocols", known(more), folded=True),
        Part("Accuracy by domain, as tables", by_domain, folded=True),
    ]


def same_samples(group: Group) -> list[Part]:
    """Return the comparison sample by sample: over Source, and over the best rival."""
    items = [paired_table(group), rival_table(group), paired_figure(group, _telling(group))]
    return [Part("On the same samples", known(items))]


def beside_published(group: Group) -> list[Part]:
    """Return what papers published beside what was measured."""
    tables = [published_table(group, protocol) for protocol in group.protocols]
    by_domain = [published_domains_table(group, protocol) for protocol in group.protocols]
    return [
        Part("Beside published figures", known([*tables, claims_table(group)])),
        Part("Beside published figures, by domain", known(by_domain), folded=True),
    ]


def given(group: Group) -> list[Part]:
    """Return what each method was given and what it cost."""
    return [Part("Options and cost", [options_table(group), cost_table(group)], folded=True)]


def single_runs(group: Group) -> list[Part]:
    """Return the accuracy of every run, each with a link to its page."""
    return [Part("Every run", [runs_table(group)], folded=True)]


def options_table(group: Group) -> Table:
    """List the options that each method ran with; several lines where protocols differ."""
    rows: dict[tuple[str, str], list[str]] = {}
    for label in group.labels:
        for run in (run for protocol in group.protocols for run in group.of(label, protocol)):
            words = [f"{name} = {text(value)}" for name, value in run.options.items()]
            words += [f"fitted with {run.fitted} clean samples"] if run.fitted else []
            rows.setdefault((label, ", ".join(words)), []).append(run.protocol)
    cells = [
        (Cell(label), Cell(words or "none"), Cell(", ".join(map(pretty, dict.fromkeys(where)))))
        for (label, words), where in rows.items()
    ]
    columns = (Column("method"), Column("options"), Column("protocols"))
    return Table("options", "What each method was given", columns, tuple(cells))


def runs_table(group: Group) -> Table:
    """Accuracy of every run: a row a method and replicate, a column a protocol."""
    replicates = {run.replicate: run.replicate_name for run in group.runs}
    rows = []
    for label in group.labels:
        for replicate in sorted(replicates):
            cells = []
            for protocol in group.protocols:
                mine = [run for run in group.of(label, protocol) if run.replicate == replicate]
                value = Quantity(mine[0].accuracy if mine else None, digits=2)
                cells.append(Cell(quantities=(value,), run=mine[0].key if mine else ""))
            if any(cell.run for cell in cells):
                rows.append((Cell(label), Cell(replicates[replicate]), *cells))
    columns = (
        Column("method"),
        Column("model and seed"),
        *(Column(pretty(protocol), ("accuracy",)) for protocol in group.protocols),
    )
    caption = f"Accuracy in % of every run ({group.title})"
    return Table("runs", caption, columns, tuple(rows))


def _telling(group: Group) -> str:
    """Return the stream that tells most: interleaved, else the last protocol."""
    return "interleaved" if "interleaved" in group.protocols else group.protocols[-1]


def _first_diagnosis(group: Group, protocol: str) -> Figure | None:
    """Draw the diagnosis of one run, of DASP itself if it is there."""
    runs = [run for label in group.labels for run in group.of(label, protocol)[:1]]
    runs.sort(key=lambda run: (run.label != "dasp", run.method != "dasp"))
    return next((figure for figure in map(diagnosis_figure, runs) if figure is not None), None)
