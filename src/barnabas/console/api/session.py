"""Who is there, what the console lets them do, and the login."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Route

from barnabas import __version__
from barnabas.clients.errors import BrokerUnreachable, LoginFailed
from barnabas.console.api.answers import InvalidQuestion, answer, body_of, endpoint, field
from barnabas.console.guard import cookie_name, cookie_of, login_cookie_name
from barnabas.console.oidc import EXPIRED, LOGIN_SECONDS, UNKNOWN, OidcFailed
from barnabas.console.sessions import IDLE_SECONDS, NoLoginAsked, TooManyLogins

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.console.oidc import OidcLogins

log = logging.getLogger(__name__)

LONGEST_NAME: Final = 1_000
CALLBACK: Final = "/login/callback"
UNNOTED: Final = (EXPIRED, UNKNOWN, "busy")
"""Why a login fails that was none: anybody can send as many of these as they like, and logs have an end."""


@endpoint
async def describe(request: Request) -> object:
    """What the page has to know before it shows anything."""
    session, state = request.state.session, request.app.state
    return {
        "version": __version__,
        "user": None if session is None else session.user,
        "login": session is None,
        "can_log_out": session is not None and session.user is not None,
        "read_only": state.settings.read_only,
        "bootstrap": state.settings.bootstrap_servers,
        "passwords": session is None and await state.sessions.takes_passwords(),
        "provider": None if state.oidc is None else state.oidc.settings.name,
        "registry": state.settings.registry is not None,
        "filters": state.filters,
    }


@endpoint
async def log_in(request: Request) -> object:
    """Let somebody in whom the cluster lets in."""
    body = await body_of(request)
    user, password = field(body, "user", str), field(body, "password", str)
    if not user or "\0" in user + password:
        raise InvalidQuestion("A user has a name, without NUL.")
    if len(user) > LONGEST_NAME or len(password) > LONGEST_NAME:  # what is refused is noted, too
        raise InvalidQuestion(f"A name or password may have {LONGEST_NAME} characters.")
    state = request.app.state
    try:
        token = await state.sessions.log_in(user, password, _address_of(request))
    except NoLoginAsked as error:
        return answer({"error": str(error)}, 409)
    except TooManyLogins as error:
        return answer({"error": str(error)}, 429)
    except LoginFailed as error:
        _note_login(request, user, "refused")
        return answer({"error": str(error)}, 401)
    _note_login(request, user, "done")
    state.sessions.end(request.state.token)
    response = answer({"user": user})
    _set_cookie(request, response, token, IDLE_SECONDS)
    return response


async def go_to_provider(request: Request) -> Response:
    """Begin a login with the provider."""
    logins, state = _provider_of(request), request.app.state
    try:
        begin = partial(logins.begin, _redirect_uri(request))
        address, kept = await state.sessions.begin_with(begin, _address_of(request))
    except OidcFailed as error:
        return _failed(request, error)
    except TooManyLogins as error:
        return _failed(request, OidcFailed("busy", str(error)))
    response = RedirectResponse(address, 303)
    _set_login_cookie(request, response, kept, LOGIN_SECONDS)
    return response


async def come_back(request: Request) -> Response:
    """Let somebody in whom the provider names, and the cluster lets in."""
    logins, state = _provider_of(request), request.app.state
    kept = cookie_of(request.headers.get("cookie", ""), login_cookie_name(state.settings))
    try:
        finish = partial(logins.finish, kept, dict(request.query_params), _redirect_uri(request))
        token, user = await state.sessions.log_in_with(finish, _address_of(request))
    except OidcFailed as error:
        return _failed(request, error)
    except TooManyLogins as error:
        return _failed(request, OidcFailed("busy", str(error)))
    except NoLoginAsked as error:
        return _failed(request, OidcFailed("cluster", str(error)))
    except BrokerUnreachable as error:
        word = "cluster" if isinstance(error, LoginFailed) else "unreachable"
        return _failed(request, OidcFailed(word, str(error)))
    _note_login(request, user, "done")
    state.sessions.end(cookie_of(request.headers.get("cookie", ""), cookie_name(state.settings)))
    response = RedirectResponse("/", 303)
    _set_cookie(request, response, token, IDLE_SECONDS)
    _set_login_cookie(request, response, "", 0)
    return response


def _provider_of(request: Request) -> OidcLogins:
    logins: OidcLogins | None = request.app.state.oidc
    if logins is None:
        raise HTTPException(404)
    return logins


def _redirect_uri(request: Request) -> str:
    """Where the provider sends the browser back to; the guard knows the host."""
    scheme = "https" if request.app.state.settings.browsers_encrypt else "http"
    return f"{scheme}://{request.headers['host']}{CALLBACK}"


def _failed(request: Request, error: OidcFailed) -> Response:
    """Back to the login, with one word of why; the sentence is for the log."""
    if error.word not in UNNOTED:
        log.warning("A login by OpenID Connect failed: %s", error)
        _note_login(request, None, "refused")
    response = RedirectResponse(f"/?failed={error.word}", 303)
    _set_login_cookie(request, response, "", 0)
    return response


def _note_login(request: Request, user: str | None, outcome: str) -> None:
    request.app.state.audit.write(
        user=user, address=_address_of(request), action="log in", target="console", outcome=outcome
    )


def _address_of(request: Request) -> str:
    return request.client.host if request.client else ""


@endpoint
async def log_out(request: Request) -> object:
    """Forget a session and its password."""
    request.app.state.sessions.end(request.state.token)
    response = answer({})
    _set_cookie(request, response, "", 0)
    return response


def _set_cookie(request: Request, response: Response, token: str, seconds: int) -> None:
    settings = request.app.state.settings
    response.set_cookie(
        cookie_name(settings),
        token,
        max_age=seconds,
        path="/",
        secure=settings.browsers_encrypt,
        httponly=True,
        samesite="strict",
    )


def _set_login_cookie(request: Request, response: Response, kept: str, seconds: int) -> None:
    """What a login needs when it comes back: a browser brings it from another site's page then, so it is lax."""
    settings = request.app.state.settings
    response.set_cookie(
        login_cookie_name(settings),
        kept,
        max_age=seconds,
        path="/",
        secure=settings.browsers_encrypt,
        httponly=True,
        samesite="lax",
    )


ROUTES = (
    Route("/api/session", describe),
    Route("/api/login", log_in, methods=["POST"]),
    Route("/api/logout", log_out, methods=["POST"]),
    Route("/login/provider", go_to_provider),
    Route(CALLBACK, come_back),
)
