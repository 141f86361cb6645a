"""Clients that push their metrics: who they are, and what they tell. For those who may describe the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from starlette.routing import Route

from barnabas.clients.errors import RequestRefused
from barnabas.console.api.answers import NotFound, endpoint, session_of
from barnabas.console.telemetry.receiver import PATH
from barnabas.machines.security.acls import Operation
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.console.settings import ConsoleSettings
    from barnabas.console.telemetry.clients import ClientMetrics


@endpoint
async def listing(request: Request) -> object:
    """All clients that push."""
    await _check_permission(request)
    state = request.app.state
    return {
        "taking": state.settings.telemetry is not None,
        "needs_token": state.settings.telemetry is not None and state.settings.telemetry.token is not None,
        "endpoint": _endpoint(state.settings),
        "forgotten": state.clients.forgotten,
        "clients": [_row(each) for each in state.clients.all()],
    }


@endpoint
async def one(request: Request) -> object:
    """One client with all that it tells."""
    await _check_permission(request)
    try:
        found = request.app.state.clients.find(UUID(request.path_params["instance"]))
    except ValueError:
        found = None
    if found is None:
        raise NotFound("This client has not pushed any metrics within the last hour.")
    return {
        **_row(found),
        "omitted": found.omitted,
        "resource": found.resource,
        "series": [
            {"name": each.name, "labels": dict(each.labels), "value": each.value, "kind": each.kind.value}
            for each in found.points
        ],
    }


async def _check_permission(request: Request) -> None:
    """Raises RequestRefused for a user who may not describe the cluster: clients are of all its users."""
    session = session_of(request)
    if session.user is not None and not await session.connections.ask(
        lambda cluster: cluster.brokers.may(Operation.DESCRIBE)
    ):
        raise RequestRefused(
            ErrorCode.cluster_authorization_failed, "You may not DESCRIBE the cluster, so you do not see its clients."
        )


def _row(client: ClientMetrics) -> dict[str, Any]:
    pusher = client.pusher
    return {
        "instance": str(pusher.instance),
        "client": pusher.client_id,
        "software": pusher.software,
        "address": pusher.address,
        "principal": pusher.principal,
        "group": client.resource.get("group_id"),
        "seen": round(client.at * 1000),
        "interval": None if client.due is None else round(client.due * 1000),
        **client.figures._asdict(),
    }


def _endpoint(settings: ConsoleSettings) -> str:
    """Where brokers reach this console, as far as it knows."""
    host = next(iter(settings.hosts), settings.host)
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
    return f"{settings.scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}{PATH}"


ROUTES = (Route("/api/clients", listing), Route("/api/clients/{instance}", one))
