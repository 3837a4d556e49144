"""Tables, figures and the HTML report. Reads result files; runs nothing.

`read_results` reads a folder, `group_results` keeps what may not be averaged apart, `all_tables`
makes tables of one group, and `write_report`, `export_tables` and `print_summary` show them.
"""

from dasp.report.console import print_summary
from dasp.report.export import export_tables
from dasp.report.groups import Group, group_results
from dasp.report.html import write_report
from dasp.report.runs import Result, read_results
from dasp.report.tables import all_tables

__all__ = [
    "Group",
    "Result",
    "all_tables",
    "export_tables",
    "group_results",
    "print_summary",
    "read_results",
    "write_report",
]
