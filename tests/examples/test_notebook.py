"""The notebook runs from top to bottom with the Python of the tests; it holds no outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

PATH = Path(__file__).parents[2] / "examples/quickstart.ipynb"


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(PATH, as_version=4)


def test_it_is_kept_without_outputs(notebook):
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


# The kernel's own messaging: its sockets and event loop are not ours to close.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_it_runs(notebook, tmp_path):
    client = NotebookClient(
        notebook.copy(), timeout=None, resources={"metadata": {"path": str(tmp_path)}}
    )
    ran = client.execute()
    shown = [output for cell in ran.cells for output in cell.get("outputs", [])]
    table = next(o["data"]["text/markdown"] for o in shown if "text/markdown" in o.get("data", {}))
    biased = [row.split("|")[4].strip() for row in table.splitlines()[2:]]
    assert biased == ["none", "none", "audio", "audio", "audio", "audio"]
    assert any("image/svg+xml" in output.get("data", {}) for output in shown)
