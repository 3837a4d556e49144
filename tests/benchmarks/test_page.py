"""Pages and pictures of the docs agree with the files that the benchmarks wrote."""

import json

import pytest
from suite import RESULTS

from page import PAGES, figures, filled, growth_pictures, table_of


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_says_what_the_files_say(path):
    text = path.read_text()
    assert filled(text, RESULTS) == text, "run python benchmarks/page.py"


def test_pictures_show_what_the_file_says():
    drawn = growth_pictures(RESULTS)
    assert drawn
    for path, drawing in drawn.items():
        assert path.read_text() == drawing, "run python benchmarks/page.py"


def test_a_block_is_made_anew_and_all_else_is_left_alone(tmp_path):
    content = {"command": "python benchmarks/x.py", "figures": {"part": {"a": {"ratio": 1.5}}}}
    (tmp_path / "x.json").write_text(json.dumps(content))
    text = "before\n<!-- figures x/part -->\nold\n<!-- end -->\nafter 1.5\n"
    made = filled(text, tmp_path)
    assert "| a | 1.5 |" in made
    assert "old" not in made
    assert made.startswith("before\n<!-- figures x/part -->\n")
    assert made.endswith("<!-- end -->\nafter 1.5\n")
    assert filled(made, tmp_path) == made
    content["figures"]["part"]["a"]["ratio"] = 1.6
    (tmp_path / "x.json").write_text(json.dumps(content))
    assert filled(made, tmp_path) != made


def test_what_is_not_there_is_said(tmp_path):
    assert "Not measured" in figures("nothing/here", tmp_path)


def test_a_ratio_stands_with_its_spread_and_a_wide_table_is_turned():
    row = {"ratio": 1.234, "low": 1.1, "high": 1.4, "processor_ratio": 1.2}
    assert "| a | 1.23 (1.10 to 1.40) | 1.2 |" in table_of({"a": row})
    wide = table_of({"a": {f"column {n}": n for n in range(9)}})
    assert "| column 8 | 8 |" in wide
