"""The thin web side: the page's files, sounds, and one websocket a browser."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from fastapi import FastAPI, HTTPException, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse

from dasp.core.errors import OptionError
from dasp.page.access import HEADERS, Access, Guard
from dasp.page.board import Mark
from dasp.page.runner import Runner

STATIC = Path(__file__).parent / "static"
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PAGES = 32  # browsers at a time
REST = 0.05  # seconds between two messages to a browser: what comes meanwhile goes together


def build_app(runner: Runner, access: Access) -> FastAPI:
    """Return the application that shows what a runner runs."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    files = {path.name: path for path in STATIC.iterdir() if path.suffix in KINDS}

    @app.get("/")
    def index(request: Request) -> Response:
        page = FileResponse(STATIC / "index.html", media_type="text/html")
        if access.token is not None and "token" in request.query_params:
            page.set_cookie(access.cookie, access.token, httponly=True, samesite="lax")
        return page

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return FileResponse(files[name], media_type=KINDS[files[name].suffix])

    @app.get("/sound/{key}/{place}.wav")
    def sound(key: str, place: int) -> Response:
        wav = runner.board.sound(key, place)
        if wav is None:
            raise HTTPException(404, "this sound is gone: only the latest are kept.")
        return Response(wav, media_type="audio/wav")

    @app.websocket("/ws")
    async def news(socket: WebSocket) -> None:
        await socket.accept()
        if runner.board.watching >= PAGES:
            await socket.close(1013, "too many pages are open")
            return
        await Visitor(socket, runner).stay()

    @app.middleware("http")
    async def with_headers(request: Request, answer: Any) -> Response:
        response: Response = await answer(request)
        response.headers.update(HEADERS)
        return response

    app.add_middleware(Guard, access=access)
    return app


class Visitor:
    """One browser: sends it what it has not seen, and takes its wishes."""

    def __init__(self, socket: WebSocket, runner: Runner) -> None:
        self._socket, self._runner = socket, runner
        self._news = asyncio.Event()
        self._sending = asyncio.Lock()

    async def stay(self) -> None:
        """Serve it until it goes."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the server has just closed
                loop.call_soon_threadsafe(self._news.set)

        board = self._runner.board
        board.watch(tell)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_all, tasks.cancel_scope)
                await self._listen()
                tasks.cancel_scope.cancel()
        except asyncio.CancelledError:
            if not self._runner.stopped:
                raise  # but when the server ends, a browser that does not listen is just left
        finally:
            board.unwatch(tell)

    async def _send_all(self, visit: anyio.CancelScope) -> None:
        mark = Mark()
        while True:
            self._news.clear()
            if self._runner.stopped:
                with suppress(WebSocketDisconnect, RuntimeError):
                    await self._socket.close(1001, "the page is closed")
                return
            news, mark = self._runner.board.since(mark)
            if news is None:
                await self._news.wait()
                continue
            if news["fresh"]:
                news["about"] = self._runner.feed.about()
            if not await self._send(news):
                visit.cancel()
            await asyncio.sleep(REST)

    async def _listen(self) -> None:
        while (message := await self._socket.receive())["type"] != "websocket.disconnect":
            try:
                self._runner.obey(_wish(message.get("text")))
            except OptionError as error:
                await self._send({"kind": "error", "message": str(error)})

    async def _send(self, message: dict[str, Any]) -> bool:
        """Send a message; False if nobody is there any more."""
        async with self._sending:
            try:
                await self._socket.send_text(json.dumps(message, allow_nan=False))
            except (WebSocketDisconnect, RuntimeError):
                return False
        return True


def _wish(text: str | None) -> dict[str, Any]:
    try:
        wish = json.loads(text or "")
    except (ValueError, RecursionError):
        wish = None
    if not isinstance(wish, dict) or "do" not in wish:
        raise OptionError('a message is JSON such as {"do": "pause"}.')
    return wish
