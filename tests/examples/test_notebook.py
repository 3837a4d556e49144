"""The notebooks are stored with their outputs, and running them gives these outputs again."""

import sys
from pathlib import Path

import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from run_notebooks import EXAMPLES, ran

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def shown(notebook):
    """Return what each cell prints or shows; of pictures, whose identifiers are drawn, the kind."""
    kept = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            kept.append(output.get("text") or data.get("text/markdown") or sorted(data))
    return kept


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# The kernel's own messaging: its sockets and event loop are not ours to close.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_it_runs_as_stored(path):
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    assert shown(stored), "run python tools/run_notebooks.py"
    assert shown(ran(path)) == shown(stored), "run python tools/run_notebooks.py"


def test_the_quickstart_shows_a_gain():
    stored = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    table = next(text for text in shown(stored) if text[:1] == "|")
    rows = [[cell.strip() for cell in row.split("|")] for row in table.splitlines()[2:]]
    assert [row[4] for row in rows] == ["none", "none", "audio", "audio", "audio", "audio"]
    assert sum(int(row[3]) for row in rows) > sum(int(row[2]) for row in rows)
    assert any("image/svg+xml" in kinds for kinds in shown(stored))
