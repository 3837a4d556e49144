"""Run the notebooks of examples/ from top to bottom and store them with their outputs.

python tools/run_notebooks.py
"""

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def ran(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of a run in an empty directory."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=None, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of the day
    return notebook


def main() -> None:
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        nbformat.write(ran(path), path)


if __name__ == "__main__":
    main()
