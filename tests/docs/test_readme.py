"""The README lists every method."""

import dasp


def test_every_method_stands_in_the_readme(root):
    text = (root / "README.md").read_text()
    assert len(dasp.METHODS) == 11
    for name in dasp.METHODS:
        assert f"| `{name}` |" in text
