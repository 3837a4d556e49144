"""The table of models and methods in docs/own_model.md is what running them gives."""

import sys
from pathlib import Path

import pytest

import dasp

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from model_kinds import KINDS, PAGE, on_page, tried

(TABLE,) = on_page(PAGE.read_text())
HEAD, _, *LINES = (line for line in TABLE.splitlines() if line.startswith("|"))
ROWS = {cells[1].strip(" `"): cells[2:-1] for cells in (line.split("|") for line in LINES)}
LEGEND = dict(line[4:].split("**: ", 1) for line in TABLE.splitlines() if line.startswith("- **"))


def test_every_method_and_every_kind_has_its_place():
    assert [cell.strip() for cell in HEAD.split("|")[2:-1]] == list(KINDS)
    assert len(KINDS) == 12
    assert list(ROWS) == list(dasp.METHODS), "run python tools/model_kinds.py"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_says_what_happens(kind):
    place = list(KINDS).index(kind)
    for method in dasp.METHODS:
        said = ROWS[method][place].replace("✓", "").split()
        found = tried(KINDS[kind], method)
        assert found == [LEGEND[letter] for letter in said], (
            f"{method} on {kind}: run python tools/model_kinds.py"
        )
