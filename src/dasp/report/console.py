"""The end of a run in the terminal: the tables, and where the report is."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from dasp.report.groups import group_results
from dasp.report.render import to_rich
from dasp.report.runs import Result
from dasp.report.tables import diagnosis_table, main_table


def print_summary(
    results: Iterable[Result],
    console: Console,
    report: Path | None = None,
    warnings: Sequence[str] = (),
) -> None:
    """Print the main and the diagnosis table of each group, then where `report` lies."""
    groups = group_results(results)
    for group in groups:
        console.print(to_rich(main_table(group)))
        diagnosis = diagnosis_table(group)
        if diagnosis.rows:
            console.print()
            console.print(to_rich(diagnosis))
        console.print()
    for note in [*warnings, *(note for group in groups for note in group.notes)]:
        console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
    if report is not None:
        whole = report.resolve()
        lines = (
            f"report: {escape(str(report))}",
            f"        [link={whole.as_uri()}]{whole.as_uri()}[/link]",
            f"open it with: {escape(opener(whole))}",
        )
        for line in lines:
            console.print(line, highlight=False, soft_wrap=True)


def opener(path: Path, platform: str = sys.platform) -> str:
    """Return the command that opens a file in the browser of this system.

    >>> opener(Path("/a/report.html"), "linux")
    'xdg-open /a/report.html'
    """
    commands = {"linux": "xdg-open", "darwin": "open"}
    target = shlex.quote(str(path))
    return f"{commands.get(platform, 'python -m webbrowser')} {target}"
