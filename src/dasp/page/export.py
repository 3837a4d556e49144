"""The stream of a page as a table: one row per batch."""

import csv
from collections.abc import Iterable
from io import StringIO
from typing import Any

from dasp.page.runner import Point

GROUPS = ("truth", "scores", "limits", "accuracy", "overall", "norms")  # one column per name


def csv_text(points: Iterable[Point]) -> str:
    """Return points as CSV, such as n, truth audio, scores audio, …, biased, loss, skipped."""
    rows = [_row(point) for point in points]
    columns = list(dict.fromkeys(name for row in rows for name in row)) or ["n"]
    file = StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _row(point: Point) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in point.items():
        if key in GROUPS:
            row |= {f"{key} {name}".rstrip(): own for name, own in (value or {}).items()}
        else:
            row[key] = " ".join(value) if isinstance(value, list) else value
    return row
