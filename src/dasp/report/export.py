"""Every table as CSV, Markdown and LaTeX and every figure as SVG, for papers and other programs."""

from collections.abc import Iterable
from pathlib import Path

from dasp.core.files import atomic_path
from dasp.report.figures import Figure
from dasp.report.render import to_csv, to_latex, to_markdown
from dasp.report.shown import Shown
from dasp.report.style import standalone

WRITERS = {".csv": to_csv, ".md": to_markdown, ".tex": to_latex}


def export(sections: Iterable[Shown], folder: str | Path) -> list[Path]:
    """Write what the sections show to `folder`/tables and `folder`/figures, a sub-folder a plan."""
    written = []
    for shown in sections:
        for item in (item for part in shown.parts for item in part.items):
            if isinstance(item, Figure):
                place, name = Path(folder) / "figures" / shown.section.name, f"{item.name}.svg"
                written.append(_write(place / name, standalone(item.drawing)))
                continue
            place = Path(folder) / "tables" / shown.section.name
            for ending, write in WRITERS.items():
                written.append(_write(place / f"{item.name}{ending}", write(item)))
    return written


def _write(path: Path, content: str) -> Path:
    with atomic_path(path) as part:
        part.write_text(content, encoding="utf-8", newline="\n")
    return path
