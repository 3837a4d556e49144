"""The report as one HTML file that needs nothing else: no network, no script."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from dasp.core.files import atomic_path
from dasp.report.dot_plots import corruption_figure, corruption_gain_figure
from dasp.report.figures import (
    Figure,
    accuracy_figure,
    diagnosis_figure,
    gain_figure,
)
from dasp.report.grid import Cell, Column, Table
from dasp.report.groups import Group, group_results, text
from dasp.report.pieces import bullets, figure_html, folded, run_html
from dasp.report.render import to_html
from dasp.report.runs import Result
from dasp.report.style import style_sheet
from dasp.report.tables import all_tables, pretty

TITLE = "Test-time adaptation: results"
READING = (
    "Accuracy is the share of all samples of a stream that were right, mean ±sample standard "
    "deviation over n runs (source models and seeds); with one run there is no ±. Below it stands "
    "the gain over Source, paired: the same model and seed. Bold: the best of a column, among "
    "methods with all the runs; ▼ and red: worse than not adapting at all. "
    "–: not run, or nothing to compare with."
)


def write_report(
    results: Iterable[Result],
    path: str | Path,
    title: str = TITLE,
    command: str = "",
    warnings: Sequence[str] = (),
) -> Path:
    """Write the report of these results to `path` and return it.

    Results of different data, samples, batch size or severity get sections of their own.
    `command` is what made the results; `warnings` are listed at the top.
    """
    groups = group_results(results)
    notes = [*warnings, *(note for group in groups for note in group.notes)]
    parts = [f"<h1>{escape(title)}</h1>", _notes(notes)]
    if len(groups) > 1:
        parts.append(
            "<p>These results were made with different settings; each has its own section, and "
            "nothing is averaged across them.</p>"
            + bullets(f'<a href="#g{n}">{escape(g.title)}</a>' for n, g in enumerate(groups))
        )
    parts.append(f'<p class="soft">{escape(READING)}</p>')
    parts += [_section(group, place) for place, group in enumerate(groups)]
    parts.append(_made_by(groups, command))
    target = Path(path)
    with atomic_path(target) as part:
        part.write_text(_page(title, "\n".join(parts)), encoding="utf-8")
    return target


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style_sheet()}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return f'<div class="warn"><p>Please note:</p>{bullets(escape(note) for note in notes)}</div>'


def _section(group: Group, place: int) -> str:
    """Return everything about one group."""
    tables = {table.name: to_html(table) for table in all_tables(group)}
    main = tables.pop("main")
    stream = "interleaved" if "interleaved" in group.protocols else group.protocols[-1]
    others = [protocol for protocol in group.protocols if protocol != stream]
    figures = [accuracy_figure(group, stream), gain_figure(group, stream)]
    figures += [_first_diagnosis(group, stream), corruption_figure(group, stream)]
    figures += [corruption_gain_figure(group, stream)]
    kinds = (accuracy_figure, corruption_figure, corruption_gain_figure)
    more = [kind(group, name) for name in others for kind in kinds]
    by_corruption = [tables.pop(f"by-corruption-{p.replace('/', '-')}") for p in group.protocols]
    return "\n".join(
        [
            f'<h2 id="g{place}">{escape(group.title)}</h2>',
            main,
            *tables.values(),
            "<h3>Figures</h3>",
            *_drawn(figures),
            folded("Figures of the other protocols", _drawn(more)) if more else "",
            folded("Accuracy by domain, as tables", by_corruption),
            "<h3>Options of each method</h3>",
            to_html(_options(group)),
            "<h3>Every run</h3>",
            *(
                run_html(run)
                for p in group.protocols
                for label in group.labels
                for run in group.of(label, p)
            ),
        ]
    )


def _drawn(figures: Iterable[Figure | None]) -> list[str]:
    return [figure_html(figure) for figure in figures if figure is not None]


def _first_diagnosis(group: Group, protocol: str) -> Figure | None:
    runs = [run for label in group.labels[::-1] for run in group.of(label, protocol)[:1]]
    known = [run for run in runs if run.method == "dasp"] + runs
    return next((figure for figure in map(diagnosis_figure, known) if figure is not None), None)


def _options(group: Group) -> Table:
    """List the options that each method ran with; several lines where protocols differ."""
    rows: dict[tuple[str, str], list[str]] = {}
    for label in group.labels:
        for run in (run for protocol in group.protocols for run in group.of(label, protocol)):
            words = ", ".join(f"{name} = {text(value)}" for name, value in run.options.items())
            rows.setdefault((label, words), []).append(run.protocol)
    cells = [
        (Cell(label), Cell(words or "none"), Cell(", ".join(map(pretty, dict.fromkeys(where)))))
        for (label, words), where in rows.items()
    ]
    columns = (Column("method"), Column("options"), Column("protocols"))
    return Table("options", "What each method was given", columns, tuple(cells))


def _made_by(groups: Sequence[Group], command: str) -> str:
    """Return how these results were made: command, models, machine and versions."""
    runs = [run for group in groups for run in group.runs]

    def distinct(values: Iterable[str]) -> str:
        return escape("; ".join(dict.fromkeys(values)) or "unknown")

    finished = sorted(str(run.measured.get("finished", "")) for run in runs)
    facts = [
        f"{len(runs)} runs, the last finished {escape(finished[-1] or 'at an unknown time')}",
        "data: " + distinct(text(run.data) for run in runs),
        "source models: " + distinct(str(run.model["name"]) for run in runs),
        "seeds: " + distinct(str(run.seed) for run in runs),
        "machine: " + distinct(text(run.measured.get("machine", {})) for run in runs),
        "versions: " + distinct(text(run.measured.get("versions", {})) for run in runs),
    ]
    facts += [f"command: <code>{escape(command)}</code>"] if command else []
    return f"<h2>How these results were made</h2>{bullets(facts)}"
