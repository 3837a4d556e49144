"""The commands `dasp demo` and `dasp monitor`."""

from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console

from dasp.methods.dasp_variants import Variant
from dasp.page import show
from dasp.page.demo import demo_session
from dasp.page.follow import LogFeed

Log = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="LOG")]]


def demo(
    variant: Variant = "released",
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
) -> None:
    """Watch sensors go bad and the model recover, in the browser; Ctrl-C ends it.

    Args:
        variant: which DASP: as released, as in the paper, or our robust one.
        host: the address to listen at; any but this computer's own needs the printed token.
        port: by default 8710 or the next free one.
        browser: open the page in the browser.
    """
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))  # the browser draws here, too
    show(lambda: demo_session(variant), host, port, browser, say=_say)


def monitor(
    log: Log, host: str = "127.0.0.1", port: int | None = None, browser: bool = True
) -> None:
    """Watch a running process in the browser by its event log; only looks. Ctrl-C ends it.

    Args:
        log: the file that the process was given: dasp.adapt(model, log=LOG).
        host: the address to listen at; any but this computer's own needs the printed token.
        port: by default 8710 or the next free one.
        browser: open the page in the browser.
    """
    show(lambda: LogFeed(log), host, port, browser, say=_say)


def _say(text: str) -> None:
    Console().print(text, highlight=False, soft_wrap=True)
