"""The end of a run in the terminal: the tables, and where the report is."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from dasp.report.figures import Figure
from dasp.report.render import to_rich
from dasp.report.shown import Shown


def print_summary(
    sections: Iterable[Shown],
    console: Console,
    report: Path | None = None,
    warnings: Sequence[str] = (),
) -> None:
    """Print the first table of each section and what it found, then where `report` lies."""
    notes = list(warnings)
    for shown in sections:
        console.rule(f"[bold]{escape(shown.section.plan.title)}", align="left", style="dim")
        tables = (item for part in shown.parts for item in part.items)
        first = next((item for item in tables if not isinstance(item, Figure)), None)
        if first is not None:
            console.print(first.caption, style="dim", highlight=False, markup=False)
            console.print(to_rich(first))
        console.print(escape(shown.finding or shown.section.plan.about), highlight=False)
        console.print()
        notes += shown.notes
    for note in notes:
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
