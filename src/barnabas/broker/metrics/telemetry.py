"""Client telemetry to an OTLP receiver (KIP-714): what clients push is sent on over HTTP, as they wrote it.

A client's metrics are OpenTelemetry's MetricsData, which has the same bytes as the request of OTLP over HTTP. So they
are not read here, only uncompressed, with a limit: a megabyte can become a gigabyte otherwise (CVE-2026-111073). Who
pushed them goes along in headers. A receiver that sends elsewhere is not followed: the token is for it alone.

Nothing waits for the receiver. A few pushes are under way to it at a time, in threads of their own, and those of one
client one after the other. What it does not take within a bound of bytes is dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import urllib.request
import uuid
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit

from barnabas.broker.daemon_threads import in_daemon_thread
from barnabas.broker.tasks import TaskSet
from barnabas.machines.telemetry import ALL_METRICS, TelemetryClients, TelemetrySubscription
from barnabas.model.errors import ConfigError, ErrorCode, InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from barnabas.protocol.records.compression import Codec, codec_of, decompress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from barnabas.broker.serving.caller import Caller
    from barnabas.broker.settings import Settings

logger = logging.getLogger(__name__)

ACCEPTED: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""Compressions that clients may use, the best first."""
EXPANSION: Final = 8
"""How many times telemetry.max.bytes a push may have when it is uncompressed."""
MOST_WAITING: Final = 16 << 20
"""Bytes that wait for the receiver, or are on their way to it; more is dropped."""
PUSH_BYTES: Final = 2048
"""What a push takes beside its metrics: headers may be as long as names are."""
SENDERS: Final = 4
"""Pushes that are under way at a time."""
SEND_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 5.0
"""After a push that could not be sent, or for which the receiver had no room; not after one that it found wrong."""
WARN_AGAIN_SECONDS: Final = 600.0
TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_UNSAFE: Final = re.compile(r"[^\x21-\x7e]")


class Push(NamedTuple):
    """Metrics of a client, on their way."""

    metrics: bytes
    headers: Mapping[str, str]


class TelemetryReceiver:
    """Takes metrics from clients and sends them on."""

    def __init__(self, settings: Settings) -> None:
        self._endpoint = settings.text("telemetry.otlp.endpoint")
        if urlsplit(self._endpoint).scheme not in ("http", "https"):
            raise ConfigError(
                f"telemetry.otlp.endpoint is {self._endpoint!r}: write a URL, for example http://localhost:4318/v1/metrics"
            )
        token = settings.text_or_none("telemetry.otlp.token")
        if token is not None and not TOKEN.fullmatch(token):
            raise ConfigError("telemetry.otlp.token has characters that no header can have.")
        self._own_headers = {"Content-Type": "application/x-protobuf"}
        if token is not None:
            self._own_headers["Authorization"] = f"Bearer {token}"
        self._opener = urllib.request.build_opener(_NoRedirects)
        self.max_bytes = settings.number("telemetry.max.bytes")
        subscription = TelemetrySubscription(
            metrics=tuple(settings.items("telemetry.metrics")) or (ALL_METRICS,),
            interval_ms=settings.number("telemetry.interval.ms"),
        )
        self.clients = TelemetryClients(subscription, uuid.uuid4)
        self._waiting: list[asyncio.Queue[Push]] = [asyncio.Queue() for _ in range(SENDERS)]
        """A client's pushes are all in the same one, so they keep their order."""
        self.waiting_bytes = 0
        self._warned: float | None = None
        self._tasks = TaskSet()
        self.taken = 0
        self.sent = 0
        self.failed = 0
        """Pushes that the receiver did not take."""
        self.without_room = 0
        """Pushes that came while too many waited."""

    @property
    def dropped(self) -> int:
        """Pushes that are lost."""
        return self.failed + self.without_room

    def start(self) -> None:
        """Begin to send."""
        for waiting in self._waiting:
            self._tasks.spawn(self._send_all(waiting), "client telemetry")

    async def stop(self) -> None:
        """Send nothing more."""
        await self._tasks.cancel()

    def unpack(self, compression: int, metrics: bytes) -> bytes | ErrorCode:
        """What was pushed, uncompressed, or why it is not taken. May run in a thread."""
        if len(metrics) > self.max_bytes:
            return ErrorCode.telemetry_too_large
        try:
            if codec_of(compression) not in (Codec.NONE, *ACCEPTED):
                return ErrorCode.unsupported_compression_type
            return decompress(compression, metrics, EXPANSION * self.max_bytes)
        except MessageTooLarge:
            return ErrorCode.telemetry_too_large
        except UnsupportedCompressionType:
            return ErrorCode.unsupported_compression_type
        except InvalidRecord:
            return ErrorCode.invalid_record

    def take(self, client_id: UUID, caller: Caller, metrics: bytes) -> None:
        """Have metrics sent on, if there is room for them."""
        self.taken += 1
        if not metrics:
            return
        if self.waiting_bytes + len(metrics) + PUSH_BYTES > MOST_WAITING:
            self.without_room += 1
            return
        self.waiting_bytes += len(metrics) + PUSH_BYTES
        headers = {
            **self._own_headers,
            "X-Kafka-Client-Instance-Id": str(client_id),
            "X-Kafka-Client-Id": _UNSAFE.sub("_", caller.client_id or "")[:256],
            "X-Kafka-Client-Software": caller.session.software,
            "X-Kafka-Client-Address": _UNSAFE.sub("_", caller.address[0])[:256],
            "X-Kafka-Principal": _UNSAFE.sub("_", caller.principal)[:256],
        }
        self._waiting[client_id.int % SENDERS].put_nowait(Push(metrics, headers))

    async def _send_all(self, waiting: asyncio.Queue[Push]) -> None:
        while True:
            push = await waiting.get()
            try:
                await in_daemon_thread("barnabas-telemetry", self._post, push)
            except (OSError, HTTPException, ValueError) as error:
                self.failed += 1
                self._warn(error)
                if not _is_refused(error):
                    await asyncio.sleep(PAUSE_SECONDS)
            else:
                self.sent += 1
            finally:
                self.waiting_bytes -= len(push.metrics) + PUSH_BYTES

    def _warn(self, error: Exception) -> None:
        """Say now and then that metrics are lost: others may be taken in between."""
        now = time.monotonic()
        if self._warned is None or now - self._warned >= WARN_AGAIN_SECONDS:
            self._warned = now
            logger.warning("Metrics of clients cannot be sent to %s and are dropped: %s", self._endpoint, error)

    def _post(self, push: Push) -> None:
        """Send one push. Runs in a thread; raises OSError, HTTPException."""
        request = urllib.request.Request(self._endpoint, data=push.metrics, headers=dict(push.headers))
        try:
            self._opener.open(request, timeout=SEND_SECONDS).close()
        except HTTPError as error:
            error.close()  # or its connection stays open until the garbage collector comes by
            raise


def _is_refused(error: Exception) -> bool:
    """Whether the receiver is there, and did not like what this push said: the next one may be good."""
    if not isinstance(error, HTTPError) or error.code == HTTPStatus.TOO_MANY_REQUESTS:
        return False
    return HTTPStatus.BAD_REQUEST <= error.code < HTTPStatus.INTERNAL_SERVER_ERROR


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for the error that it is here."""

    def redirect_request(self, *words: object, **options: object) -> None:
        """Follow none."""
        return
