"""The console's HTTP server: the application put together, and its life from the first request to the last."""

from __future__ import annotations

import importlib.util
import logging
import socket
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from barnabas.console.api import (
    brokers,
    clients,
    groups,
    messages,
    overview,
    pipelines,
    retention,
    schemas,
    security,
    session,
    topics,
    transactions,
)
from barnabas.console.api.answers import answer
from barnabas.console.audit import ChangeLog
from barnabas.console.guard import Guard
from barnabas.console.history import History
from barnabas.console.http import BoundedProtocol, BoundedServer
from barnabas.console.messages.registry import Registry
from barnabas.console.messages.schemas import Schemas
from barnabas.console.oidc import OidcLogins
from barnabas.console.sampler import Sampler
from barnabas.console.sessions import Sessions
from barnabas.console.telemetry import receiver
from barnabas.console.telemetry.clients import PushingClients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from barnabas.console.settings import ConsoleSettings

log = logging.getLogger(__name__)

STATIC: Final = Path(__file__).parent / "static"
BACKLOG: Final = 128
CLOSE_SECONDS: Final = 2
"""How long a stop waits for answers that are under way; streams of records have no end of their own."""


def build_app(settings: ConsoleSettings) -> ASGIApp:
    """The whole application."""
    sessions = Sessions(settings)
    history = History(settings.folder)
    sampler = Sampler(sessions.own, history, settings.metrics, settings.metrics_access, settings.with_remedy)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            sampler.failure = settings.own_login_failure
            if sampler.failure is None:
                tasks.start_soon(sampler.run)
            yield
            tasks.cancel_scope.cancel()
        sessions.close()
        history.close()

    app = Starlette(
        routes=[
            *overview.ROUTES,
            *session.ROUTES,
            *topics.ROUTES,
            *messages.ROUTES,
            *groups.ROUTES,
            *clients.ROUTES,
            *brokers.ROUTES,
            *transactions.ROUTES,
            *pipelines.ROUTES,
            *security.ROUTES,
            *retention.ROUTES,
            *schemas.ROUTES,
            Route("/api/{rest:path}", _nothing, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/{rest:path}", _page),
        ],
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.state.sessions = sessions
    app.state.history = history
    app.state.sampler = sampler
    app.state.audit = ChangeLog(settings.folder / "audit.log")
    registry = None if settings.registry is None else Registry(settings.registry)
    app.state.schemas = Schemas(registry, settings.schemas)
    app.state.oidc = None if settings.oidc is None else OidcLogins(settings.oidc)
    app.state.streams = Counter[str]()
    app.state.filters = importlib.util.find_spec("cel_expr_python") is not None
    app.state.clients = PushingClients()
    receivers: dict[str, ASGIApp] = {}
    if settings.telemetry is not None:
        receivers[receiver.PATH] = receiver.PushReceiver(settings.telemetry, app.state.clients, settings.with_remedy)
    return Guard(app, settings, sessions, receivers)


async def _page(request: Request) -> Response:
    """One page for all addresses: its script finds out what to show."""
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _nothing(request: Request) -> Response:
    return answer({"error": "There is nothing here."}, 404)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there; raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def run(settings: ConsoleSettings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT."""
    config = uvicorn.Config(
        build_app(settings),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        lifespan="on",
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        http=BoundedProtocol,
        ssl_certfile=None if settings.certificate is None else str(settings.certificate),
        ssl_keyfile=None if settings.key is None else str(settings.key),
    )
    BoundedServer(config).run(sockets=[listener])
