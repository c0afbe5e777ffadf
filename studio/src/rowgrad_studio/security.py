"""Who may speak to the studio: a browser on this machine that was given the token, from the studio's own page.

Any web page that a user visits can send requests to this machine, and can give its own name the address 127.0.0.1. So
the Host must be a loopback name with the studio's port, the cookie must hold the token of this launch, and what changes
anything must come from the studio's own origin. The page itself may load nothing from elsewhere, and runs no inline
script.
"""

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MOST_BODY = 96 * 2**20  # bytes of a request: a file of 64 MB as base64
MOST_MESSAGE = 16 * 2**20  # bytes of a command
READING = ("GET", "HEAD")
LOCKED = "Open the address that the studio printed when it started; it contains the key.\n"


class Guard:
    """Lets through what is allowed, and adds the headers that browsers keep to."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._hosts = {f"{name}:{port}" for name in LOOPBACK} | (set(LOOPBACK) if port == 80 else set())
        self.cookie = f"rowgrad-studio-{port}"  # cookies know no ports, and there may be two studios

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            await self._refuse(scope, receive, send, "the Host of the request is not this machine.")
            return
        origin = headers.get("origin")
        is_reading = scope["type"] == "http" and scope["method"] in READING
        if origin != f"http://{host}" and not (origin is None and is_reading):
            await self._refuse(scope, receive, send, "the request comes from another page.")
            return
        send = _with_headers(send, host) if scope["type"] == "http" else send
        if is_reading and scope["path"] == "/" and (given := _query(scope).get("token")) is not None:
            await self._let_in(scope, receive, send, given)
            return
        if not self._is_known(headers):
            await self._refuse(scope, receive, send, LOCKED, plain=is_reading and scope["path"] == "/")
            return
        await self._app(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, given: str) -> None:
        """Exchange the token in the address for a cookie, so that it stays in no history."""
        if not self._is_token(given):
            await self._refuse(scope, receive, send, f"This key is of an earlier start. {LOCKED}", plain=True)
            return
        rest = {name: value for name, value in _query(scope).items() if name != "token"}
        response = RedirectResponse(f"/?{urlencode(rest)}" if rest else "/", 303)
        response.set_cookie(self.cookie, self._token, httponly=True, samesite="strict", path="/")
        await response(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return found is not None and self._is_token(found.value)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token.encode())

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, why: str, *, plain: bool = False) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4403, "reason": why[:100]})
            return
        problem: dict[str, Any] = {"message": why.strip(), "block": None, "pin": None, "code": "forbidden"}
        response: Response = (
            PlainTextResponse(why, 403)
            if plain
            else JSONResponse({"error": problem}, 403, {"Cache-Control": "no-store"})
        )
        await response(scope, receive, send)


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=20))


def _with_headers(send: Send, host: str) -> Send:
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        f"connect-src 'self' ws://{host}; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Content-Security-Policy"] = policy
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Referrer-Policy"] = "no-referrer"
            headers["Cross-Origin-Resource-Policy"] = "same-origin"
            headers["Cache-Control"] = "no-store"
        await send(message)

    return sent
