"""The report as files: one HTML page, tables, figures, and a summary for the terminal.

The page opens without network. Sections are plain HTML and SVG; the page of a run is drawn by a
small script from numbers in the file, so that it can hold hundreds of runs.
"""

import json
import math
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from rich.console import Console
from rich.markup import escape

from dasp.core.files import atomic_path
from dasp.report.compare import PlanRun, pretty
from dasp.report.figures import DARK, Chart, stops
from dasp.report.formats import Table
from dasp.report.frame import damaged, text
from dasp.report.sections import Section

TITLE = "Test-time adaptation: results"


def write_page(
    sections: Sequence[Section],
    path: Path,
    title: str = TITLE,
    command: str = "",
    warnings: Sequence[str] = (),
) -> Path:
    """Write the report of these sections as one HTML file and return its path.

    `command` is what made the report. `warnings` and plans that are not finished come first.
    """
    templates = files("dasp.report") / "templates"
    style = (templates / "report.css").read_text(encoding="utf-8")
    data = json.dumps(run_data(sections), separators=(",", ":"), allow_nan=False)
    environment = Environment(
        loader=PackageLoader("dasp.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template("report.html.j2").render(
        title=title,
        sections=sections,
        warnings=[*warnings, *(note for section in sections for note in section.unfinished)],
        facts=_facts([run for section in sections for run in section.runs]),
        command=command,
        style=Markup(style + DARK),
        run_data=Markup(data.replace("<", r"\u003c")),  # no tag can end the script that holds it
        script=Markup((templates / "runs.js").read_text(encoding="utf-8")),
    )
    with atomic_path(path) as part:
        part.write_text(page, encoding="utf-8")
    return path


def _facts(runs: Sequence[PlanRun]) -> list[str]:
    """Return how the results were made: data, models, machines and versions."""

    def distinct(values: Iterable[str]) -> str:
        return "; ".join(dict.fromkeys(values)) or "unknown"

    measured = [run.result.measured for run in runs]
    finished = max((str(own.get("finished", "")) for own in measured), default="")
    return [
        f"{len({run.key for run in runs})} runs, the last finished {finished or 'at unknown time'}",
        "data: " + distinct(text(run.config.data) for run in runs),
        "source models: " + distinct(run.config.model["name"] for run in runs),
        "seeds: " + distinct(str(run.config.seed) for run in runs),
        "machines: " + distinct(text(own.get("machine", {})) for own in measured),
        "versions: " + distinct(text(own.get("versions", {})) for own in measured),
    ]


def run_data(sections: Sequence[Section]) -> dict[str, Any]:
    """Return the numbers of every run for the script of the page, ready for JSON.

    What many runs share (domains of a stream, settings) is kept once.
    """
    streams: dict[str, int] = {}
    settings: dict[str, int] = {}
    runs: dict[str, dict[str, Any]] = {}
    for place, section in enumerate(sections):
        for key, run in {run.key: run for run in section.runs}.items():
            if key not in runs:
                runs[key] = _run(run, streams, settings)
            runs[key]["sections"].append(place)
    return {
        "sections": [(f"plan-{section.name}", section.plan.title) for section in sections],
        "streams": [json.loads(stream) for stream in streams],
        "settings": [json.loads(setting) for setting in settings],
        "runs": runs,
    }


def _run(run: PlanRun, streams: dict[str, int], settings: dict[str, int]) -> dict[str, Any]:
    counts, config, measured = run.counts, run.config, run.result.measured
    stream = {
        "domains": [(d.name, damaged(d.name), d.first_batch, d.batches) for d in counts.domains],
        "samples": [domain.seen for domain in counts.domains],
        "stops": stops(run),
        "seen": counts.batches.seen,
    }
    setting = {
        "data": config.data,
        "batch size": config.batch_size,
        "severity": config.severity,
        "machine": measured.get("machine"),
        "versions": measured.get("versions"),
    }
    rejected = {n: reason for n, reason in enumerate(counts.batches.rejected) if reason}
    facts = {
        "method": config.method,
        "options": ", ".join(f"{name} = {text(v)}" for name, v in config.options.items()),
        "model": f"{config.model['name']}, weights {config.model['digest']}",
        "updates": f"{counts.updates} in {len(counts.batches.right)} batches",
        "rejected batches": rejected or None,
        "rolled back": counts.rollbacks or None,
        "skipped clips": counts.skipped or None,
        "seconds": measured.get("seconds"),
        "samples per second": measured.get("samples_per_second"),
        "peak memory, MiB": measured.get("peak_mib"),
        "finished": measured.get("finished"),
    }
    biased = counts.batches.biased or []
    scores = sorted((counts.batches.scores or {}).items())
    return {
        "label": run.label,
        "protocol": pretty(run.protocol),
        "replicate": run.replicate_name,
        "stream": streams.setdefault(json.dumps(stream), len(streams)),
        "setting": settings.setdefault(json.dumps(setting, sort_keys=True), len(settings)),
        "sections": [],
        "right": counts.batches.right,
        "domains": [domain.right for domain in counts.domains],
        "scores": {name: [_thousandths(value) for value in values] for name, values in scores},
        "named": {
            name: [n for n, found in enumerate(biased) if name in found] for name, _ in scores
        },
        "clean": counts.clean_after,
        "facts": {name: value for name, value in facts.items() if value is not None},
    }


def _thousandths(score: float | None) -> int | None:
    return round(1000 * score) if score is not None and math.isfinite(score) else None


def write_files(sections: Iterable[Section], folder: Path, for_print: bool = False) -> None:
    """Write all tables (CSV, Markdown, LaTeX) and figures (SVG), one folder per plan.

    With `for_print`, figures are also written as PDF and PNG, which takes longer.
    """
    for section in sections:
        for item in section.items:
            if isinstance(item, Chart):
                item.save(folder / "figures" / section.name, for_print)
                continue
            contents = {"csv": item.to_csv(), "md": item.to_markdown(), "tex": item.to_latex()}
            for ending, content in contents.items():
                path = folder / "tables" / section.name / f"{item.name}.{ending}"
                with atomic_path(path) as part:
                    part.write_text(content, encoding="utf-8", newline="\n")


def print_summary(
    sections: Iterable[Section], console: Console, page: Path, warnings: Sequence[str] = ()
) -> None:
    """Print the first table of each section, all notes, and where the page is."""
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
    console.print(f"report: {escape(str(page))}", highlight=False, soft_wrap=True)
    console.print(f"        [link={address}]{address}[/link]", highlight=False, soft_wrap=True)
