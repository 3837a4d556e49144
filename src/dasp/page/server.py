"""A page that is up: its socket, its address, the server's thread and the runner's."""

import errno
import socket
import threading
import time
import webbrowser
from typing import NoReturn

import uvicorn

from dasp.core.errors import OptionError, StateError
from dasp.page.access import Access, is_loopback, new_token
from dasp.page.app import build_app
from dasp.page.board import Board
from dasp.page.feed import Feed
from dasp.page.runner import Runner

FIRST_PORT, PORTS = 8710, 20
LARGEST_MESSAGE = 64 * 1024  # bytes that a browser may send at once


class Page:
    """A feed on a page. Up from its making until `close`; also a context manager."""

    def __init__(
        self,
        feed: Feed,
        host: str = "127.0.0.1",
        port: int | None = None,
        playing: bool = True,
    ) -> None:
        self._socket = open_socket(host, port)
        address, own_port = self._socket.getsockname()[:2]
        token = None if is_loopback(address) else new_token()
        self.url = _url(host, own_port, token)
        self.runner = Runner(feed, Board(), playing)
        app = build_app(self.runner, Access(token, f"dasp_{own_port}"))
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                ws_max_size=LARGEST_MESSAGE,
                timeout_graceful_shutdown=1,
            )
        )
        # Waited for instead of the thread: Ctrl-C in join() makes Python think that it has ended.
        self._ended = threading.Event()
        threading.Thread(target=self._serve, name="dasp-web", daemon=True).start()
        while not self._server.started:
            if self._ended.is_set():
                raise StateError("the web server did not start; its own message stands above.")
            time.sleep(0.01)
        self.runner.start()

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self) -> None:
        """Open it in the browser, where there is one."""
        webbrowser.open(self.url)

    def wait(self) -> None:
        """Wait for Ctrl-C, then close."""
        try:
            while not self._ended.wait(0.5):
                pass
        except KeyboardInterrupt:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Take it down: browsers are told, both threads end."""
        self.runner.stop()
        self._server.should_exit = True
        self._ended.wait(5)
        self._socket.close()

    def _serve(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._ended.set()


def open_socket(host: str, port: int | None) -> socket.socket:
    """Listen at a port: the one given, or else 8710 or the next free one; 0 takes any."""
    if port is not None:
        return _listen(host, port)
    for candidate in range(FIRST_PORT, FIRST_PORT + PORTS):
        try:
            return _listen(host, candidate)
        except OptionError as error:
            if not isinstance(error.__cause__, OSError) or not _in_use(error.__cause__):
                raise
    return _listen(host, 0)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise OptionError(f"a port is 0 to 65535, not {port}.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        _refuse(host, port, error)


def _refuse(host: str, port: int, error: OSError) -> NoReturn:
    if _in_use(error):
        raise OptionError(
            f"port {port} is in use: choose another with --port, or leave --port out to take the "
            "next free one."
        ) from error
    raise OptionError(f"cannot listen at {host}:{port}: {error.strerror or error}.") from error


def _in_use(error: OSError) -> bool:
    return error.errno == errno.EADDRINUSE


def _url(host: str, port: int, token: str | None) -> str:
    if host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + ("" if token is None else f"?token={token}")
