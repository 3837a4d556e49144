"""Serve many streams on a Ray cluster: each key has an adaptation of its own.

    app = many_streams(build, "/shared/served", shards=4)   # a Ray Serve application
    serve.run(app)                                           # or: serve run my_file:app
    Client("http://127.0.0.1:8000/streams/device-7", token)  # one client per stream

A key belongs to one shard, and a shard is one process, so that no two processes adapt one stream.
In its shard a key has the same application as `dasp serve`, with a journal in FOLDER/KEY. If the
process of a shard dies, Ray starts it again and its streams continue from their journals; the
folder must be reachable from every node. Clients retry meanwhile.
"""

import re
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from dasp.core.errors import StateError
from dasp.core.extras import extra
from dasp.methods import Adaptation
from dasp.serve import find_token
from dasp.serve.app import (
    RawAnswer,
    RefusedError,
    WebOptions,
    build_app,
    call,
    check_token,
    failure,
    read_body,
)
from dasp.serve.worker import Worker, WorkerOptions

KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")


class Shard:
    """The streams of some keys, in one process."""

    def __init__(
        self, build: Callable[[Path], Adaptation], folder: str, token: str,
        options: WorkerOptions, web: WebOptions, streams: int,
    ) -> None:  # fmt: skip
        self._build, self._folder, self._token = build, Path(folder), token
        self._options, self._web, self._limit = options, web, streams
        self._open: OrderedDict[str, tuple[Worker, FastAPI]] = OrderedDict()
        self._lock = threading.Lock()

    async def answer(self, key: str, scope: dict[str, Any], body: bytes) -> RawAnswer:
        """Answer a request to the application of a key."""
        app = await run_in_threadpool(self._app, key)
        return await call(app, scope, body)

    def _app(self, key: str) -> FastAPI:
        """Return the application of a key; open it, and close the one not used for longest."""
        with self._lock:
            if key not in self._open:
                folder = self._folder / key
                folder.mkdir(parents=True, exist_ok=True)
                worker = Worker(self._build(folder), folder, self._options)
                self._open[key] = worker, build_app(worker, self._token, self._web, closes=False)
                while len(self._open) > self._limit:
                    self._open.popitem(last=False)[1][0].close()
            self._open.move_to_end(key)
            return self._open[key][1]

    def check_health(self) -> None:
        """Raise if a model hangs, so that Ray starts this process again."""
        for key, (worker, _) in list(self._open.items()):
            if problem := worker.health()["problem"]:
                raise StateError(f"stream {key}: {problem}")


def many_streams(
    build: Callable[[Path], Adaptation],
    folder: str | Path,
    *,
    shards: int = 2,
    streams: int = 64,
    token: str | None = None,
    options: WorkerOptions | None = None,
    web: WebOptions | None = None,
    resources: dict[str, Any] | None = None,
) -> Any:
    """Return a Ray Serve application with a stream for each key.

    Args:
        build: returns a new adaptation, given the directory of its stream, for `log=` perhaps.
        folder: directory of all streams, on a file system that every node has.
        shards: processes; keys are spread over them by a hash, so do not change it for streams
            that are to continue while old processes still run.
        streams: open streams per shard; others wait on the disk until their key is asked for.
        token: what clients must send; by default that of `find_token`.
        options: how requests are joined and written down.
        web: the largest body, and how long a request waits.
        resources: what Ray reserves for each shard, such as {"num_cpus": 1, "num_gpus": 0.25}.
    """
    serve = extra("ray.serve", "ray-serve")
    token, limits = token or find_token(folder), web or WebOptions()
    given = (build, str(Path(folder).resolve()), token, options or WorkerOptions(), limits, streams)
    own = {"num_replicas": 1, "max_ongoing_requests": 1000, "health_check_period_s": 2}
    kept = {"ray_actor_options": resources or {"num_cpus": 1}}
    parts = [
        serve.deployment(Shard).options(name=f"shard_{number}", **own, **kept).bind(*given)
        for number in range(shards)
    ]
    front = FastAPI(title="dasp streams")

    @serve.deployment(name="router", max_ongoing_requests=1000)
    @serve.ingress(front)
    class Router:
        """Sends each request to the shard of its key."""

        def __init__(self, *handles: Any) -> None:
            self._handles = handles

        @front.api_route("/streams/{key}/{path:path}", methods=["GET", "POST", "PUT"])
        async def route(self, request: Request, key: str, path: str) -> Response:
            """Answer a request as `dasp serve` would, for one stream."""
            try:
                check_token(request, token)
                if not KEY.fullmatch(key):
                    raise RefusedError(422, f"{key!r} is not a key: use letters, digits, _, -, .")
                body = await read_body(request, limits)
                scope = {name: request.scope[name] for name in ("method", "query_string")}
                scope |= {"path": f"/{path}", "headers": [*request.headers.raw]}
                shard = self._handles[zlib.crc32(key.encode()) % len(self._handles)]
                status, headers, answer = await shard.answer.remote(key, scope, body)
            except RefusedError as error:
                return failure(error)
            except Exception as error:  # the shard died: it is started again
                return failure(RefusedError(503, f"the shard of {key} failed: {error}"))
            response = Response(answer, status)
            response.raw_headers = headers
            return response

    return cast(Any, Router).bind(*parts)
