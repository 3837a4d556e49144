"""The pages of the documentation, and the blocks of code in them."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?P<marker><!-- not run:[^>]*-->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, where it starts, whether the page says it can run."""

    line: int
    language: str
    code: str
    runs: bool


def blocks(page: Path) -> list[Block]:
    found, text = [], page.read_text()
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        found.append(Block(line, match["language"], match["code"], not match["marker"]))
    return found


def pytest_generate_tests(metafunc):
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES, ids=lambda path: path.stem)


page_blocks = pytest.fixture(lambda page: blocks(page), name="page_blocks")
collect = pytest.fixture(lambda: blocks, name="collect")
root = pytest.fixture(lambda: ROOT, name="root", scope="session")
