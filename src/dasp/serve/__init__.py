"""Serve an adaptation over HTTP: `dasp serve`, or `dasp.serve.serve(tta, folder)`.

A `Worker` joins the requests of many clients to batches and runs them in the order of their
arrival. Its `Journal` holds every batch and every answer, so that a killed server resumes where it
was and `replay` checks that the same batches give the same answers. Only `app` knows the web; it
needs the extra [serve] and is imported when a server starts.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dasp.core.errors import OptionError
from dasp.core.extras import extra
from dasp.methods import Adaptation
from dasp.serve.replay import ReplayReport, replay
from dasp.serve.worker import Worker, WorkerOptions

if TYPE_CHECKING:
    from dasp.serve.app import WebOptions

CONNECTIONS = 1000  # at a time; more are answered with 503

__all__ = ["ReplayReport", "Worker", "WorkerOptions", "find_token", "replay", "serve"]


def serve(
    tta: Adaptation,
    folder: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8720,
    token: str | None = None,
    options: WorkerOptions | None = None,
    web: "WebOptions | None" = None,
) -> None:
    """Serve an adaptation until Ctrl-C or SIGTERM.

    Args:
        tta: what `dasp.adapt` returned; its model must not be used elsewhere meanwhile.
        folder: the directory of the journal; a server that was killed continues from it.
        host: address to listen at.
        port: port to listen at; 0 takes any free one.
        token: what clients must send; by default that of `find_token`.
        options: how requests are joined and written down.
        web: the largest body, and how long a request waits.
    """
    for module in ("fastapi", "uvicorn"):
        extra(module, "serve")
    import uvicorn

    from dasp.page.server import open_socket
    from dasp.serve.app import build_app

    listener = open_socket(host, port)
    worker = Worker(tta, folder, options)
    app = build_app(worker, token or find_token(folder), web)
    name = f"[{host}]" if ":" in host else host
    begun = f", after {worker.batches} batches" if worker.batches else ""
    print(f"serving at http://{name}:{listener.getsockname()[1]}{begun}", flush=True)
    if not token and "DASP_TOKEN" not in os.environ:
        print(f"the token that clients must send is in {token_path(folder)}", flush=True)
    config = uvicorn.Config(app, log_level="warning", server_header=False)
    config.timeout_graceful_shutdown, config.limit_concurrency = 10, CONNECTIONS
    with suppress(KeyboardInterrupt):  # raised once more after the server has ended
        uvicorn.Server(config).run([listener])


def token_path(folder: str | Path) -> Path:
    """Return the file in which the token of a journal is kept."""
    return Path(folder) / "token"


def find_token(folder: str | Path) -> str:
    """Return the token: $DASP_TOKEN, or that of the directory, which is drawn at the first start.

    The file can be read by its owner only.
    """
    given = os.environ.get("DASP_TOKEN")
    if given is not None:
        if len(given) < 16:
            raise OptionError("DASP_TOKEN has less than 16 characters: choose a longer one.")
        return given
    path = token_path(folder)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_text(secrets.token_urlsafe(24) + "\n")
    return path.read_text().strip()
