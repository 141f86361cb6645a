"""Where brokers push metrics of clients to: OTLP over HTTP, at a path of its own and with a door of its own.

It has nothing to do with people and their sessions: cookies mean nothing here, and what a browser sends for a page is
refused. Without a token only programs on this machine get in, and only by a name of this machine, so a proxy in front
of the console does not let others in by accident.

Each request is bounded before it is read: bytes as they come, bytes uncompressed, and requests at a time. Who exceeds
that is refused; nobody else notices.
"""

from __future__ import annotations

import hmac
import logging
import zlib
from typing import TYPE_CHECKING, Final
from uuid import UUID

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from barnabas.console.settings import is_loopback, without_words
from barnabas.console.telemetry.clients import Pusher, PushingClients
from barnabas.console.telemetry.otlp import NotOtlp, PushedMetrics, parse
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.types import Receive, Scope, Send

    from barnabas.console.settings import TelemetrySettings, WithRemedy

log = logging.getLogger(__name__)

PATH: Final = "/v1/metrics"
PROTOBUF: Final = "application/x-protobuf"
MOST_BODY: Final = 8 << 20
"""Bytes of a push: a broker with the default telemetry.max.bytes sends no more."""
MOST_COMPRESSED: Final = 1 << 20
AT_ONCE: Final = 4
"""Requests that are read at the same time; others are told to come again."""
MOST_CHARACTERS: Final = 256
_GZIP: Final = 16 + zlib.MAX_WBITS
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "via")
_OF_BROWSERS: Final = ("origin", "sec-fetch-site", "cookie")


class PushRefused(Exception):
    """A request that is not taken: a status, and why."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class PushReceiver:
    """Takes what brokers push; an application of its own behind the console's guard."""

    def __init__(
        self, settings: TelemetrySettings, clients: PushingClients, with_remedy: WithRemedy = without_words
    ) -> None:
        self._settings = settings
        self._with_remedy = with_remedy
        self._clients = clients
        self._reading = 0
        self._parser = anyio.CapacityLimiter(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a push, or refuse it."""
        try:
            await self._take(Request(scope, receive))
        except PushRefused as error:
            response = Response(_status(str(error)), error.status, error.headers, media_type=PROTOBUF)
        else:
            response = Response(b"", media_type=PROTOBUF)
        await response(scope, receive, send)

    async def _take(self, request: Request) -> None:
        headers = request.headers
        if request.method != "POST":
            raise PushRefused(405, "Metrics are sent by POST.", allow="POST")
        self._admit(request.client.host if request.client else "", headers)
        pusher = pusher_of(headers)
        is_gzip = check_head(headers)
        if self._reading >= AT_ONCE:
            raise PushRefused(429, "Too many pushes are being read.", retry_after="1")
        self._reading += 1
        try:
            body = await _read(request, MOST_COMPRESSED if is_gzip else MOST_BODY)
            metrics = await anyio.to_thread.run_sync(_unpack_and_parse, body, is_gzip, limiter=self._parser)
        finally:
            self._reading -= 1
        self._clients.take(pusher, metrics)

    def _admit(self, address: str, headers: Headers) -> None:
        """Let a broker in; raises PushRefused."""
        if any(name in headers for name in _OF_BROWSERS):
            raise PushRefused(403, "Metrics are taken from brokers, not from browsers.")
        token = self._settings.token
        if token is not None:
            given = headers.get("authorization", "").encode("latin-1", "replace")
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                raise PushRefused(401, "The token is missing or wrong.", www_authenticate="Bearer")
            return
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if not (is_loopback(address) and is_loopback(name)) or any(each in headers for each in _FORWARDED):
            remedy = Remedy(RemedyKind.GIVE_PUSH_TOKEN)
            raise PushRefused(403, self._with_remedy("Only brokers on this machine may push to this console.", remedy))


def pusher_of(headers: Headers) -> Pusher:
    """Who pushed, as the broker's headers say; raises PushRefused."""
    try:
        instance = UUID(headers.get("x-kafka-client-instance-id", ""))
    except ValueError:
        raise PushRefused(400, "X-Kafka-Client-Instance-Id is missing: this does not come from a broker.") from None
    names = ("client-id", "client-software", "client-address", "principal")
    return Pusher(instance, *(headers.get(f"x-kafka-{name}", "")[:MOST_CHARACTERS] for name in names))


def check_head(headers: Headers) -> bool:
    """Whether the body that follows is compressed; raises PushRefused for what its head says already."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != PROTOBUF:
        raise PushRefused(415, f"Metrics are sent as {PROTOBUF}.")
    match headers.get("content-encoding", "identity").strip().lower():
        case "identity" | "":
            is_gzip, most = False, MOST_BODY
        case "gzip":
            is_gzip, most = True, MOST_COMPRESSED
        case _:
            raise PushRefused(415, "Metrics are sent uncompressed, or with gzip.")
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal()):
        raise PushRefused(411, "The length of the request is missing.")
    if len(length) > 10 or int(length) > most:
        raise PushRefused(413, f"A push may have {most} bytes.")
    return is_gzip


async def _read(request: Request, most: int) -> bytes:
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise PushRefused(413, f"A push may have {most} bytes.")
            parts.append(part)
    except ClientDisconnect:
        raise PushRefused(400, "The push was not sent whole.") from None
    return b"".join(parts)


def _unpack_and_parse(body: bytes, is_gzip: bool) -> PushedMetrics:
    """The metrics of a body. Runs in a thread; raises PushRefused."""
    try:
        return parse(unpack(body) if is_gzip else body)
    except NotOtlp as error:
        raise PushRefused(400, f"These are no metrics of OTLP: {error}.") from error


def unpack(body: bytes) -> bytes:
    """A body without gzip; raises PushRefused before it is larger than a push may be."""
    inflater = zlib.decompressobj(_GZIP)
    try:
        data = inflater.decompress(body, MOST_BODY + 1)
    except zlib.error as error:
        raise PushRefused(400, "This is not gzip.") from error
    if len(data) > MOST_BODY:
        raise PushRefused(413, f"A push may have {MOST_BODY} bytes when it is uncompressed.")
    if not inflater.eof or inflater.unused_data:
        raise PushRefused(400, "The gzip ends too early or too late.")
    return data


def _status(message: str) -> bytes:
    """A google.rpc.Status, as OTLP answers errors: field 2 is its message."""
    text = message.encode()[:120]
    return bytes((0x12, len(text))) + text
