"""Who may see the page: this computer alone, or, where asked for, whoever holds the token.

On a loopback address the name by which a browser asks must be a loopback name too, so that no
foreign name that was made to point here (DNS rebinding) reaches the page. On any other address a
token is required, in the address (`?token=…`) or in the cookie that the first visit sets. A
websocket must come from the page's own origin in both cases.
"""

import ipaddress
import secrets
from dataclasses import dataclass

from starlette.datastructures import URL
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

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


@dataclass(frozen=True)
class Access:
    """The rule of one server. `token` is None where only this computer can reach it."""

    token: str | None = None
    cookie: str = "dasp_token"

    def refusal(self, request: HTTPConnection) -> str | None:
        """Say why a request is refused, None if it is not."""
        host = request.headers.get("host", "")
        if self.token is None and not is_loopback(_name(host)):
            return f"this page answers on this computer only, not as '{host}'."
        origin = request.headers.get("origin")
        is_socket = request.scope["type"] == "websocket"
        if is_socket and origin is not None and origin.partition("://")[2] != host:
            return "a websocket must come from the page itself."
        if self.token is not None and not self.holds_token(request):
            return "open the address that was printed where the page was started: it has a token."
        return None

    def holds_token(self, request: HTTPConnection) -> bool:
        """Tell whether a request carries the token, in the same time whatever it carries."""
        given = request.query_params.get("token") or request.cookies.get(self.cookie) or ""
        return secrets.compare_digest(given.encode(), (self.token or "").encode())


class Guard:
    """Answers 403 to what `Access` refuses, for pages, sounds and websockets alike."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        guarded = scope["type"] in ("http", "websocket")
        why = self.access.refusal(HTTPConnection(scope)) if guarded else None
        if why is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": why})
        else:
            await PlainTextResponse(why, 403, headers=HEADERS)(scope, receive, send)


def is_loopback(name: str) -> bool:
    """Tell whether a host name or address is this computer to itself.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("example.org")
    (True, True, False)
    """
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """Return a token that nobody guesses."""
    return secrets.token_urlsafe(24)


def _name(host: str) -> str:
    """Return the name in a Host header, without port and brackets."""
    try:
        return URL(f"http://{host}").hostname or ""
    except ValueError:
        return ""
