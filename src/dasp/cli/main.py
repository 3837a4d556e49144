"""The command `dasp`: list the commands, or import and run one.

Only the module of the chosen command is imported, inside `main`: `dasp --help` needs no torch, and
an interruption while torch loads (it takes seconds) is as quiet as a later one.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

COMMANDS = {
    "demo": ("dasp.cli.page:demo", "Show adaptation live in the browser."),
    "monitor": ("dasp.cli.page:monitor", "Follow an event log in the browser."),
    "serve": ("dasp.cli.serve:serve", "Serve an adapting model over HTTP."),
    "replay": ("dasp.cli.serve:replay", "Check that a served stream gives the same answers."),
    "log": ("dasp.cli.log:log", "Send an event log or results to a tracker."),
    "bench": ("dasp.cli.bench:bench", "Run methods on streams and report."),
    "report": ("dasp.cli.report:report", "Make the report of finished results."),
    "train": ("dasp.cli.train:train", "Train a model on your own clips."),
    "check": ("dasp.cli.bench:check", "Run the contract check on a method."),
    "prepare": ("dasp.cli.data:prepare", "Turn mp4 videos into a data set."),
    "data check": ("dasp.cli.data:data_check", "Check every file of a data set."),
    "data checksum": ("dasp.cli.data:data_checksum", "Print hashes to compare data between labs."),
    "data fetch": ("dasp.cli.fetch:data_fetch", "Fetch a data set of recordings."),
    "preview": ("dasp.cli.data:preview", "Draw one sample under every corruption."),
}
INTERRUPTED = 130
RESUMABLE = {"bench", "train", "prepare"}  # their finished work is kept


def load(name: str) -> Callable[..., Any]:
    """Import the function of a command."""
    module, _, function = COMMANDS[name][0].partition(":")
    return getattr(import_module(module), function)  # type: ignore[no-any-return]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; an error of the user becomes one line and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(words)
    except KeyboardInterrupt:
        kept = "; finished work is kept" if set(words[:1]) & RESUMABLE else ""
        print(f"interrupted{kept}", file=sys.stderr)
        code = INTERRUPTED
    if arguments is None:  # the program ends: a late Ctrl-C has nothing left to stop
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _run(words: list[str]) -> int:
    from dasp.core.errors import DEBUG, DaspError, unknown_name
    from dasp.core.version import __version__

    if words == ["--version"]:
        print(f"dasp {__version__}")
        return 0
    group = "data " if words[:1] == ["data"] else ""
    size = 2 if group else 1
    name, rest = " ".join(words[:size]), words[size:]
    if len(words) < size or words[size - 1] in ("-h", "--help"):
        return _list(group)
    if name not in COMMANDS:
        known = [one for one in COMMANDS if one.startswith(group)] + ["data"] * (not group)
        return _error(unknown_name("command", name, known))
    try:
        with _ending_at_once():
            import tyro

            command = load(name)
        if name == "bench":  # its flags depend on the plan that is named
            result = command(rest)
        else:
            result = tyro.cli(command, prog=f"dasp {name}", args=rest)
    except DaspError as error:
        if os.environ.get(DEBUG):
            traceback.print_exception(error)
        return _error(str(error))
    except BrokenPipeError:  # the reader of the output, `head` perhaps, has closed it
        sys.stderr.close()
        return 141
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _error(f"{place}{error.strerror or error}")
    return result if isinstance(result, int) else 0


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """End the process at Ctrl-C: libraries swallow or garble an exception inside their imports."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield  # ignored, as in the background of a shell, or the caller's own
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _list(group: str) -> int:
    print(f"usage: dasp {group}COMMAND …\n\nMulti-modal test-time adaptation.\n")
    for name, (_, about) in COMMANDS.items():
        if name.startswith(group):
            print(f"  {name:14}  {about}")
    print("\n`dasp COMMAND --help` lists the options of a command, `dasp --version` the version.")
    return 0


def _error(message: str) -> int:
    from rich.console import Console
    from rich.text import Text

    text = Text.assemble(("error:", "bold red"), " ", message)
    Console(stderr=True).print(text, soft_wrap=True)
    return 2
