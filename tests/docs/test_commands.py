"""Commands on the pages: `dasp …` is parsed by the program itself, paths and targets exist."""

import functools
import re
import shlex
import subprocess
import sys

import pytest

from dasp.cli import main as cli
from dasp.cli.bench import parse

INLINE = re.compile(r"`(dasp [^`]+)`")
OPEN_ENDED = re.compile(r"…|\b(COMMAND|NAME|METHOD|PLAN)\b")  # a pattern of commands, not one


def commands_of(page, page_blocks):
    """Every `dasp …` of a page: lines of shell blocks, and code within sentences."""
    for block in page_blocks:
        if block.language == "sh" or (not block.language and block.code.startswith("dasp ")):
            yield from (
                line for line in block.code.replace("\\\n", " ").splitlines() if " " in line
            )
    yield from (found.replace("\n", " ") for found in INLINE.findall(prose(page)))


def prose(page):
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def parsed(monkeypatch):
    """Make commands read their arguments instead of doing anything."""

    def quiet(function):
        @functools.wraps(function)
        def note(*args, **options):
            if function.__name__ == "bench":
                parse(*args)

        return note

    load = cli.load
    monkeypatch.setattr(cli, "load", lambda name: quiet(load(name)))


@pytest.mark.usefixtures("parsed")
def test_commands_parse(page, page_blocks):
    for command in commands_of(page, page_blocks):
        words = shlex.split(command, comments=True)
        if words[:1] != ["dasp"] or OPEN_ENDED.search(command):
            continue
        if " ".join(words[1:]) in cli.COMMANDS:  # a sentence about the command
            continue
        try:
            code = cli.main(words[1:])
        except SystemExit as stop:  # the parser's way to refuse, and to print help
            code = stop.code
        assert code in (0, None), command


def test_scripts_and_targets_exist(page, root):
    makefile = (root / "Makefile").read_text()
    text = page.read_text()
    for code in re.findall(r'python -c "([^"]+)"', text):
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    folders = "examples|benchmarks|studies|tests|tools"
    for path in re.findall(rf"\b(?:{folders})/[\w/]+\.(?:py|toml|ipynb)", text):
        assert (root / path).exists(), path
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, flags=re.MULTILINE):
        assert f"\n{target}:" in makefile, target


def test_links_within_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(page)):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target
