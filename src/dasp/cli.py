"""The command `dasp`. No logic here: each command is a function of another room.

The rooms are imported by the command that needs them, inside `main`, so that an interruption
while they load (torch takes seconds) is as quiet as a later one.
"""

import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape

ABOUT = "Multi-modal test-time adaptation. `dasp --version` prints the version."
ABOUT_DATA = "Look over a data set: whether its files are whole, and the same as another lab's."
KEEPING = ("bench", "tune", "prepare", "corrupt")  # what is done is not done again

Commands = dict[str, Callable[..., Any]]


def check(method: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="METHOD")]]) -> None:
    """Run the contract check on a registered method.

    Args:
        method: its name, such as "dasp".
    """
    from dasp.bench.checks import check_method

    check_method(method)
    Console().print(f"{method} keeps the contract")


def data() -> None:
    """Look over a data set: `dasp data check`, `dasp data checksum`."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors of the user's become one line and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(words)
    except KeyboardInterrupt:
        kept = words[:1] and words[0] in KEEPING
        _say("interrupted; what was finished is kept" if kept else "interrupted")
        code = 130
    if arguments is None:  # the program ends: a late Ctrl-C has nothing left to stop
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _run(words: list[str]) -> int:
    from dasp.core.errors import DaspError
    from dasp.core.version import __version__

    if words == ["--version"]:
        print(f"dasp {__version__}")
        return 0
    name, about, chosen = "dasp", ABOUT, _commands()
    if words[:1] == ["data"]:
        name, about, chosen, words = "dasp data", ABOUT_DATA, _data_commands(), words[1:]
    try:
        result = tyro.extras.subcommand_cli_from_dict(
            chosen, prog=name, description=about, args=words
        )
    except DaspError as error:
        return _error(str(error))
    except BrokenPipeError:  # whoever read the output, `head` perhaps, has seen enough
        sys.stderr.close()
        return 141
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _error(f"{place}{error.strerror or error}")
    return result if isinstance(result, int) else 0


def _commands() -> Commands:
    from dasp.bench.train import train
    from dasp.bench.train_depth import train_depth
    from dasp.page.commands import demo, monitor
    from dasp.report.bench_command import bench
    from dasp.report.commands import report
    from dasp.report.tune_command import tune
    from dasp.streams import commands

    return {
        "demo": demo,
        "monitor": monitor,
        "bench": bench,
        "report": report,
        "tune": tune,
        "train": train,
        "train-depth": train_depth,
        "check": check,
        "prepare": commands.prepare,
        "data": data,
        "corrupt": commands.corrupt,
        "preview": commands.preview,
        "preview-shapes": commands.preview_built_in,
    }


def _data_commands() -> Commands:
    from dasp.streams import commands

    return {"check": commands.data_check, "checksum": commands.data_checksum}


def _error(message: str) -> int:
    _say(f"[bold red]error:[/] {escape(message)}")
    return 2


def _say(text: str) -> None:
    Console(stderr=True).print(text, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
