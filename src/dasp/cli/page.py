"""The commands `dasp demo` and `dasp monitor`."""

from pathlib import Path
from typing import Annotated

import torch
import tyro

from dasp.core.devices import find_device
from dasp.page import show
from dasp.page.demo import Demo
from dasp.page.follow import LogFeed


def demo(
    root: Path | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    device: str = "cpu",
) -> None:
    """Watch sensors go bad and the model recover, in the browser; Ctrl-C ends it.

    Args:
        root: Directory of Daily and Sports Activities, for a second stage of body-worn sensors.
        host: Address to listen at; any but a loopback address needs the printed token.
        port: Port to listen at; by default the first free one from 8710 on.
        browser: Open the page in the browser.
        device: Where the models run: auto, cpu, cuda, cuda:1 or mps.
    """
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))  # the browser draws here, too
    show(Demo(root=root, device=find_device(device)), host, port, browser)


def monitor(
    log: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="LOG")]],
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
) -> None:
    """Watch a running process in the browser by its event log, read-only; Ctrl-C ends it.

    Args:
        log: The file that the process was given: dasp.adapt(model, log=LOG).
        host: Address to listen at; any but a loopback address needs the printed token.
        port: Port to listen at; by default the first free one from 8710 on.
        browser: Open the page in the browser.
    """
    show(LogFeed(log), host, port, browser)
