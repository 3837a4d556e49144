"""The web application: requests in, answers out, and who may ask.

Every path but /healthz, /docs and /openapi.json needs the token. A failure is answered with
{"error": message, "type": class of the error}, where the message is the library's own.
"""

import asyncio
import hashlib
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from dasp.core.errors import ContractError, DaspError, InputError, OptionError, StateError
from dasp.core.version import __version__
from dasp.methods.base import device_of
from dasp.methods.state import describe, read_state, write_state
from dasp.serve.journal import segments
from dasp.serve.worker import BusyError, ConflictError, Worker
from dasp.service.wire import KINDS, SAFETENSORS, read_batch

OPEN = ("/healthz", "/docs", "/openapi.json")  # paths without a token
METRICS_WAIT = 2.0  # seconds that /metrics waits for the model before it gives its last figures
LONGEST_ID = 128
# Few threads decode bodies: malloc keeps freed memory apart for each thread that allocates.
DECODERS = ThreadPoolExecutor(2, "dasp-decoder")
STATUS: tuple[tuple[type[Exception], int], ...] = (
    (BusyError, 503),
    (ConflictError, 409),
    (StateError, 409),
    (InputError, 422),
    (ContractError, 422),
    (OptionError, 422),
    (torch.OutOfMemoryError, 503),
    (ClientDisconnect, 400),
    (OSError, 503),
)
BODY = {"requestBody": {"required": True, "content": {kind: {} for kind in KINDS}}}
Answer = Callable[[Request], Awaitable[Response]]
RawAnswer = tuple[int, list[tuple[bytes, bytes]], bytes]  # status, headers, body
Result = TypeVar("Result")


@dataclass(frozen=True)
class WebOptions:
    """What a server takes from its clients."""

    max_bytes: int = 64 * 2**20
    """Largest body of a request, also when an npz file is uncompressed."""
    timeout: float = 60.0
    """Seconds that a request waits for its body, and then for its answer."""


class RefusedError(Exception):
    """A request that is refused before the library sees it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def build_app(
    worker: Worker, token: str | None, options: WebOptions | None = None, closes: bool = True
) -> FastAPI:
    """Return the application; with `closes` the worker ends with it."""
    limits = options or WebOptions()
    meters = Meters(worker)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        yield
        if closes:
            await run_in_threadpool(worker.close)

    app = FastAPI(title="dasp", version=__version__, redoc_url=None, lifespan=lifespan)

    @app.middleware("http")
    async def guarded(request: Request, answer: Answer) -> Response:
        start = time.perf_counter()
        try:
            if request.url.path not in OPEN:
                check_token(request, token)
            response = await answer(request)
        except Exception as error:
            response = failure(error)
        route = getattr(request.scope.get("route"), "path", "other")
        meters.requests.labels(route, str(response.status_code)).inc()
        if route == "/predict":
            meters.seconds.observe(time.perf_counter() - start)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    _answer_refusals(app)
    _answer_batches(app, worker, limits)
    _answer_watchers(app, worker, limits, meters)
    _answer_states(app, worker, limits)
    return app


def _answer_refusals(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def misspelt(_: Request, error: RequestValidationError) -> JSONResponse:
        said = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
        return failure(RefusedError(422, f"{said}; see /docs."))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        asked = f"{request.method} {request.url.path}"
        return failure(RefusedError(error.status_code, f"{asked}: {error.detail}; see /docs."))


def _answer_batches(app: FastAPI, worker: Worker, limits: WebOptions) -> None:
    @app.post("/predict", openapi_extra=BODY)
    async def predict(request: Request, learn: bool = True) -> Response:
        """Predict a batch {modality: (B, ...)} and adapt to it, or only predict."""
        name = request.headers.get("x-request-id", "")
        if len(name) > LONGEST_ID:
            raise RefusedError(422, f"X-Request-Id has more than {LONGEST_ID} characters.")
        body = await read_body(request, limits)
        kind = request.headers.get("content-type", "")

        def submit() -> Any:
            model = worker.tta.model
            dtype = next((p.dtype for p in model.parameters()), torch.float32)
            inputs = read_batch(body, kind, dtype, limits.max_bytes)
            inputs = {name: own.to(device_of(model)) for name, own in inputs.items()}
            digest = hashlib.sha256(body)
            digest.update(str(learn).encode())
            return worker.submit(inputs, name, digest.hexdigest(), learn)

        future = await asyncio.get_running_loop().run_in_executor(DECODERS, submit)
        answer = await _in_time(asyncio.wrap_future(future), limits.timeout)
        return Response(answer, media_type="application/json")


def _answer_watchers(app: FastAPI, worker: Worker, limits: WebOptions, meters: "Meters") -> None:
    @app.get("/info")
    def info() -> dict[str, Any]:
        """Return what is served: version, method, modalities, classes and limits."""
        model = worker.tta.model
        return {
            "version": __version__,
            **describe(worker.tta.method),
            "modalities": list(model.modalities),  # type: ignore[arg-type]
            "classes": model.num_classes,
            "samples": worker.options.samples,
            "max_bytes": limits.max_bytes,
        }

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        """Return 200, or 503 and the `problem` if the model hangs or has ended."""
        health = worker.health()
        return JSONResponse(health, 503 if health["problem"] else 200)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return the figures of the server and of its adaptation in Prometheus' text format."""
        return Response(await meters.text(), media_type="text/plain; version=0.0.4")


