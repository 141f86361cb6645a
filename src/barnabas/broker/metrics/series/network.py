"""Connections, logins, requests that wait, and clients that are throttled."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.metrics.exposition import COUNTER, GAUGE, Family, counter, gauge, labels
from barnabas.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.metrics.scrape import Pace
    from barnabas.broker.serving.login import LoginCounts
    from barnabas.net.server import Server

SOCKETS: Final = "kafka_server_socket_server_metrics_"
PURGATORIES: Final = {
    ApiKey.PRODUCE: "Produce",
    ApiKey.FETCH: "Fetch",
    ApiKey.SHARE_FETCH: "ShareFetch",
    ApiKey.JOIN_GROUP: "Rebalance",
    ApiKey.SYNC_GROUP: "Rebalance",
}
"""Kafka's names of what waits, by what was asked."""
OTHERS: Final = "Other"


class NetworkSeries:
    """Series of a broker's listeners."""

    def __init__(self, broker: BrokerContext, server: Callable[[], Server | None], logins: LoginCounts) -> None:
        self._broker = broker
        self._server = server
        self._logins = logins

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """The listeners as they are now."""
        server = self._server()
        if server is None:
            return ()
        return [
            *self._connections(server),
            *self._authentications(server),
            await self._purgatories(server, pace),
            *self._memory(server),
            *_throttling(server),
            self._certificates(),
            *self._telemetry(),
        ]

    def _connections(self, server: Server) -> list[Family]:
        count = Family(f"{SOCKETS}connection_count", GAUGE, "Connections that are open.")
        opened = Family(f"{SOCKETS}connection_creation", COUNTER, "Connections that were opened, by listener.")
        ended = Family(f"{SOCKETS}connection_close", COUNTER, "Connections that have ended, by listener.")
        for listener in self._broker.settings.static.listeners:
            name = listener.name
            label = labels(listener=name, networkProcessor="0")
            count.add(server.opened[name] - server.ended[name], label)
            opened.add(server.opened[name], label)
            ended.add(server.ended[name], label)
        away = "Connections that were closed at once, because their addresses had too many."
        return [count, opened, ended, counter("barnabas_connections_turned_away", away, server.turned_away)]

    def _authentications(self, server: Server) -> list[Family]:
        done = Family(f"{SOCKETS}successful_authentication", COUNTER, "Logins that were accepted.")
        failed = Family(f"{SOCKETS}failed_authentication", COUNTER, "Logins and TLS handshakes that failed.")
        by_mechanism = Family("barnabas_failed_logins", COUNTER, "Logins that failed, by mechanism.")
        for listener in self._broker.settings.static.listeners:
            name = listener.name
            label = labels(listener=name, networkProcessor="0")
            refused = sum(count for (found, _), count in self._logins.failed.items() if found == name)
            done.add(sum(count for (found, _), count in self._logins.done.items() if found == name), label)
            failed.add(refused + server.failed_handshakes[name], label)
        for (name, mechanism), count in self._logins.failed.items():
            by_mechanism.add(count, labels(listener=name, mechanism=mechanism))
        return [done, failed, by_mechanism]

    async def _purgatories(self, server: Server, pace: Pace) -> Family:
        """How many requests wait, by what they wait with."""
        waiting: Counter[str] = Counter(dict.fromkeys((*PURGATORIES.values(), OTHERS), 0))
        for connection in list(server.connections):
            for parked in tuple(connection.parked):
                watched = parked.when_answered
                if isinstance(watched, partial) and not parked.resolved:
                    waiting[PURGATORIES.get(watched.args[1], OTHERS)] += 1
            if pace.is_over:
                await pace.rest()
        family = Family(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            GAUGE,
            "Requests that wait for records, replicas, members or a time, by what they wait for.",
        )
        for name, count in waiting.items():
            family.add(count, labels(delayedOperation=name))
        return family

    def _memory(self, server: Server) -> list[Family]:
        """Bytes of requests that are held, because they are not whole or have to wait."""
        parked = Family("barnabas_parked_bytes", GAUGE, "Memory of requests that are not whole, or wait for a thread.")
        parked.add(server.budget.used, labels(kind="requests"))
        parked.add(server.login_budget.used, labels(kind="logins"))
        parked.add(self._broker.validation_pool.waiting_bytes, labels(kind="validation"))
        limit = "Memory that requests which are not whole may take (queued.max.request.bytes)."
        return [parked, gauge("barnabas_parked_bytes_limit", limit, server.budget.limit)]

    def _telemetry(self) -> list[Family]:
        """Nothing without a receiver of clients' metrics."""
        receiver = self._broker.telemetry
        if receiver is None:
            return []
        pushes = Family("barnabas_telemetry_pushes", COUNTER, "Pushes of clients' metrics, by what became of them.")
        for result, count in (("sent", receiver.sent), ("failed", receiver.failed), ("no_room", receiver.without_room)):
            pushes.add(count, labels(result=result))
        waiting = "Memory of clients' metrics that wait for their receiver."
        return [pushes, gauge("barnabas_telemetry_waiting_bytes", waiting, receiver.waiting_bytes)]

    def _certificates(self) -> Family:
        family = Family("barnabas_certificate_expiry_timestamp_seconds", GAUGE, "When a listener's certificate ends.")
        certificates = self._broker.certificates
        for listener, expires in () if certificates is None else certificates.expiries().items():
            family.add(expires.timestamp(), labels(listener=listener))
        return family


def _throttling(server: Server) -> list[Family]:
    return [
        gauge("barnabas_throttled_connections", "Connections that are not read because of quotas.", len(server.muted)),
        counter("barnabas_throttles", "How often quotas let a connection wait.", server.throttles),
        counter(
            "barnabas_throttled_seconds",
            "For how long quotas let connections wait, all together.",
            server.throttled_seconds,
        ),
    ]
