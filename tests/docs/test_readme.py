"""The README names methods that exist, in files that exist."""

import re

import dasp


def test_the_methods_of_the_readme_exist(root):
    text = (root / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\((src/dasp/methods/\w+\.py)\)", text, re.MULTILINE)
    assert "dasp" in dict(rows)
    for name, path in rows:
        assert name in dasp.METHODS
        assert (root / path).is_file()
