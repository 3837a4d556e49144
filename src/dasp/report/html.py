"""The report as one HTML file that needs nothing else: no network, no library.

A section a plan is plain HTML and SVG; the page of a run is drawn by a small script from numbers
that the file holds, so that hundreds of runs fit into it.
"""

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from dasp.core.files import atomic_path
from dasp.report.groups import text
from dasp.report.pieces import bullets, notes_html, part_html
from dasp.report.run_data import run_data, runs_by_key, section_id
from dasp.report.runs import Run
from dasp.report.sections import STREAMS, Section
from dasp.report.shown import Shown
from dasp.report.style import style_sheet
from dasp.report.tables import pretty

TITLE = "Test-time adaptation: results"
SCRIPTS = ("run_figures.js", "run_page.js")
READING = (
    "Accuracy is the share of all samples of a stream that were right, mean ±sample standard "
    "deviation over n runs (source models and seeds); with one run there is no ±. Below it stands "
    "the gain over Source, paired: the same model and seed. Bold: the best of a column, among "
    "methods with all the runs; ▼ and red: worse than not adapting at all. "
    "–: not run, or nothing to compare with."
)
WITHOUT_SCRIPTS = (
    "Scripts are off, so the page of a run (accuracy over time, diagnosis batch by batch) cannot "
    "be drawn. The accuracy of every run in each of its domains follows."
)


def write_report(
    sections: Sequence[Shown],
    path: str | Path,
    title: str = TITLE,
    command: str = "",
    warnings: Sequence[str] = (),
) -> Path:
    """Write the report of these sections to `path` and return it.

    `command` is what made the report; `warnings` are listed at the top.
    """
    plain = [shown.section for shown in sections]
    runs = [run for run, _ in runs_by_key(plain).values()]
    body = [
        f'<main id="top">\n<h1>{escape(title)}</h1>',
        notes_html(warnings),
        _contents(sections),
        f'<p class="soft">{escape(READING)}</p>',
        *map(_section, sections),
        _made_by(runs, command),
        f"<noscript>{_without_scripts(runs)}</noscript>\n</main>",
        '<article id="run" hidden></article>',
        f'<script type="application/json" id="run-data">{_json(plain)}</script>',
        *(
            f"<script>\n{files('dasp.report').joinpath(name).read_text()}</script>"
            for name in SCRIPTS
        ),
    ]
    target = Path(path)
    with atomic_path(target) as part:
        part.write_text(_page(title, "\n".join(body)), encoding="utf-8")
    return target


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style_sheet()}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _json(sections: Sequence[Section]) -> str:
    """Return the numbers of the runs; no tag in them can end the script that holds them."""
    content = json.dumps(run_data(sections), separators=(",", ":"), allow_nan=False)
    return content.replace("<", r"\u003c")


def _contents(sections: Sequence[Shown]) -> str:
    """List the sections with what each found."""
    entries = []
    for shown in sections:
        section, found = shown.section, shown.finding.split("\n")
        alone = section.plan.kind == STREAMS  # its section says the rest, line by line
        words = (found[0] if alone else shown.finding) or section.plan.about
        link = f'<a href="#{section_id(section)}">{escape(section.plan.title)}</a>'
        lacks = f" <small>(missing: {section.missing} of {len(section.plan.files)} runs)</small>"
        short = lacks if section.missing else ""
        entries.append(f"{link}{short}<br>{escape(words)}")
    return f'<nav class="contents" aria-label="Contents">{bullets(entries)}</nav>'


def _section(shown: Shown) -> str:
    """Return everything about one plan."""
    section, plan = shown.section, shown.section.plan
    about = f"<p>{escape(plan.about)}</p>" if plan.about else ""
    found, *judged = map(escape, shown.finding.split("\n"))
    command = f"<p><code>{escape(plan.command)}</code></p>" if plan.command else ""
    return "\n".join(
        [
            f'<section id="{section_id(section)}">\n<h2>{escape(plan.title)}</h2>',
            about,
            command,
            f'<p class="found">{found}</p>' if found else "",
            bullets(judged) if judged else "",
            notes_html(shown.notes),
            *map(part_html, shown.parts),
            '<p class="soft"><a href="#top">↑ Contents</a></p>\n</section>',
        ]
    )


def _without_scripts(runs: Iterable[Run]) -> str:
    """Return the domains of every run, where the links to its page lead if scripts are off."""
    entries = []
    for run in runs:
        name = f"{run.label}, {pretty(run.protocol)}, {run.replicate_name}: {run.accuracy:.2f} %"
        each = ", ".join(
            f"{domain.name} {100 * domain.right / domain.seen:.1f}"
            for domain in run.domains
            if domain.seen
        )
        entries.append(f'<p id="run-{escape(run.key)}">{escape(name)}<br>{escape(each)}</p>')
    return f"<h2>Every run</h2><p>{escape(WITHOUT_SCRIPTS)}</p>" + "\n".join(entries)


def _made_by(runs: Sequence[Run], command: str) -> str:
    """Return how these results were made: command, models, machine and versions."""

    def distinct(values: Iterable[str]) -> str:
        return escape("; ".join(dict.fromkeys(values)) or "unknown")

    finished = max((str(run.measured.get("finished", "")) for run in runs), default="")
    facts = [
        f"{len(runs)} runs, the last finished {escape(finished or 'at an unknown time')}",
        "data: " + distinct(text(run.data) for run in runs),
        "source models: " + distinct(str(run.model["name"]) for run in runs),
        "seeds: " + distinct(str(run.seed) for run in runs),
        "machine: " + distinct(text(run.measured.get("machine", {})) for run in runs),
        "versions: " + distinct(text(run.measured.get("versions", {})) for run in runs),
    ]
    facts += [f"this report: <code>{escape(command)}</code>"] if command else []
    return f"<h2>How these results were made</h2>{bullets(facts)}"
