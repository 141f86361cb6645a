"""Clients that push, and what each has pushed last: nobody can make the console keep more than fits its bounds.

Of one client the last push counts, and of that so many series; of all clients so many, and so many bytes. Who was quiet
for longest goes first, and who was quiet for an hour goes in any case.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.console.telemetry.figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from barnabas.console.telemetry.figures import ClientFigures
    from barnabas.console.telemetry.otlp import MetricPoint, PushedMetrics

MOST_CLIENTS: Final = 2_000
MOST_SERIES: Final = 1_000
"""Of one client."""
MOST_BYTES: Final = 64 << 20
"""Of all clients, about."""
QUIET_SECONDS: Final = 3600.0
_BYTES_OF_SERIES: Final = 250
"""What a series takes beside its texts."""


class Pusher(NamedTuple):
    """Who has pushed, as its broker says."""

    instance: UUID
    client_id: str
    software: str
    address: str
    principal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetrics:
    """A client with its last push."""

    pusher: Pusher
    at: float
    """When it came, by the clock."""
    due: float | None
    """Seconds between its last two pushes."""
    resource: dict[str, str]
    figures: ClientFigures
    points: tuple[MetricPoint, ...]
    omitted: int
    """Series that were not kept, or not read."""
    size: int


class PushingClients:
    """All clients that push."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._clients: dict[UUID, ClientMetrics] = {}
        """The one that was quiet for longest first."""
        self._size = 0
        self.forgotten = 0
        """Clients for which there was no room any more."""

    def take(self, pusher: Pusher, metrics: PushedMetrics) -> None:
        """Keep a push in place of the one before."""
        before = self._remove(pusher.instance)
        now = self._now()
        points = tuple(metrics.points[:MOST_SERIES])
        size = sum(map(_size, points)) + sum(len(name) + len(text) for name, text in metrics.resource.items())
        self._clients[pusher.instance] = ClientMetrics(
            pusher=pusher,
            at=now,
            due=None if before is None else now - before.at,
            resource=metrics.resource,
            figures=figures_of(metrics.points),
            points=points,
            omitted=len(metrics.points) - len(points) + metrics.unread,
            size=size,
        )
        self._size += size
        while len(self._clients) > MOST_CLIENTS or self._size > MOST_BYTES:
            self._remove(next(iter(self._clients)))
            self.forgotten += 1

    def all(self) -> list[ClientMetrics]:
        """Those who pushed within the hour."""
        self._forget_quiet()
        return list(self._clients.values())

    def find(self, instance: UUID) -> ClientMetrics | None:
        """One of them."""
        self._forget_quiet()
        return self._clients.get(instance)

    def _forget_quiet(self) -> None:
        oldest = self._now() - QUIET_SECONDS
        for instance in [each for each, client in self._clients.items() if client.at < oldest]:
            self._remove(instance)

    def _remove(self, instance: UUID) -> ClientMetrics | None:
        found = self._clients.pop(instance, None)
        if found is not None:
            self._size -= found.size
        return found


def _size(point: MetricPoint) -> int:
    return _BYTES_OF_SERIES + len(point.name) + sum(len(name) + len(text) + 100 for name, text in point.labels)
