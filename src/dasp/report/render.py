"""The report as files: one HTML page, tables, figures, and a summary for the terminal.

The page opens without network. Sections are plain HTML and SVG; the page of a run is drawn by a
small script from numbers in the file, so that it can hold hundreds of runs.
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from rich.console import Console
from rich.markup import escape

from dasp.core.files import atomic_path
from dasp.core.progress import with_bar
from dasp.report.compare import PlanRun, pretty
from dasp.report.figures import DARK, Chart, stops
from dasp.report.formats import Table
from dasp.report.frame import damaged, text
from dasp.report.sections import Section

FACTS = ("method", "options", "model", "data", "severity", "batch_size", "source")


def write_page(
    sections: Sequence[Section],
    path: Path,
    command: str,
    warnings: Sequence[str],
    for_print: bool = False,
) -> None:
    """Write the report of these sections, made by `command`, as one HTML file.

    `warnings` and plans that are not finished come first. Below each figure are links to the files
    that `write_files` makes of it.
    """
    environment = Environment(
        loader=PackageLoader("dasp.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    page = environment.get_template("report.html.j2").render(
        sections=sections,
        warnings=[*warnings, *(note for section in sections for note in section.unfinished)],
        facts=_facts([run for section in sections for run in section.runs]),
        command=command,
        dark=DARK,
        endings=("svg", "pdf", "png") if for_print else ("svg",),
        run_data=run_data(sections),
    )
    with atomic_path(path) as part:
        part.write_text(page, encoding="utf-8")


def _facts(runs: Sequence[PlanRun]) -> list[str]:
    """Return how the results were made: data, models, machines and versions."""
    measured = [run.result.measured for run in runs]
    found = {
        "runs": [str(len({run.key for run in runs}))],
        "last finished": [max((str(own.get("finished", "")) for own in measured), default="")],
        "data": [text(run.config.data) for run in runs],
        "source models and seeds": [run.replicate_name for run in runs],
        "machines": [text(own.get("machine", {})) for own in measured],
        "versions": [text(own.get("versions", {})) for own in measured],
    }
    return [f"{k}: {'; '.join(dict.fromkeys(v)) or 'unknown'}" for k, v in found.items()]


def run_data(sections: Sequence[Section]) -> dict[str, Any]:
    """Return the numbers of every run for the script of the page, ready for JSON.

    Runs on the same stream share its domains.
    """
    streams: dict[str, int] = {}
    runs: dict[str, dict[str, Any]] = {}
    for place, section in enumerate(sections):
        for key, run in {run.key: run for run in section.runs}.items():
            if key not in runs:
                stream = json.dumps(_stream(run))
                runs[key] = _run(run) | {"stream": streams.setdefault(stream, len(streams))}
            runs[key]["sections"].append(place)
    titles = [(f"plan-{section.name}", section.plan.title) for section in sections]
    return {"sections": titles, "streams": [json.loads(stream) for stream in streams], "runs": runs}


def _stream(run: PlanRun) -> dict[str, Any]:
    domains = run.counts.domains
    return {
        "domains": [(d.name, damaged(d.name), d.first_batch, d.batches) for d in domains],
        "samples": [domain.seen for domain in domains],
        "stops": stops(run),
        "seen": run.counts.batches.seen,
    }


def _run(run: PlanRun) -> dict[str, Any]:
    counts, config = run.counts, run.config
    scores, biased = counts.batches.scores or {}, counts.batches.biased or []
    facts = {
        **{name: getattr(config, name) for name in FACTS},
        "updates": f"{counts.updates} in {len(counts.batches.right)} batches",
        "rejected batches": {n: why for n, why in enumerate(counts.batches.rejected) if why},
        "rolled back": counts.rollbacks,
        "skipped clips": counts.skipped,
        **{name: value for name, value in run.result.measured.items() if name != "code"},
    }
    return {
        "label": run.label,
        "protocol": pretty(run.protocol),
        "replicate": run.replicate_name,
        "sections": [],
        "right": counts.batches.right,
        "domains": [domain.right for domain in counts.domains],
        "scores": {
            name: [
                round(v, 3) if v is not None and math.isfinite(v) else None for v in scores[name]
            ]
            for name in sorted(scores)
        },
        "named": {n: [b for b, own in enumerate(biased) if n in own] for n in sorted(scores)},
        "clean": counts.clean_after,
        "facts": {name: value for name, value in facts.items() if value},
    }


def write_files(
    sections: Iterable[Section], folder: Path, for_print: bool = False, show: bool = False
) -> None:
    """Write all tables (CSV, Markdown, LaTeX) and figures (SVG; for print also PDF and PNG).

    With `show`, a bar tells how many are done.
    """
    items = [(section.name, item) for section in sections for item in section.items]
    for name, item in with_bar(items, len(items), "write", show):
        place = folder / ("figures" if isinstance(item, Chart) else "tables") / name
        files = item.files(for_print) if isinstance(item, Chart) else item.files()
        for ending, content in files.items():
            with atomic_path(place / f"{item.name}.{ending}") as part:
                part.write_bytes(content)


def print_summary(sections: Iterable[Section], page: Path, warnings: Sequence[str]) -> None:
    """Print the first table of each section, all notes, and where the page is."""
    console = Console()
    notes = list(warnings)
    for section in sections:
        console.rule(f"[bold]{escape(section.plan.title)}", align="left", style="dim")
        first = next((item for item in section.items if isinstance(item, Table)), None)
        if first is not None:
            console.print(first.caption, style="dim", highlight=False, markup=False)
            console.print(first.to_rich())
        console.print()
        notes += section.notes
    for note in notes:
        console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
    address = page.resolve().as_uri()
    path = f"report: [link={address}]{escape(str(page))}[/link]"
    console.print(path, highlight=False, soft_wrap=True)
