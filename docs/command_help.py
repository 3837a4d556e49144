"""The directive `command-help`: a section for every command, with what its `--help` prints.

It asks the command line itself while the site is built, so that page and program agree.
"""

import contextlib
import io
import re
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dasp.cli.main import COMMANDS, main

WIDTH = "92"


def help_of(command: str) -> str:
    """Return what `dasp COMMAND --help` prints on a terminal of `WIDTH` columns."""
    said = io.StringIO()
    with (
        patch.dict("os.environ", COLUMNS=WIDTH, NO_COLOR="1"),
        contextlib.redirect_stdout(said),
        contextlib.suppress(SystemExit),
    ):
        main([*command.split(), "--help"])
    return re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue()).rstrip()


class CommandHelp(SphinxDirective):
    """Write one section per command."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        return [self._section(command) for command in COMMANDS]

    def _section(self, command: str) -> nodes.section:
        text = help_of(command)
        if not text.startswith(f"usage: dasp {command}"):
            raise self.error(f"dasp {command} --help printed: {text[:200]!r}")
        title = f"dasp {command}"
        section = nodes.section(ids=[nodes.make_id(title)], names=[title])
        section += nodes.title("", "", nodes.literal("", title))
        block = nodes.literal_block(text, text, language="text")
        section += nodes.container("", block, classes=["command-help"])
        self.state.document.note_explicit_target(section)
        return section


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
