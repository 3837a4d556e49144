"""What the site adds to the pages, without building it (`make docs` does), and the README."""

import re
import sys
import tomllib

import pytest

import dasp


@pytest.fixture
def command_help(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "docs"))
    yield pytest.importorskip("command_help")
    sys.modules.pop("command_help", None)


def test_the_page_of_commands_holds_the_help_of_each(command_help):
    names = command_help.COMMANDS
    assert {"bench", "report", "data check", "data checksum", "prepare"} <= set(names)
    said = command_help.help_of("data check")
    assert said.startswith("usage: dasp data check")
    assert "--dataset" in said
    assert "\x1b" not in said


def test_every_page_stands_in_the_contents(root):
    listed = re.findall(r"^([a-z_]+)$", (root / "docs/index.md").read_text(), re.MULTILINE)
    pages = {path.stem for path in (root / "docs").glob("*.md")} - {"index"}
    assert pages <= set(listed)


def test_a_block_can_say_that_it_does_not_run(tmp_path, collect):
    page = tmp_path / "page.md"
    page.write_text("```python\n1\n```\n\n<!-- not run: why -->\n```sh\ntwo\n```\n")
    first, second = collect(page)
    assert (first.language, first.code, first.line, first.runs) == ("python", "1\n", 2, True)
    assert (second.language, second.code, second.line, second.runs) == ("sh", "two\n", 7, False)


def test_the_table_of_methods_names_every_method_once(root):
    text = (root / "docs/methods.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\(\.\./(src/dasp/methods/\w+\.py)\)", text, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(dasp.METHODS)
    assert all((root / path).is_file() for _, path in rows)


def test_the_readme_is_short_and_names_the_two_commands(root):
    text = (root / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert "make run" in text
    assert "make test" in text


def test_the_version_is_written_once(root):
    assert f"\nversion: {dasp.__version__}\n" in (root / "CITATION.cff").read_text()
    assert f"\n## [{dasp.__version__}] - " in (root / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def on_an_index(root, project):
    """The README as a package index shows it."""
    text = (root / "README.md").read_text()
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    return text


def test_links_of_the_readme_into_the_repository_are_absolute_and_lead_to_files(
    root, project, on_an_index
):
    home = project["project"]["urls"]["Homepage"]
    raw = home.replace("https://github.com/", "https://raw.githubusercontent.com/")
    targets = re.findall(r"\]\(([^)\s]+)\)", on_an_index)
    inside = [target for target in targets if target.startswith((home, raw))]
    assert len(inside) > 20
    for target in inside:
        path, _, place = target.removeprefix(f"{home}/blob/main/").partition("#")
        path = path.removeprefix(f"{raw}/main/")
        assert (root / path).exists(), target
        assert not place or place in _places((root / path).read_text()), target
    outside = [target for target in targets if target not in inside]
    assert all(target.startswith("https://") for target in outside)


def test_the_address_of_the_repository_is_one(root, project):
    home = project["project"]["urls"]["Homepage"]
    owner = home.removeprefix("https://github.com/")
    assert all(url.startswith(home) for url in project["project"]["urls"].values())
    pages = [*root.glob("*.md"), *root.glob("docs/*.md"), root / "pyproject.toml"]
    found = {
        name
        for page in pages
        for name in re.findall(r"github(?:usercontent)?\.com/([\w-]+/dasp)\b", page.read_text())
    }
    assert found == {owner}


def _places(text):
    """Return the anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
