"""What stands behind `dasp report`."""

import shlex
import sys
from pathlib import Path

from rich.console import Console

from dasp.report.console import print_summary
from dasp.report.export import export_tables
from dasp.report.html import TITLE, write_report
from dasp.report.runs import read_results


def report(results: Path, /, out: Path | None = None, title: str = TITLE) -> int:
    """Turn a folder of results into tables, figures and one HTML report.

    Reads the result files that `dasp bench` wrote, in this folder and those below it; nothing
    is run again. Prints the main table (accuracy, gain over Source, best in bold) and how often
    each diagnosis was right, and writes

      report.html   tables, figures and a section a run; opens in any browser, without network
      tables/       each table as CSV, Markdown and LaTeX

    Results of different data, samples, batch size or severity are shown apart, never averaged
    together. A damaged file is named and left out, and the exit code is then 1.

    Args:
        results: Folder of result files.
        out: Folder to write to; by default the folder of the results.
        title: Heading of the report.
    """
    folder = results if out is None else out
    found, warnings = read_results(results)
    command = shlex.join(["dasp", *sys.argv[1:]])
    page = write_report(found, folder / "report.html", title, command, warnings)
    export_tables(found, folder / "tables")
    print_summary(found, Console(), page, warnings)
    return 1 if warnings else 0
