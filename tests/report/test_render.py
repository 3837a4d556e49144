import csv
import io

import pytest
from rich.console import Console

from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import group_results
from dasp.report.render import to_csv, to_html, to_latex, to_markdown, to_rich
from dasp.report.tables import main_table

TABLE = Table(
    "small",
    "50 % of <all> & more",
    (Column("method"), Column("a_b", ("accuracy", "gain")), Column("cost", ("value",))),
    (
        (
            Cell("x|<y>_[bold]"),
            Cell(quantities=(Quantity(76.71, 0.52), Quantity(1.26, 0.2, signed=True)), best=True),
            Cell(quantities=(Quantity(3.0, digits=2),)),
        ),
        (
            Cell("z"),
            Cell(quantities=(Quantity(70.0), Quantity(-1.0, signed=True)), worse=True),
            Cell(quantities=(Quantity(None),)),
        ),
    ),
)


def drawn(table, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(to_rich(table))
    return console.export_text()


def test_console():
    text = drawn(TABLE)
    assert "76.7 ±0.5" in text
    assert "▼−1.0" in text
    assert "x|<y>_[bold]" in text


def test_the_main_table_fits_a_narrow_terminal(results):
    text = drawn(main_table(group_results(results)[0]))
    assert "…" not in text
    assert "interleaved" in text


def test_markdown():
    lines = to_markdown(TABLE).splitlines()
    assert lines[3] == "| --- | ---: | ---: |"
    assert lines[4] == r"| x\|<y>_[bold] | **76.7 ±0.5**<br>+1.3 ±0.2 | 3.00 |"
    assert lines[5] == "| z | 70.0<br>▼−1.0 | – |"


def test_csv_has_plain_numbers():
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert rows[0] == {
        "method": "x|<y>_[bold]",
        "a_b accuracy": "76.71",
        "a_b accuracy std": "0.52",
        "a_b gain": "1.26",
        "a_b gain std": "0.2",
        "cost": "3",
        "cost std": "",
    }
    assert rows[1]["a_b gain"] == "-1"
    assert rows[1]["cost"] == ""


def test_csv_of_every_row_has_every_column(results):
    rows = list(csv.reader(io.StringIO(to_csv(main_table(group_results(results)[0])))))
    assert {len(row) for row in rows} == {len(rows[0])}


def test_latex():
    text = to_latex(TABLE)
    assert r"\caption{50 \% of <all> \& more}" in text
    assert r"\begin{tabular}{lrr}" in text
    assert r"{@{}r@{}}\textbf{76.7 $\pm$0.5} \\ {\scriptsize +1.3 $\pm$0.2}\end{tabular}" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3
    assert r"$\downarrow$$-$1.0" in text
    assert r"x|<y>\_[bold]" in text
    assert text.isascii()


def test_html_escapes_and_marks():
    text = to_html(TABLE)
    assert "x|&lt;y&gt;_[bold]" in text
    assert '<td class="best"><strong>76.7 ±0.5</strong><br><small>+1.3 ±0.2</small></td>' in text
    assert '<td class="worse">70.0<br><small>▼−1.0</small></td>' in text


@pytest.mark.parametrize(("value", "shown"), [(-0.04, "+0.0"), (0.0, "+0.0"), (-0.06, "−0.1")])
def test_no_negative_zero(value, shown):
    assert Quantity(value, signed=True).text == shown
