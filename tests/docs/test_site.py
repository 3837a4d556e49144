"""What the site adds to the pages, without building it: `make docs` does that."""

import re
import sys

import pytest


@pytest.fixture
def command_help(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "docs"))
    yield pytest.importorskip("command_help")
    sys.modules.pop("command_help", None)


def test_the_page_of_commands_holds_the_help_of_each(command_help):
    names = command_help.commands()
    assert {"bench", "report", "data check", "data checksum", "prepare"} <= set(names)
    said = command_help.help_of("data check")
    assert said.startswith("usage: dasp data check")
    assert "--dataset" in said
    assert "\x1b" not in said


def test_every_page_stands_in_the_contents(root):
    listed = re.findall(r"^([a-z_]+)$", (root / "docs/index.md").read_text(), re.MULTILINE)
    pages = {path.stem for path in (root / "docs").glob("*.md")} - {"index"}
    assert pages <= set(listed)
