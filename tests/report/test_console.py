import io
from pathlib import Path

import pytest
from rich.console import Console

from dasp.report.console import opener, print_summary


def printed(sections, **options):
    console = Console(width=100, file=io.StringIO())
    print_summary(sections, console, **options)
    return console.file.getvalue()


def test_the_first_table_and_the_finding_then_the_report(results, show_from, tmp_path):
    path = tmp_path / "a b" / "report.html"
    text = printed(show_from(results), report=path, warnings=["x.json [was] left out"])
    table, found, note, where = (
        text.index("interleaved"),
        text.index("Best: dasp"),
        text.index("x.json [was] left out"),
        text.index("report:"),
    )
    assert text.index("All runs") < table < found < note < where
    assert "Diagnosis" not in text
    assert path.resolve().as_uri() in text
    assert f"'{path.resolve()}'" in text


def test_no_report_no_path(make, show_from):
    assert "open it" not in printed(show_from([make("source")]))


@pytest.mark.parametrize(
    ("system", "command"),
    [("linux", "xdg-open"), ("darwin", "open"), ("win32", "python -m webbrowser")],
)
def test_opener(system, command):
    assert opener(Path("r.html"), system) == f"{command} r.html"
