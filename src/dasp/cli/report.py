"""The command `dasp report`."""

import shlex
import sys
from collections.abc import Collection
from pathlib import Path

from dasp.bench.results import read_folder
from dasp.report.render import print_summary, write_files, write_page
from dasp.report.sections import sections_of


def report(results: Path, /, out: Path | None = None, figures: bool = True) -> int:
    """Turn a folder of results into tables, figures and one HTML report.

    Reads the results that `dasp bench` wrote, in this folder and those below it; nothing is run
    again. Prints the first table of each plan (accuracy, gain over Source, best in bold) and writes

      report.html   one section per plan and one page per run; opens without network
      tables/       each table as CSV, Markdown and LaTeX, in one folder per plan
      figures/      each figure as SVG, PDF and PNG, in one folder per plan

    Results of different data, samples, batch size or severity are shown apart, never averaged
    together. A damaged file is named and left out, and the exit code is then 1.

    Args:
        results: Folder of results.
        out: Folder to write to; by default the folder of the results.
        figures: Write each figure as PDF and PNG beside the SVG, which takes a second per figure.
    """
    return publish(results, out or results, figures=figures)


def publish(results: Path, out: Path, only: Collection[str] = (), figures: bool = False) -> int:
    """Write the report of a folder and sum it up, or `only` some plans; 1 if a file is damaged."""
    found = read_folder(results)
    sections, page = sections_of(found, show=True), out / "report.html"
    write_page(sections, page, shlex.join(["dasp", *sys.argv[1:]]), found.warnings, figures)
    write_files(sections, out, for_print=figures, show=True)
    told = [section for section in sections if not only or section.plan.name in only]
    print_summary(told, page, found.warnings)
    return 1 if found.warnings else 0
