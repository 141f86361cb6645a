"""Client telemetry (KIP-714): which clients push their metrics, and how often they may.

A client asks for a subscription, and is told an id for itself, what to send and how often. Then it pushes. Rules are
Kafka's: nobody asks or pushes again before the interval is over, except for the first push after a subscription and
the last push of a client that ends. A subscription that has changed is asked for anew.

A broker that does not know a client takes its push all the same, if it names the present subscription: clients push to
whichever broker they are connected to. What is remembered of clients is bounded: who was quiet for longest is
forgotten.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ErrorCode
from barnabas.model.ids import NO_ID

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

MOST_CLIENTS: Final = 16_384
ALL_METRICS: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySubscription:
    """What clients are to send."""

    metrics: tuple[str, ...]
    """How the names of metrics begin that are wanted; ALL_METRICS alone for all of them."""
    interval_ms: int

    @property
    def id(self) -> int:
        """Another number for another subscription."""
        return zlib.crc32(f"{self.interval_ms}:{','.join(self.metrics)}".encode()) & 0x7FFFFFFF


@dataclass(slots=True)
class _Client:
    asked_ms: int = -1
    pushed_ms: int = -1
    is_over: bool = False
    may_ask_again: bool = False
    """Whether the last push was refused because of its subscription or its compression."""


class TelemetryClients:
    """The clients of one broker that push metrics."""

    def __init__(
        self, subscription: TelemetrySubscription, new_id: Callable[[], UUID], most: int = MOST_CLIENTS
    ) -> None:
        self.subscription = subscription
        self._new_id = new_id
        self._most = most
        self._clients: dict[UUID, _Client] = {}
        """The one that was quiet for longest first."""

    def __len__(self) -> int:
        return len(self._clients)

    def ask(self, client_id: UUID, now_ms: int) -> tuple[UUID, ErrorCode]:
        """A client asks what to send; gives its id, which is a new one for a client that has none."""
        if client_id == NO_ID:
            client_id = self._new_id()
        client = self._find_or_add(client_id)
        last = max(client.asked_ms, client.pushed_ms)
        if last >= 0 and now_ms - last < self.subscription.interval_ms and not client.may_ask_again:
            return client_id, ErrorCode.throttling_quota_exceeded
        client.asked_ms, client.may_ask_again = now_ms, False
        return client_id, ErrorCode.none

    def push(self, client_id: UUID, subscription_id: int, *, terminating: bool, now_ms: int) -> ErrorCode:
        """A client pushes metrics: whether they are taken."""
        if client_id == NO_ID:
            return ErrorCode.invalid_request
        client = self._find_or_add(client_id)
        if client.is_over:
            return ErrorCode.invalid_request
        is_first = client.asked_ms > client.pushed_ms or client.pushed_ms < 0
        if not (is_first or terminating) and now_ms - client.pushed_ms < self.subscription.interval_ms:
            return ErrorCode.throttling_quota_exceeded
        client.pushed_ms = now_ms
        if subscription_id != self.subscription.id:
            client.may_ask_again = True
            return ErrorCode.unknown_subscription_id
        client.is_over = terminating
        return ErrorCode.none

    def refuse_compression(self, client_id: UUID) -> ErrorCode:
        """What a client pushed is compressed as nobody here can read it: it may ask again at once."""
        self._find_or_add(client_id).may_ask_again = True
        return ErrorCode.unsupported_compression_type

    def _find_or_add(self, client_id: UUID) -> _Client:
        client = self._clients.pop(client_id, None) or _Client()
        self._clients[client_id] = client
        if len(self._clients) > self._most:
            del self._clients[next(iter(self._clients))]
        return client
