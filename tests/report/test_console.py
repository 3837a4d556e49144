import io
from pathlib import Path

import pytest
from rich.console import Console

from dasp.report.console import opener, print_summary


def printed(results, **options):
    console = Console(width=100, file=io.StringIO())
    print_summary(results, console, **options)
    return console.file.getvalue()


def test_tables_then_the_report(results, tmp_path):
    path = tmp_path / "a b" / "report.html"
    text = printed(results, report=path, warnings=["x.json [was] left out"])
    tables, note, where = (
        text.index("interleaved"),
        text.index("x.json [was] left out"),
        text.index("report:"),
    )
    assert tables < text.index("Diagnosis") < note < where
    assert path.resolve().as_uri() in text
    assert f"'{path.resolve()}'" in text


def test_no_report_no_path(make):
    text = printed([make("source")])
    assert "open it" not in text
    assert "Diagnosis" not in text


@pytest.mark.parametrize(
    ("system", "command"),
    [("linux", "xdg-open"), ("darwin", "open"), ("win32", "python -m webbrowser")],
)
def test_opener(system, command):
    assert opener(Path("r.html"), system) == f"{command} r.html"
