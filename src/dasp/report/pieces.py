"""Pieces of the page: lists, figures, folded parts, and the part of one run."""

from collections.abc import Iterable
from html import escape

from dasp.report.figures import Figure, diagnosis_figure, run_figure
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import text
from dasp.report.render import to_html
from dasp.report.runs import Run
from dasp.report.tables import pretty, verdict


def bullets(entries: Iterable[str]) -> str:
    """Return a list of entries that are HTML already."""
    return f"<ul>{''.join(f'<li>{entry}</li>' for entry in entries)}</ul>"


def figure_html(figure: Figure) -> str:
    """Return a figure whose drawing scrolls sideways on a small screen."""
    svg, _, after = figure.drawing.partition("</svg>\n")
    return (
        f'<figure><div class="scroll">{svg}</svg></div>{after}'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def folded(title: str, parts: Iterable[str]) -> str:
    """Return parts that open on a click."""
    return f"<details><summary>{escape(title)}</summary>\n{''.join(parts)}</details>"


def run_html(run: Run) -> str:
    """Return the folded section of one run."""
    batches, rejected = len(run.batches.right), [r for r in run.batches.rejected if r]
    facts = [
        f"{run.right:,} of {run.seen:,} right",
        f"{run.updates} updates in {batches} batches, {run.rejections} rejected",
        *(f"rejected: {reason}" for reason in dict.fromkeys(rejected)),
        f"model {text(run.model)}",
        f"seconds {text(run.measured.get('seconds', {}))}",
        f"finished {run.measured.get('finished', 'at an unknown time')}",
        f"result {run.key}",
        *([f"skipped: {text(list(run.skipped))}"] if run.skipped else []),
    ]
    diagnosis = diagnosis_figure(run)
    parts = [bullets(escape(fact) for fact in facts), figure_html(run_figure(run))]
    parts += [figure_html(diagnosis)] if diagnosis else []
    parts.append(to_html(_domains(run)))
    title = f"{run.label}, {pretty(run.protocol)}, {run.replicate_name}: {run.accuracy:.2f} %"
    return folded(title, parts)


def _domains(run: Run) -> Table:
    """Return accuracy, updates and diagnosis of one run, domain by domain."""
    rows = []
    for domain in run.domains:
        here = slice(domain.first_batch, domain.first_batch + domain.batches)
        named = [names for names in (run.batches.biased or [])[here] if names is not None]
        hits = sum(verdict(names, domain.damaged) == "right" for names in named)
        flagged = sum(bool(names) for names in named)
        share = 100 * domain.right / domain.seen if domain.seen else None
        values = [
            Quantity(share, digits=2),
            Quantity(sum(run.batches.updated[here]), digits=0),
            Quantity(flagged if named else None, digits=0),
            Quantity(hits if named else None, digits=0),
            Quantity(domain.batches, digits=0),
        ]
        rows.append((Cell(domain.name), *(Cell(quantities=(value,)) for value in values)))
    titles = ("accuracy, %", "updates", "something named", "rightly named", "batches")
    columns = (Column("domain"), *(Column(title, ("value",)) for title in titles))
    return Table("domains", "Domain by domain, counts of batches", columns, tuple(rows))
