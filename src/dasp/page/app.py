"""The web application: the page's files, its sounds, one websocket per browser, and who may enter.

On a loopback address the Host header must be a loopback name too, so that a foreign name that
resolves to this computer (DNS rebinding) does not reach the page. On any other address a token is
required, in the address (`?token=…`) or in the cookie that the first visit sets. In both cases a
websocket must come from the page's own origin.
"""

import asyncio
import ipaddress
import json
import secrets
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from fastapi import FastAPI, HTTPException, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse, PlainTextResponse
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from dasp.core.errors import OptionError
from dasp.page.runner import Cursor, Runner

STATIC = Path(__file__).parent / "static"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MAX_PAGES = 32  # open at a time
REST = 0.05  # seconds between two looks for news; what is new by then is sent together
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


def build_app(runner: Runner, token: str | None = None, cookie: str = "dasp_token") -> FastAPI:
    """Return the application for a runner; with `token=None` only this computer may enter."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    files = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}
    pages: set[WebSocket] = set()

    @app.get("/")
    def index(request: Request) -> Response:
        page = FileResponse(STATIC / "index.html", media_type="text/html")
        if token is not None and "token" in request.query_params:
            page.set_cookie(cookie, token, httponly=True, samesite="lax")
        return page

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return FileResponse(files[name], media_type=TYPES[files[name].suffix])

    @app.get("/sound/{key}/{index}.wav")
    def sound(key: str, index: int) -> Response:
        wav = runner.history.sound(key, index)
        if wav is None:
            raise HTTPException(404, "this sound is gone: only the latest are kept.")
        return Response(wav, media_type="audio/wav")

    @app.websocket("/ws")
    async def news(socket: WebSocket) -> None:
        await socket.accept()
        if len(pages) >= MAX_PAGES:
            await socket.close(1013, "too many pages are open")
            return
        pages.add(socket)
        try:
            await Connection(socket, runner).serve()
        finally:
            pages.discard(socket)

    @app.middleware("http")
    async def with_headers(request: Request, answer: Any) -> Response:
        response: Response = await answer(request)
        response.headers.update(HEADERS)
        return response

    app.add_middleware(Access, token=token, cookie=cookie)
    return app


class Access:
    """Answers 403 to requests that may not see the page, its files, sounds and websocket."""

    def __init__(self, app: ASGIApp, token: str | None, cookie: str) -> None:
        self.app, self.token, self.cookie = app, token, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        guarded = scope["type"] in ("http", "websocket")
        reason = self.refusal(HTTPConnection(scope)) if guarded else None
        if reason is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": reason})
        else:
            await PlainTextResponse(reason, 403, headers=HEADERS)(scope, receive, send)

    def refusal(self, request: HTTPConnection) -> str | None:
        """Return why a request is refused, None if it is not."""
        host = request.headers.get("host", "")
        if self.token is None and not is_loopback(host):
            return f"this page answers on this computer only, not as '{host}'."
        origin = request.headers.get("origin")
        is_socket = request.scope["type"] == "websocket"
        if is_socket and origin is not None and origin.partition("://")[2] != host:
            return "a websocket must come from the page itself."
        given = request.query_params.get("token") or request.cookies.get(self.cookie) or ""
        expected = given if self.token is None else self.token
        if not secrets.compare_digest(given.encode(), expected.encode()):
            return "open the address that was printed where the page was started: it has a token."
        return None


class Connection:
    """One browser: sends it the news and takes its commands."""

    def __init__(self, socket: WebSocket, runner: Runner) -> None:
        self._socket, self._runner = socket, runner
        self._errors: deque[str] = deque(maxlen=16)  # answers to wrong messages

    async def serve(self) -> None:
        """Serve the browser until it disconnects."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_news, tasks.cancel_scope)
                await self._receive_commands()
                tasks.cancel_scope.cancel()
        except asyncio.CancelledError:
            if not self._runner.stopped:
                raise  # when the server stops, a browser that does not read is abandoned

    async def _send_news(self, scope: anyio.CancelScope) -> None:
        seen = Cursor()
        with suppress(WebSocketDisconnect):
            while not self._runner.stopped:
                while self._errors:
                    await self._send({"kind": "error", "message": self._errors.popleft()})
                news, seen = self._runner.news(seen)
                if news is not None and news["fresh"]:
                    news["about"] = self._runner.feed.about()
                if news is not None:
                    await self._send(news)
                await asyncio.sleep(REST)
            with suppress(RuntimeError):  # closed by the browser just now
                await self._socket.close(1001, "the page is closed")
        scope.cancel()

    async def _receive_commands(self) -> None:
        while (message := await self._socket.receive())["type"] != "websocket.disconnect":
            try:
                self._runner.control(_parse(message.get("text")))
            except OptionError as error:
                self._errors.append(str(error))

    async def _send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message, allow_nan=False)
        try:
            await self._socket.send_text(text)
        except RuntimeError as error:  # closed by the browser just now
            raise WebSocketDisconnect(1006) from error


def _parse(text: str | None) -> dict[str, Any]:
    try:
        command = json.loads(text or "")
    except (ValueError, RecursionError):
        command = None
    if not isinstance(command, dict) or "do" not in command:
        raise OptionError('a message is JSON such as {"do": "pause"}.')
    return command


def is_loopback(host: str) -> bool:
    """Return whether a Host header, with or without a port, is a loopback name or address.

    >>> is_loopback("127.0.0.1:8710"), is_loopback("[::1]"), is_loopback("example.org")
    (True, True, False)
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