def _answer_states(app: FastAPI, worker: Worker, limits: WebOptions) -> None:
    async def done(future: "Future[Result]") -> Result:
        return await _in_time(asyncio.wrap_future(future), limits.timeout)

    @app.get("/state")
    async def download() -> Response:
        """Return the adapted state, a file for `tta.load`."""
        state = await done(worker.between(worker.tta.state))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "state.safetensors")
            await run_in_threadpool(write_state, path, state)
            return Response(path.read_bytes(), media_type=SAFETENSORS)

    @app.put("/state", openapi_extra=BODY)
    async def upload(request: Request) -> dict[str, str]:
        """Take over a state of the same model, method and options."""
        body = await read_body(request, limits)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "the uploaded state")
            path.write_bytes(body)
            try:
                state = await run_in_threadpool(read_state, path)
            except StateError as error:
                raise StateError(str(error).replace(f"{folder}/", "")) from error
        await done(worker.load_state(state))
        return {"state": "replaced"}

    @app.post("/state/reset")
    async def reset() -> dict[str, str]:
        """Return to the source state."""
        await done(worker.reset())
        return {"state": "source"}

    @app.post("/state/rollback")
    async def rollback(to: int | None = None) -> dict[str, int]:
        """Return to a checkpoint of /state/history, by default the last one."""
        return {"segment": await done(worker.roll_back(to))}

    @app.get("/state/history")
    def history() -> list[dict[str, Any]]:
        """Return the checkpoints that are kept, oldest first."""
        return [{"segment": one.number, **one.begin} for one in segments(worker.journal.folder)]


class Meters:
    """Metrics of the server itself, beside those of its adaptation."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._adaptation = worker, ""
        self._asked: Future[str] | None = None  # at most one at a time waits for a hung model
        own = self._registry = CollectorRegistry()
        labels = ("path", "status")
        self.requests = Counter("dasp_requests", "Requests answered", labels, registry=own)
        self.seconds = Histogram("dasp_request_seconds", "Time to an answer", registry=own)
        for name, help_text, value in (
            ("waiting", "Requests that wait", lambda: worker.health()["waiting"]),
            ("busy_seconds", "Running time of the current batch",
             lambda: worker.health()["busy_seconds"]),
            ("journal_batches", "Batches in the journal", lambda: worker.batches),
            ("journal_write_errors", "Records that could not be written",
             lambda: worker.write_errors),
        ):  # fmt: skip
            Gauge(f"dasp_{name}", help_text, registry=own).set_function(value)

    async def text(self) -> str:
        """Return all figures; those of an adaptation that does not answer are its last ones."""
        own = generate_latest(self._registry).decode()
        with suppress(RefusedError, BusyError):
            if self._asked is None or self._asked.done():
                self._asked = self._worker.between(self._worker.tta.metrics)
            asked = asyncio.wrap_future(self._asked)
            self._adaptation = await _in_time(asked, METRICS_WAIT)
        return own + self._adaptation


def failure(error: Exception) -> JSONResponse:
    """Return the answer to a request that failed."""
    kind = type(error).__name__ if isinstance(error, DaspError) else "Error"
    if isinstance(error, RefusedError):
        status, message = error.status, str(error)
    else:
        status = next((code for known, code in STATUS if isinstance(error, known)), 500)
        own = isinstance(error, DaspError)
        message = str(error) if own else f"the model failed: {type(error).__name__}: {error}"
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(status)
    return JSONResponse({"error": message, "type": kind}, status, headers)


def check_token(request: Request, token: str | None) -> None:
    """Refuse a request without the token, compared in constant time."""
    given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
    if token is not None and not secrets.compare_digest(given, token.encode()):
        raise RefusedError(401, "send the header 'Authorization: Bearer TOKEN' with the token "
                           "that the server printed or was given.")  # fmt: skip


async def read_body(request: Request, limits: WebOptions) -> bytes:
    """Read a body within the limits of size and time."""
    message = f"the body is larger than {limits.max_bytes:,} bytes: send fewer samples at once."
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > limits.max_bytes:
        raise RefusedError(413, message)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.timeout):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > limits.max_bytes:
                    raise RefusedError(413, message)
    except TimeoutError:
        raise RefusedError(408, "the body did not come in time: send it again.") from None
    return b"".join(parts)


async def _in_time(future: "asyncio.Future[Result]", seconds: float) -> Result:
    """Wait for a result, which is not given up if nobody waits for it any more."""
    done, _ = await asyncio.wait([future], timeout=seconds)
    if not done:
        raise RefusedError(
            504, f"no answer within {seconds:g} s: ask again with the same X-Request-Id."
        )
    return future.result()


async def call(app: FastAPI, scope: dict[str, Any], body: bytes) -> RawAnswer:
    """Call an application in this process, and return status, headers and body."""
    sent: list[dict[str, Any]] = []
    coming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if coming:
            return coming.pop()
        await asyncio.Event().wait()  # nobody disconnects
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    fixed: dict[str, Any] = {"type": "http", "http_version": "1.1", "scheme": "http"}
    fixed |= {
        "root_path": "",
        "server": ("shard", 0),
        "client": ("router", 0),
        "raw_path": scope["path"].encode(),
    }
    await app({**fixed, **scope}, receive, send)  # type: ignore[arg-type]
    parts = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], list(sent[0]["headers"]), parts
