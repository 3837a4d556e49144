"""The live page: `dasp demo`, `dasp monitor LOG`, and `dasp.page.serve(tta, stream)`.

A `Feed` gives one `Update` a batch: a `Session` runs a stream through adaptations, a `LogFeed`
follows a log. A `Runner` drives it in a thread of its own and posts on the `Board`, where each
browser looks up what it has not seen. Only `access`, `app` and `server` know the web; they need the
[demo] extra and are imported when a page is opened. The front end is the plain files in `static`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dasp.core.errors import OptionError
from dasp.methods import Adaptation
from dasp.page.feed import Feed

if TYPE_CHECKING:
    from dasp.page.server import Page

__all__ = ["serve", "show"]

EXTRA = ("fastapi", "uvicorn", "websockets")


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
    """Show your own adaptation on your own stream in the browser, until Ctrl-C.

    The stream gives inputs {name: (B, ...)}, or (inputs, labels), or `dasp.core.types.Batch`.
    With labels the page has accuracies. Inputs (B, 3, H, W) are shown as pictures, (B, T, F) as
    spectrograms, (B, samples) can be heard.

    Args:
        tta: what `dasp.adapt` returned; or several by name, the last of which is watched.
        stream: batches; a list or a DataLoader starts over when the page is reset.
        classes: names of the classes.
        title: of the page.
        sample_rate: of inputs that are waves.
        host: the address to listen at; any but this computer's own needs the token in `url`.
        port: by default 8710 or the next free one.
        browser: open the page in the browser.
        wait: return when the page is closed by Ctrl-C; otherwise at once, with the page up.
    """
    from dasp.page.own import OwnStream
    from dasp.page.session import Session

    for one in tta.values() if isinstance(tta, Mapping) else [tta]:
        if not isinstance(one, Adaptation):
            found = type(one).__name__
            raise OptionError(f"serve shows what dasp.adapt returned, or several: not {found}.")
    lanes = dict(tta) if isinstance(tta, Mapping) else {type(tta.method).__name__: tta}
    heading = title or f"dasp: {', '.join(lanes)}"
    session = Session(OwnStream(stream, sample_rate), lanes, heading, classes=classes)
    return show(lambda: session, host, port, browser, wait)


def show(
    build: Callable[[], Feed],
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    wait: bool = True,
    say: Callable[[str], None] = print,
) -> "Page":
    """Build a feed, put it on a page, say its address, and wait for Ctrl-C."""
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
    say(f"the page is at {page.url}" + (" (Ctrl-C ends it)" if wait else ""))
    if browser:
        page.show()
    if wait:
        page.wait()
    return page
