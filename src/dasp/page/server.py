"""Put a feed on a page: a socket, the server's thread and the runner's thread."""

import errno
import secrets
import socket
import threading
import time

import uvicorn

from dasp.core.errors import OptionError, StateError
from dasp.page.app import build_app, is_loopback
from dasp.page.runner import Feed, Runner

FIRST_PORT, PORTS = 8710, 20
LARGEST_MESSAGE = 64 * 1024  # bytes that a browser may send at once


class Page:
    """A feed on a page, up from its creation until `close`. Also a context manager."""

    def __init__(
        self, feed: Feed, host: str = "127.0.0.1", port: int | None = None, playing: bool = True
    ) -> None:
        self._socket = open_socket(host, port)
        address, port = self._socket.getsockname()[:2]
        token = None if is_loopback(_netloc(address, port)) else secrets.token_urlsafe(24)
        name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
        self.url = f"http://{_netloc(name, port)}/" + (f"?token={token}" if token else "")
        self.runner = Runner(feed, playing)
        self._server = uvicorn.Server(
            uvicorn.Config(
                build_app(self.runner, token, f"dasp_{port}"),
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                ws_max_size=LARGEST_MESSAGE,
                timeout_graceful_shutdown=1,
            )
        )
        # An event instead of join(): Ctrl-C in join() makes Python think the thread has ended.
        self._ended = threading.Event()
        threading.Thread(target=self._serve, name="dasp-web", daemon=True).start()
        while not self._server.started:
            if self._ended.is_set():
                raise StateError("the web server did not start; see its own message above.")
            time.sleep(0.01)
        self.runner.start()

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        """Close the connections to all browsers and end both threads."""
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
    """Listen at the port given, or at the first free one from 8710 on; 0 takes any."""
    if port is not None and not 0 <= port <= 65535:
        raise OptionError(f"a port is 0 to 65535, not {port}.")
    candidates = [*range(FIRST_PORT, FIRST_PORT + PORTS), 0] if port is None else [port]
    for candidate in candidates:
        try:
            found = socket.getaddrinfo(
                host, candidate, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, address = found[0]
            return socket.create_server(address[:2], family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                message = f"cannot listen at {host}:{candidate}: {error.strerror or error}."
                raise OptionError(message) from error
    raise OptionError(
        f"port {candidate} is in use: choose another with --port, or leave --port out to take the "
        "next free one."
    )


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
