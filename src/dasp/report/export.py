"""Every table as CSV, Markdown and LaTeX, for papers and other programs."""

import re
from collections.abc import Iterable
from pathlib import Path

from dasp.core.files import atomic_path
from dasp.report.groups import Group, group_results
from dasp.report.render import to_csv, to_latex, to_markdown
from dasp.report.runs import Result
from dasp.report.tables import all_tables

WRITERS = {".csv": to_csv, ".md": to_markdown, ".tex": to_latex}


def export_tables(results: Iterable[Result], folder: str | Path) -> list[Path]:
    """Write each table three times into `folder`; a sub-folder a setting if there are several."""
    groups = group_results(results)
    written = []
    for group in groups:
        place = Path(folder) / _slug(group) if len(groups) > 1 else Path(folder)
        for table in all_tables(group):
            for ending, write in WRITERS.items():
                target = place / f"{table.name}{ending}"
                with atomic_path(target) as part:
                    part.write_text(write(table), encoding="utf-8", newline="\n")
                written.append(target)
    return written


def _slug(group: Group) -> str:
    """Return the setting as the name of a folder.

    Letters, digits and single hyphens only; different settings get different names, since the
    title holds all of them.
    """
    return re.sub(r"[^a-z0-9.]+", "-", group.title.lower()).strip("-")
