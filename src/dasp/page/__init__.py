"""The live page: `dasp demo`, `dasp monitor LOG`, and `dasp.page.serve(tta, stream)`.

A feed gives one `Update` per batch: a `Session` runs a stream through adaptations, the `Demo` is
one with stages and methods to choose from, a `LogFeed` follows an event log. A `Runner` drives the
feed in a thread of its own and keeps the history that browsers read. Only `server` knows the web;
it needs the extra [demo] and is imported when a page is opened. The front end is the plain files in
`static`.
"""

import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dasp.core.errors import OptionError
from dasp.core.extras import extra
from dasp.methods import Adaptation
from dasp.page.dropped import Reader, read_arrays
from dasp.page.runner import Feed
from dasp.page.session import Session
from dasp.page.streams import UserStream

if TYPE_CHECKING:
    from dasp.page.server import Page

__all__ = ["serve", "show"]


def serve(
    tta: Adaptation | Mapping[str, Adaptation],
    stream: Iterable[Any],
    *,
    classes: Sequence[str] = (),
    sample_rate: int = 16000,
    read: Reader = read_arrays,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    wait: bool = True,
) -> "Page":
    """Show your own adaptation on your own stream in the browser until Ctrl-C.

    The stream yields inputs {name: (B, ...)}, or (inputs, labels), or `dasp.core.types.Batch`.
    With labels the page shows accuracies. Inputs (B, 3, H, W) are shown as pictures, (B, T, F) as
    spectrograms; (B, samples) can be played. A sample that is dropped on the page is predicted with
    and without adaptation, and changes nothing.

    Args:
        tta: what `dasp.adapt` returned; or several by name, the last of which is watched.
        stream: batches; a list or a DataLoader starts over when the page is reset.
        classes: names of the classes.
        sample_rate: sampling rate of inputs that are waves.
        read: turns the files of a dropped sample, {name: bytes}, into inputs {name: tensor}; by
            default .npz, .npy and .safetensors are read, with one array per modality.
        host: address to listen at; any but a loopback address needs the token in `url`.
        port: port to listen at; by default the first free one from 8710 on.
        browser: whether to open the page in the browser.
        wait: whether to return only after Ctrl-C; otherwise return at once with the page open.
    """
    lanes = dict(tta) if isinstance(tta, Mapping) else {"": tta}
    for one in lanes.values():
        if not isinstance(one, Adaptation):
            raise OptionError(f"serve shows what dasp.adapt returned, not {type(one).__name__}.")
    lanes = {name or type(one.method).__name__: one for name, one in lanes.items()}
    title = f"dasp: {', '.join(lanes)}"
    own = UserStream(stream, sample_rate)
    feed = Session(own, lanes, title, classes=classes, read=read)
    return show(feed, host, port, browser, wait)


def show(
    feed: Feed,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    wait: bool = True,
) -> "Page":
    """Open a page on a feed, print its address, and wait for Ctrl-C."""
    for module in ("fastapi", "uvicorn", "websockets", "PIL"):
        extra(module, "demo")
    from dasp.page.server import Page

    page = Page(feed, host, port)
    print(f"the page is at {page.url}" + (" (Ctrl-C ends it)" if wait else ""), flush=True)
    if browser:
        webbrowser.open(page.url)
    if wait:
        page.wait()
    return page
