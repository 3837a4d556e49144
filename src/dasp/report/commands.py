"""What stands behind `dasp report`."""

import shlex
import sys
from collections.abc import Collection
from pathlib import Path

from rich.console import Console

from dasp.report.console import print_summary
from dasp.report.export import export
from dasp.report.folder import read_folder
from dasp.report.html import TITLE, write_report
from dasp.report.sections import sections_of
from dasp.report.shown import show


def report(results: Path, /, out: Path | None = None, title: str = TITLE) -> int:
    """Turn a folder of results into tables, figures and one HTML report.

    Reads the result files and plan records that `dasp bench` wrote, in this folder and those
    below it; nothing is run again. Prints the main table of each plan (accuracy, gain over
    Source, best in bold), and writes

      report.html   a section a plan and a page a run; opens in any browser, without network
      tables/       each table as CSV, Markdown and LaTeX, in a folder a plan
      figures/      each figure as SVG, in a folder a plan

    Results of different data, samples, batch size or severity are shown apart, never averaged
    together. A damaged file is named and left out, and the exit code is then 1.

    Args:
        results: Folder of result files.
        out: Folder to write to; by default the folder of the results.
        title: Heading of the report.
    """
    return publish(results, results if out is None else out, title)


def publish(
    results: Path, out: Path, title: str = TITLE, only: Collection[Path] | None = None
) -> int:
    """Write the report of a folder and print its summary; return 1 if a file was left out.

    `only` keeps the summary to the plans that these result files belong to.
    """
    folder = read_folder(results)
    sections = [show(section) for section in sections_of(folder)]
    command = shlex.join(["dasp", *sys.argv[1:]])
    page = write_report(sections, out / "report.html", title, command, folder.warnings)
    export(sections, out)
    names = None if only is None else {path.relative_to(results).as_posix() for path in only}
    told = [s for s in sections if names is None or not names.isdisjoint(s.section.plan.files)]
    print_summary(told, Console(), page, folder.warnings)
    return 1 if folder.warnings else 0
