"""Put a feed on a page: its files, its sounds, one websocket per browser, and who may enter.

On a loopback address the Host header must be a loopback name too, so that a foreign name that
resolves to this computer (DNS rebinding) does not reach the page. On any other address a token is
required, in the address (`?token=…`) or in the cookie that the first visit sets. In both cases a
websocket must come from the page's own origin.
"""

import asyncio
import errno
import ipaddress
import json
import mimetypes
import secrets
import socket
import threading
import time
from base64 import b64decode
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio.to_thread
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from starlette.requests import HTTPConnection

from dasp.core.errors import DaspError, OptionError, StateError
from dasp.page.export import csv_text
from dasp.page.runner import Feed, Runner

FIRST_PORT, PORTS = 8710, 20
CONNECTIONS = 64  # at a time; more are refused
LARGEST_MESSAGE = 64 * 1024  # bytes that a browser may send at once by the websocket
LARGEST_SAMPLE = 64 * 1024**2  # bytes of a sample that is dropped on the page, in base64
STATIC = Path(__file__).parent / "static"
REST = 0.05  # seconds between two looks for news; what is new by then is sent together
GONE = (WebSocketDisconnect, RuntimeError)  # raised by a send after the browser has closed
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; media-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
mimetypes.add_type("text/javascript", ".js")  # some systems call it plain text


class Page(AbstractContextManager["Page"]):
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
        app = build_app(self.runner, token, f"dasp_{port}")
        config = uvicorn.Config(app, log_level="warning", lifespan="off", server_header=False)
        config.ws_max_size, config.timeout_graceful_shutdown = LARGEST_MESSAGE, 1
        config.limit_concurrency = CONNECTIONS
        self._server = uvicorn.Server(config)
        # An event instead of join(): Ctrl-C in join() makes Python think the thread has ended.
        self._ended = threading.Event()
        threading.Thread(target=self._serve, name="dasp-web", daemon=True).start()
        while not self._server.started:
            if self._ended.is_set():
                self.runner.stop()
                raise StateError("the web server did not start; see its own message above.")
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Wait for Ctrl-C, then close."""
        try:
            with suppress(KeyboardInterrupt):
                while not self._ended.wait(0.5):
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
            found = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)
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


def build_app(runner: Runner, token: str | None = None, cookie: str = "dasp_token") -> FastAPI:
    """Return the application for a runner; with `token=None` only this computer may enter."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.websocket("/{path:path}")  # all paths, so that none escapes the check
    async def news(line: WebSocket) -> None:
        reason = refusal(line, token, cookie)
        if reason is None:
            await line.accept()
            await _talk(line, runner)
        else:
            await line.close(1008, reason)

    @app.middleware("http")
    async def checked(request: Request, answer: Any) -> Response:
        reason = refusal(request, token, cookie)
        response = await answer(request) if reason is None else PlainTextResponse(reason, 403)
        response.headers.update(HEADERS)
        return cast(Response, response)

    @app.get("/")
    def index(request: Request) -> Response:
        page = FileResponse(STATIC / "index.html", media_type="text/html")
        if token is not None and "token" in request.query_params:
            page.set_cookie(cookie, token, httponly=True, samesite="lax")
        return page

    @app.get("/sound/{key}/{index}.wav")
    def sound(key: str, index: int) -> Response:
        wav = runner.history.sound(key, index)
        if wav is None:
            raise HTTPException(404, "this sound is gone: only the latest are kept.")
        return Response(wav, media_type="audio/wav")

    @app.get("/stream.csv")
    def table() -> Response:
        name = {"Content-Disposition": 'attachment; filename="stream.csv"'}
        return Response(csv_text(runner.history.points()), media_type="text/csv", headers=name)

    @app.post("/sample")
    async def sample(request: Request) -> Response:
        return await _predicted(request, runner.feed)

    app.mount("/static", StaticFiles(directory=STATIC))
    return app


def refusal(request: HTTPConnection, token: str | None, cookie: str) -> str | None:
    """Return why a request for the page, a file, a sound or the websocket is refused, or None."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if token is None and not is_loopback(host):
        return f"this page answers on this computer only, not as '{host}'."
    # What a foreign site may not do through the browser of a visitor: read news, send a sample.
    acts = request.scope["type"] == "websocket" or request.scope.get("method") == "POST"
    if acts and origin is not None and origin.partition("://")[2] != host:
        return "this must come from the page itself."
    given = request.query_params.get("token") or request.cookies.get(cookie) or ""
    if token is not None and not secrets.compare_digest(given.encode(), token.encode()):
        return "open the address that was printed where the page was started: it has a token."
    return None


async def _predicted(request: Request, feed: Feed) -> Response:
    """Answer a sample {"files": {name: base64}} with its predictions, or say what is wrong."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_SAMPLE:
            return PlainTextResponse(f"a sample has at most {LARGEST_SAMPLE} bytes.", 413)
    try:
        given = json.loads(body)["files"]
        files = {str(name): b64decode(content) for name, content in given.items()}
        return JSONResponse(await anyio.to_thread.run_sync(feed.predict, files))
    except DaspError as error:
        return PlainTextResponse(str(error), 400)
    except Exception as error:  # not a sample, or from the user's model or reader: say it, go on
        return PlainTextResponse(f"{type(error).__name__}: {error}", 400)


async def _talk(line: WebSocket, runner: Runner) -> None:
    """Send the news to a browser and carry out its commands until it disconnects."""

    async def send_news() -> None:
        seen = -1
        with suppress(*GONE):
            while not runner.stopped:
                news, seen = runner.news(seen)
                if news is not None:
                    about = {"about": runner.feed.about()} if news["fresh"] else {}
                    await line.send_text(json.dumps(news | about, allow_nan=False))
                await asyncio.sleep(REST)
            await line.close(1001, "the page is closed")
        tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_news)
            with suppress(*GONE):
                while (message := await line.receive())["type"] != "websocket.disconnect":
                    try:
                        command = json.loads(message.get("text") or "null")
                        runner.control(command if isinstance(command, dict) else {})
                    except (ValueError, RecursionError) as error:  # not JSON, or an OptionError
                        await line.send_json({"kind": "error", "message": str(error)})
            tasks.cancel_scope.cancel()
    except asyncio.CancelledError:
        if not runner.stopped:
            raise  # when the server stops, a browser that does not read is abandoned


def is_loopback(host: str) -> bool:
    """Return whether a Host header, with or without a port, is a loopback name or address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
