"""Items made a little before they are asked for, in a thread of their own."""

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Drawn(Generic[Item]):
    """An item, or why there are no more: an error, or None at the end."""

    def __init__(self, items: tuple[Item, ...] = (), error: BaseException | None = None) -> None:
        self.items, self.error = items, error


@contextmanager
def drawn_ahead(items: Iterable[Item], depth: int = 2) -> Iterator[Iterator[Item]]:
    """Give the items, in order, of which a thread makes up to `depth` before they are asked for.

    An error in making one is raised where it is asked for. The thread ends with the block, also
    when not all items were taken. With depth 0 they are made when asked for, here.

    >>> with drawn_ahead(range(3)) as numbers:
    ...     print(list(numbers))
    [0, 1, 2]
    """
    if depth == 0:
        yield iter(items)
        return
    ready: SimpleQueue[_Drawn[Item]] = SimpleQueue()
    room, over = threading.Semaphore(depth), threading.Event()

    def draw() -> None:
        source = iter(items)
        try:
            while room.acquire() and not over.is_set():
                ready.put(_Drawn((next(source),)))
        except StopIteration:
            ready.put(_Drawn())
        except BaseException as error:
            ready.put(_Drawn(error=error))
        if isinstance(source, Generator):
            source.close()

    thread = threading.Thread(target=draw, name="drawn ahead", daemon=True)
    thread.start()
    try:
        yield _taken(ready, room)
    finally:
        over.set()
        room.release()
        thread.join()


def _taken(ready: SimpleQueue[_Drawn[Item]], room: threading.Semaphore) -> Iterator[Item]:
    while True:
        drawn = ready.get()
        if drawn.error is not None:
            raise drawn.error
        if not drawn.items:
            return
        room.release()
        yield drawn.items[0]
