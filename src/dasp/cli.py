"""The command `dasp`. No logic here: each command is a function of another room."""

import sys
from collections.abc import Callable
from typing import Any

import tyro
from rich.console import Console

from dasp.bench.checks import check_method
from dasp.bench.first_run import first_run
from dasp.core.errors import DaspError


def run(seed: int = 0) -> None:
    """Adapt the toy model on a synthetic shifted stream by every method, and print the table.

    Args:
        seed: of the synthetic world and of the toy model's training.
    """
    first_run(seed)


def check(method: tyro.conf.Positional[str]) -> None:
    """Run the contract check on a registered method.

    Args:
        method: its name, such as "dasp".
    """
    check_method(method)
    Console().print(f"{method} keeps the contract")


COMMANDS: dict[str, Callable[..., Any]] = {"run": run, "check": check}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors of the user's become one line and exit code 2."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="dasp", description="Multi-modal test-time adaptation.", args=arguments
        )
    except DaspError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", highlight=False)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
