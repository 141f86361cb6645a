"""How an endpoint answers: JSON, or an error in words with a fitting status. And how it notes changes."""

from __future__ import annotations

import json
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from barnabas.clients.errors import BrokerUnreachable, InvalidClientConfig, LibraryMissing, LoginFailed, RequestRefused
from barnabas.console.guard import to_json
from barnabas.model.base_error import BarnabasError
from barnabas.model.errors import ErrorCode
from barnabas.model.numbers import MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.console.sessions import ConsoleSession

T = TypeVar("T")

NOT_FOUND = frozenset(
    {ErrorCode.unknown_topic_or_partition, ErrorCode.group_id_not_found, ErrorCode.transactional_id_not_found}
)


class InvalidQuestion(Exception):
    """What the page asked for cannot be: the message says why."""


class NotFound(Exception):
    """What the page asked for is not there."""


def answer(value: object, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(to_json(value), status, media_type="application/json")


def endpoint(handler: Callable[[Request], Awaitable[object]]) -> Callable[[Request], Awaitable[Response]]:
    """A function that gives a value, as an endpoint that answers with it; what is raised becomes an error in words."""

    @wraps(handler)
    async def run(request: Request) -> Response:
        try:
            found = await handler(request)
        except (BarnabasError, InvalidQuestion, NotFound) as error:
            return answer({"error": str(error)}, status_of(error))
        return found if isinstance(found, Response) else answer(found)

    return run


def status_of(error: Exception) -> int:
    """The status of HTTP that an error stands for."""
    match error:
        case LoginFailed():
            return 401
        case BrokerUnreachable():
            return 503
        case RequestRefused() if error.code.name.endswith("_authorization_failed"):
            return 403
        case RequestRefused() if error.code in NOT_FOUND:
            return 404
        case NotFound():
            return 404
        case InvalidQuestion() | InvalidClientConfig():
            return 400
        case LibraryMissing():
            return 501
        case _:
            return 409


async def body_of(request: Request) -> dict[str, Any]:
    """The object that a request brings."""
    try:
        text = await request.body()
    except ClientDisconnect as error:
        raise InvalidQuestion("The request was not sent whole.") from error
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # no half characters: nobody could be sent them
    except UnicodeEncodeError as error:
        raise InvalidQuestion("The request has text that is not Unicode.") from error
    except (ValueError, RecursionError) as error:
        raise InvalidQuestion(f"The request is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidQuestion("The request is not a JSON object.")
    return value


def field(body: dict[str, Any], name: str, kind: type[T]) -> T:
    """A field that has to be there."""
    value = body.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidQuestion(f"{name} is missing, or not of the right kind.")
    return value


def is_small_number(value: object) -> bool:
    """Whether this is a number as brokers and partitions have."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


class ShortNumber(IntegerConvertor):
    """A number in an address, of no more digits than an offset has."""

    regex = "[0-9]{1,19}"


register_url_convertor("short", ShortNumber())


def number(request: Request, name: str, default: int | None = None, *, least: int = 0, most: int = MAX_INT64) -> int:
    """A number of the query."""
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    try:
        value = int(text or "")
    except ValueError:
        raise InvalidQuestion(f"{name} is not a number.") from None
    if not least <= value <= most:
        raise InvalidQuestion(f"{name} is not between {least} and {most}.")
    return value


def session_of(request: Request) -> ConsoleSession:
    """Who asks."""
    found: ConsoleSession = request.state.session
    return found


async def changed(request: Request, action: str, target: str, change: Callable[[ClusterAdmin], T], **details: Any) -> T:
    """Have the cluster changed in the user's name, and note it."""
    session = session_of(request)

    def note(outcome: str) -> None:
        address = request.client.host if request.client else ""
        request.app.state.audit.write(
            user=session.user, address=address, action=action, target=target, outcome=outcome, **details
        )

    try:
        done = await session.connections.change(change)
    except Exception as error:
        note(f"not done: {error}")
        raise
    except BaseException:  # the client has left, and the change goes on
        note("unknown")
        raise
    note("done")
    return done
