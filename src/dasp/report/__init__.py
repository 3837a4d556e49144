"""Tables, figures and the HTML report. Reads result files; runs nothing.

`read_folder` reads a folder, `sections_of` sorts what it holds by plan, `show` draws a section, and
`write_report`, `export` and `print_summary` write what was drawn.
"""

from dasp.report.console import print_summary
from dasp.report.export import export
from dasp.report.folder import Folder, read_folder
from dasp.report.groups import Group, group_results
from dasp.report.html import write_report
from dasp.report.runs import Result, Run
from dasp.report.sections import Section, sections_of
from dasp.report.shown import Shown, show

__all__ = [
    "Folder",
    "Group",
    "Result",
    "Run",
    "Section",
    "Shown",
    "export",
    "group_results",
    "print_summary",
    "read_folder",
    "sections_of",
    "show",
    "write_report",
]
