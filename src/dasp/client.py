"""A client of `dasp serve`: call it as you would call the adaptation itself."""

import http.client
import json
import os
import random
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import torch
from torch import Tensor

from dasp.core import errors
from dasp.core.errors import DaspError, InputError, OptionError
from dasp.core.files import atomic_path
from dasp.core.types import Outcome
from dasp.service.wire import SAFETENSORS, outcome_from_json, pack

AGAIN = (408, 429, 502, 503, 504)  # answers after which the same request may succeed
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two attempts


class ServerError(DaspError, RuntimeError):
    """The server cannot be reached, or has answered with an error of its own."""


class Client(AbstractContextManager["Client"]):
    """A connection to a server, for any number of threads. Also a context manager.

    A request that gets no answer is sent again, with the same id: the server runs it once, however
    often it is sent, also if the server is killed and started again in between.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0) -> None:
        """Connect to a server when it is first needed.

        Args:
            url: its address, such as "http://127.0.0.1:8720".
            token: its token; by default $DASP_TOKEN.
            timeout: seconds after which a call gives up, all attempts included.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"{url!r} is not an address: give one such as http://127.0.0.1:8720.")
        self.url, self.timeout = url.rstrip("/"), timeout
        self._parts, self._own = parts, threading.local()
        self._lines: list[http.client.HTTPConnection] = []  # of all threads
        self._token = token or os.environ.get("DASP_TOKEN", "")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next call opens one again."""
        while self._lines:
            self._lines.pop().close()

    def __call__(
        self,
        inputs: Mapping[str, Tensor | np.ndarray[Any, Any]],
        *,
        learn: bool = True,
        request_id: str | None = None,
    ) -> Outcome:
        """Predict a batch {name: (B, ...)} and adapt to it; if not `learn`, only predict.

        The server may join the batch with those of other clients: the logits are those of these
        samples, the diagnosis and the rest describe the whole batch. Give a `request_id` of your
        own if the call itself may be repeated, for instance after a crash of this process.
        """
        tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
        headers = {"Content-Type": SAFETENSORS, "X-Request-Id": request_id or uuid.uuid4().hex}
        query = {} if learn else {"learn": "false"}
        return outcome_from_json(
            json.loads(self._ask("POST", "/predict", pack(tensors), headers, query))
        )

    def info(self) -> dict[str, Any]:
        """Return what is served: version, method, modalities, classes and limits."""
        return dict(json.loads(self._ask("GET", "/info")))

    def metrics(self) -> str:
        """Return the server's figures in Prometheus' text format."""
        return self._ask("GET", "/metrics").decode()

    def reset(self) -> None:
        """Return to the source state."""
        self._ask("POST", "/state/reset")

    def save(self, path: str | Path) -> None:
        """Write the adapted state to a file, which `tta.load` reads, too."""
        data = self._ask("GET", "/state")
        with atomic_path(path) as part:
            part.write_bytes(data)

    def load(self, path: str | Path) -> None:
        """Let the server take over a state from a file here."""
        self._ask("PUT", "/state", Path(path).read_bytes(), {"Content-Type": SAFETENSORS})

    def history(self) -> list[dict[str, Any]]:
        """Return the checkpoints that the server keeps, oldest first."""
        return list(json.loads(self._ask("GET", "/state/history")))

    def roll_back(self, segment: int | None = None) -> int:
        """Return to a checkpoint of `history`, by default the last one; return its number."""
        query = {} if segment is None else {"to": str(segment)}
        return int(json.loads(self._ask("POST", "/state/rollback", query=query))["segment"])

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a request until it is answered; raise the error that the answer describes."""
        target = self._parts.path.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        sent = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        end, pause, why = time.monotonic() + self.timeout, FIRST_PAUSE, ""
        while True:
            try:
                status, answer = self._send(method, target, body, sent, end - time.monotonic())
                if status < 400:
                    return answer
                why = _raise_unless_again(status, answer)
            except (OSError, http.client.HTTPException) as error:
                self._own.line.close()
                why = f"{type(error).__name__}: {error}"
            if time.monotonic() + pause > end:
                raise ServerError(f"no answer from {self.url} within {self.timeout:g} s: {why}")
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _send(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str], left: float
    ) -> tuple[int, bytes]:
        line: http.client.HTTPConnection | None = getattr(self._own, "line", None)
        if line is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            assert self._parts.hostname is not None
            line = self._own.line = kind(self._parts.hostname, self._parts.port)
            self._lines.append(line)
        line.timeout = max(left, 0.1)
        if line.sock is not None:
            line.sock.settimeout(line.timeout)
        line.request(method, target, body or None, dict(headers))
        response = line.getresponse()
        return response.status, response.read()


def _raise_unless_again(status: int, answer: bytes) -> str:
    """Raise the error of an answer; return its message if the request may be sent again."""
    try:
        told = json.loads(answer)
        message, kind = str(told["error"]), getattr(errors, str(told["type"]), None)
    except (ValueError, KeyError, TypeError):
        message, kind = answer[:200].decode(errors="replace"), None
    if status in AGAIN:
        return message
    if isinstance(kind, type) and issubclass(kind, DaspError):
        raise kind(message)
    raise (InputError if status in (413, 422) else ServerError)(f"{message} (status {status})")
