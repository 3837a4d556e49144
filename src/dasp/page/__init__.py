"""The live page: `dasp demo`, `dasp monitor LOG`, and `dasp.page.serve(tta, stream)`.

A feed gives one `Update` per batch: a `Session` runs a stream through adaptations, a `LogFeed`
follows an event log. A `Runner` drives the feed in a thread of its own and keeps the history that
browsers read. Only `app` and `server` know the web; they need the extra [demo] and are imported
when a page is opened. The front end is the plain files in `static`.
"""

import webbrowser
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dasp.core.errors import OptionError
from dasp.methods import Adaptation
from dasp.page.runner import Feed

if TYPE_CHECKING:
    from dasp.page.server import Page

__all__ = ["serve", "show"]

EXTRA = ("fastapi", "uvicorn", "websockets", "PIL")


def serve(
    tta: Adaptation | Mapping[str, Adaptation],
    stream: Iterable[Any],
    *,
    classes: Sequence[str] = (),
    title: str = "",
    sample_rate: int = 16000,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    wait: bool = True,
) -> "Page":
    """Show your own adaptation on your own stream in the browser until Ctrl-C.

    The stream yields inputs {name: (B, ...)}, or (inputs, labels), or `dasp.core.types.Batch`.
    With labels the page shows accuracies. Inputs (B, 3, H, W) are shown as pictures, (B, T, F) as
    spectrograms; (B, samples) can be played.

    Args:
        tta: what `dasp.adapt` returned; or several by name, the last of which is watched.
        stream: batches; a list or a DataLoader starts over when the page is reset.
        classes: names of the classes.
        title: title of the page.
        sample_rate: sampling rate of inputs that are waves.
        host: address to listen at; any but a loopback address needs the token in `url`.
        port: port to listen at; by default the first free one from 8710 on.
        browser: whether to open the page in the browser.
        wait: whether to return only after Ctrl-C; otherwise return at once with the page open.
    """
    for one in tta.values() if isinstance(tta, Mapping) else [tta]:
        if not isinstance(one, Adaptation):
            raise OptionError(f"serve shows what dasp.adapt returned, not {type(one).__name__}.")
    lanes = dict(tta) if isinstance(tta, Mapping) else {type(tta.method).__name__: tta}

    def build() -> Feed:
        from dasp.page.session import Session
        from dasp.page.streams import UserStream

        heading = title or f"dasp: {', '.join(lanes)}"
        return Session(UserStream(stream, sample_rate), lanes, heading, classes=classes)

    return show(build, host, port, browser, wait)


def show(
    build: Callable[[], Feed],
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    wait: bool = True,
) -> "Page":
    """Build a feed, open a page on it, print its address, and wait for Ctrl-C."""
    for module in EXTRA:
        try:
            import_module(module)
        except ImportError as error:
            raise OptionError(
                f"the page needs '{module}': pip install 'dasp-tta[demo]', or from a clone "
                ".venv/bin/pip install -c constraints.txt -e '.[demo]'."
            ) from error
    from dasp.page.server import Page

    page = Page(build(), host, port)
    print(f"the page is at {page.url}" + (" (Ctrl-C ends it)" if wait else ""), flush=True)
    if browser:
        webbrowser.open(page.url)
    if wait:
        page.wait()
    return page
