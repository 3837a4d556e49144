"""One class name has one meaning in the whole package."""

import ast
from collections import Counter
from pathlib import Path

import dasp

PACKAGE = Path(dasp.__file__).parent


def test_no_class_name_is_defined_twice():
    names = Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert len(names) > 50
    assert {name for name, count in names.items() if count > 1} == set()
