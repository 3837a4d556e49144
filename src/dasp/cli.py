"""The command `dasp`. No logic here: each command is a function of another room."""

import sys
from collections.abc import Callable
from typing import Any

import tyro
from rich.console import Console
from rich.markup import escape

from dasp.bench.checks import check_method
from dasp.bench.train import train
from dasp.core.errors import DaspError
from dasp.report.bench_command import bench, tune
from dasp.report.commands import report
from dasp.streams import commands


def check(method: tyro.conf.Positional[str]) -> None:
    """Run the contract check on a registered method.

    Args:
        method: its name, such as "dasp".
    """
    check_method(method)
    Console().print(f"{method} keeps the contract")


def data() -> None:
    """Look over a data set: `dasp data check`, `dasp data checksum`."""


DATA: dict[str, Callable[..., Any]] = {
    "check": commands.data_check,
    "checksum": commands.data_checksum,
}
COMMANDS: dict[str, Callable[..., Any]] = {
    "bench": bench,
    "report": report,
    "tune": tune,
    "train": train,
    "check": check,
    "prepare": commands.prepare,
    "data": data,
    "corrupt": commands.corrupt,
    "preview": commands.preview,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors of the user's become one line and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    chosen, name = COMMANDS, "dasp"
    if words[:1] == ["data"]:
        chosen, name, words = DATA, "dasp data", words[1:]
    try:
        result = tyro.extras.subcommand_cli_from_dict(
            chosen, prog=name, description="Multi-modal test-time adaptation.", args=words
        )
    except DaspError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        return 2
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; what was finished is kept")
        return 130
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
