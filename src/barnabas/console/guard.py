"""The door of the console: which requests get in, in whose name, and what every answer says to the browser.

A page of another site can make a browser send requests here, and can let its own name lead to this address. So a
request must name a host that the console is known by. One that changes something must come from a page of this console
(Origin), as JSON, which no form of another site can send. What a record says is never markup: answers forbid scripts
and styles that are not the console's own, and strings where the browser wants markup (Trusted Types).
"""

from __future__ import annotations

import json
import math
import re
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from barnabas.console.settings import is_loopback
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from barnabas.console.sessions import Sessions
    from barnabas.console.settings import ConsoleSettings

MOST_BODY: Final = 2 << 20
_PORT: Final = re.compile("[0-9]{1,5}")
OPEN_PATHS: Final = frozenset({"/api/session", "/api/login", "/api/logout"})
"""What is served without a login."""
LOGIN_PATHS: Final = frozenset({"/api/login", "/api/logout"})
"""What a console that changes nothing serves all the same."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def cookie_name(settings: ConsoleSettings) -> str:
    """The cookie's name; ports of one host share cookies, so it has the port in it."""
    return f"{'__Host-' if settings.browsers_encrypt else ''}barnabas-console-{settings.port}"


def login_cookie_name(settings: ConsoleSettings) -> str:
    """The name of the cookie that a login by a provider keeps until it comes back."""
    return f"{'__Host-' if settings.browsers_encrypt else ''}barnabas-login-{settings.port}"


class RequestBarred(Exception):
    """A request that does not get in: a status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Guard:
    """The outermost layer of the application."""

    def __init__(
        self, app: ASGIApp, settings: ConsoleSettings, sessions: Sessions, open_apps: Mapping[str, ASGIApp]
    ) -> None:
        self._app = app
        self._open_apps = open_apps
        """By path, what is not for people, and checks for itself who may ask."""
        self._settings = settings
        self._sessions = sessions
        self._cookie = cookie_name(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        answer = _with_headers(send, cached=scope["path"].startswith("/static/"))
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            if "\0" in scope["path"]:
                raise RequestBarred(400, "An address has no NUL.")
            if scope["path"] in self._open_apps:
                await self._open_apps[scope["path"]](scope, receive, answer)
                return
            if scope["method"] not in SAFE_METHODS:
                self._check_change(scope["path"], headers)
            await self._admit(scope, headers)
        except RequestBarred as refusal:
            await JSONResponse({"error": str(refusal)}, refusal.status)(scope, receive, answer)
            return
        await self._app(scope, _limited(receive), answer)

    def _check_host(self, headers: Headers) -> None:
        host, _, port = headers.get("host", "").rpartition(":")
        if not _PORT.fullmatch(port):
            host, port = headers.get("host", ""), "443" if self._settings.encrypted else "80"
        host = host.lower()
        if host in self._settings.hosts:
            return  # a proxy in front may have any port
        known = host == self._settings.host.lower() or is_loopback(host)
        if not known or int(port) != self._settings.port:
            host = host[:255]
            remedy = Remedy(RemedyKind.NAME_CONSOLE, host)
            raise RequestBarred(421, self._settings.with_remedy(f"This console is not known as {host}:{port}.", remedy))

    def _check_change(self, path: str, headers: Headers) -> None:
        origin = headers.get("origin", "")
        host = headers.get("host", "")
        if origin not in (f"http://{host}", f"https://{host}"):
            raise RequestBarred(403, "This request does not come from a page of this console.")
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise RequestBarred(403, "This request comes from a page of another site.")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise RequestBarred(415, "This request has to be JSON.")
        if not headers.get("content-length", "").isdecimal() or int(headers["content-length"]) > MOST_BODY:
            raise RequestBarred(413, f"A request may have {MOST_BODY >> 20} MB.")
        if self._settings.read_only and path not in LOGIN_PATHS:
            remedy = Remedy(RemedyKind.ALLOW_CHANGES)
            raise RequestBarred(403, self._settings.with_remedy("This console is read-only.", remedy))

    async def _admit(self, scope: Scope, headers: Headers) -> None:
        path = scope["path"]
        if not path.startswith("/api/"):
            return
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RequestBarred(403, "This request comes from a page of another site.")
        token = cookie_of(headers.get("cookie", ""), self._cookie)
        session = await self._sessions.find(token)
        if session is None and path not in OPEN_PATHS:
            raise RequestBarred(401, "Log in first.")
        scope.setdefault("state", {}).update(session=session, token=token)


def cookie_of(header: str, name: str) -> str | None:
    """The value of a cookie."""
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _with_headers(send: Send, *, cached: bool) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-cache" if cached else "no-store")
        await send(message)

    return answer


def _limited(receive: Receive) -> Receive:
    """A body that is not longer than its head says; uvicorn holds it to that, and this to the limit of all."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MOST_BODY:
            return {"type": "http.disconnect"}
        return message

    return limited


def to_json(value: object) -> bytes:
    """JSON in ASCII: text that is not Unicode passes as lone surrogates, and what is no number as null.

    Python writes infinity as a word that is no JSON, so one such figure would keep a browser from reading the whole.
    """
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), separators=(",", ":"))
    return text.encode("ascii")


def _finite(value: object) -> object:
    """A value as JSON has it, with null for what is no number or infinite."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
