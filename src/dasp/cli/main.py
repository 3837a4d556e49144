"""The command `dasp`: list the commands, or import and run one.

Only the module of the chosen command is imported, inside `main`: `dasp --help` needs no torch, and
an interruption while torch loads (it takes seconds) is as quiet as a later one.
"""

import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """Where the function of a command is, and one line about it."""

    module: str
    function: str
    about: str
    own_flags: bool = False
    """Whether the function reads its flags itself: they depend on the plan that is named."""

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        function: Callable[..., Any] = getattr(import_module(self.module), self.function)
        return function


ABOUT = "Multi-modal test-time adaptation. `dasp --version` prints the version."
COMMANDS = {
    "demo": Command("dasp.page.commands", "demo", "Show adaptation live in the browser."),
    "monitor": Command("dasp.page.commands", "monitor", "Follow an event log in the browser."),
    "bench": Command("dasp.cli.bench", "bench", "Run methods on streams and report.", True),
    "report": Command("dasp.report.commands", "report", "Make the report of finished results."),
    "tune": Command("dasp.cli.bench", "tune", "Choose learning rates on validation data."),
    "train": Command("dasp.cli.train", "train", "Train a model on your own clips."),
    "check": Command("dasp.cli.bench", "check", "Run the contract check on a method."),
    "prepare": Command("dasp.cli.data", "prepare", "Turn mp4 videos into a data set."),
    "data check": Command("dasp.cli.data", "data_check", "Check every file of a data set."),
    "data checksum": Command(
        "dasp.cli.data", "data_checksum", "Print hashes to compare data between labs."
    ),
    "corrupt": Command("dasp.cli.data", "corrupt", "Write corrupted copies of a data set."),
    "preview": Command("dasp.cli.data", "preview", "Draw one clip under every corruption."),
    "preview-shapes": Command(
        "dasp.cli.data", "preview_shapes", "Draw one built-in sample under every corruption."
    ),
}
GROUPS = {"data": "Check a data set: whether its files are intact, and the same as another lab's."}
RESUMABLE = ("bench", "tune", "prepare", "corrupt")  # their finished work is kept


def main(arguments: list[str] | None = None) -> int:
    """Run one command; an error of the user becomes one line and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(words)
    except KeyboardInterrupt:
        kept = words[:1] and words[0] in RESUMABLE
        _say("interrupted; finished work is kept" if kept else "interrupted")
        code = 130
    if arguments is None:  # the program ends: a late Ctrl-C has nothing left to stop
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _run(words: list[str]) -> int:
    from dasp.core.errors import DaspError, unknown_name
    from dasp.core.version import __version__

    if words == ["--version"]:
        print(f"dasp {__version__}")
        return 0
    group = words[0] if words[:1] and words[0] in GROUPS else ""
    size = 2 if group else 1
    name, rest = " ".join(words[:size]), words[size:]
    if len(words) < size or words[size - 1] in ("-h", "--help"):
        return _list(group)
    if name not in COMMANDS:
        return _error(unknown_name("command", name, _commands_of(group)))
    try:
        import tyro

        command = COMMANDS[name].load()
        own = COMMANDS[name].own_flags
        result = command(rest) if own else tyro.cli(command, prog=f"dasp {name}", args=rest)
    except DaspError as error:
        return _error(str(error))
    except BrokenPipeError:  # the reader of the output, `head` perhaps, has closed it
        sys.stderr.close()
        return 141
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _error(f"{place}{error.strerror or error}")
    return result if isinstance(result, int) else 0


def _commands_of(group: str) -> Mapping[str, str]:
    """Return the commands of a group with their one-line help; of no group: groups and the rest."""
    lines: dict[str, str] = {}
    for name, command in COMMANDS.items():
        first = name.split()[0]
        if group:
            lines |= {name: command.about} if first == group else {}
        else:
            lines |= {first: GROUPS.get(first, command.about)}
    return lines


def _list(group: str) -> int:
    lines = _commands_of(group)
    width = max(map(len, lines))
    print(f"usage: dasp {group}{' ' * bool(group)}COMMAND …\n\n{GROUPS.get(group, ABOUT)}\n")
    for name, about in lines.items():
        print(f"  {name:{width}}  {about}")
    print("\n`dasp COMMAND --help` lists the options of a command.")
    return 0


def _error(message: str) -> int:
    from rich.markup import escape

    _say(f"[bold red]error:[/] {escape(message)}")
    return 2


def _say(text: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(text, highlight=False, soft_wrap=True)
