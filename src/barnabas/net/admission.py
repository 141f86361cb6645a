"""How many connections there may be, and how fast they may come: Kafka's limits.

- A connection beyond max.connections, of the broker or of its listener, waits in the system's backlog until another is
  closed. The listener between brokers does not wait for clients: the one that was quiet for longest is closed instead.
- A connection beyond max.connections.per.ip (or the override for its address) is refused.
- Connections that come faster than max.connection.creation.rate wait in the backlog. The rate of the whole broker does
  not count for the listener between brokers.

Handshakes that are under way count as connections.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

UNLIMITED: Final = 2**31 - 1
LONGEST_WAIT: Final = 1.0
"""Seconds after which a listener that comes too fast looks again."""


class ListenerLimits(NamedTuple):
    """The limits of one listener."""

    max_connections: int = UNLIMITED
    creation_rate: int = UNLIMITED
    """Connections per second."""


class ConnectionLimits(NamedTuple):
    """The limits of a broker, and of its listeners by their names."""

    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = MappingProxyType({})
    """By address."""
    creation_rate: int = UNLIMITED
    listeners: Mapping[str, ListenerLimits] = MappingProxyType({})
    inter_broker_listener: str | None = None
    """The listener between brokers, if clients have another."""


class Admission:
    """Counts connections, and says whether another may come in."""

    __slots__ = ("_has_rates", "_limits", "_per_ip", "_per_listener", "_rates", "_total")

    def __init__(self, limits: ConnectionLimits) -> None:
        self._total = 0
        self._per_listener: Counter[str] = Counter()
        self._per_ip: Counter[str] = Counter()
        self._rates: dict[str | None, _Rate] = {}
        """By listener; None for the whole broker."""
        self.change_limits(limits)

    def change_limits(self, limits: ConnectionLimits) -> None:
        """Use other limits from now on."""
        self._limits = limits
        rates = (limits.creation_rate, *(each.creation_rate for each in limits.listeners.values()))
        self._has_rates = min(rates) < UNLIMITED
        if not self._has_rates:
            self._rates.clear()

    @property
    def total(self) -> int:
        """Connections and handshakes."""
        return self._total

    def is_protected(self, listener: str) -> bool:
        """Whether the listener is for brokers, and others are for clients."""
        return listener == self._limits.inter_broker_listener

    def is_full(self, listener: str) -> bool:
        """Whether another connection must wait until one is closed."""
        if self._per_listener[listener] >= self._of(listener).max_connections:
            return True
        return self._total >= self._limits.max_connections and not self.is_protected(listener)

    @property
    def is_overfull(self) -> bool:
        """Whether brokers have come in beyond the limit, so that a client has to go."""
        return self._total > self._limits.max_connections

    def wait_seconds(self, listener: str, now: float) -> float:
        """How long the next connection has to wait because others came so fast; 0 if it need not."""
        if not self._has_rates:
            return 0.0
        broker_rate = UNLIMITED if self.is_protected(listener) else self._limits.creation_rate
        waits = (
            self._wait(listener, self._of(listener).creation_rate, now),
            self._wait(None, broker_rate, now),
        )
        return max(waits)

    def is_refused(self, ip: str) -> bool:
        """Whether its address has all the connections that it may have."""
        limits = self._limits
        return self._per_ip[ip] >= limits.per_ip_overrides.get(ip, limits.max_connections_per_ip)

    def add(self, listener: str, ip: str) -> None:
        """A connection came in."""
        self._total += 1
        self._per_listener[listener] += 1
        self._per_ip[ip] += 1
        if self._has_rates:
            for name in (listener, None):
                if name in self._rates:
                    self._rates[name].tokens -= 1

    def remove(self, listener: str, ip: str) -> None:
        """A connection has ended."""
        self._total -= 1
        self._per_listener[listener] -= 1
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    def _of(self, listener: str) -> ListenerLimits:
        return self._limits.listeners.get(listener, _NO_LIMITS)

    def _wait(self, name: str | None, per_second: int, now: float) -> float:
        if per_second >= UNLIMITED:
            self._rates.pop(name, None)
            return 0.0
        rate = self._rates.setdefault(name, _Rate(float(per_second), now))
        return rate.wait(per_second, now)


_NO_LIMITS: Final = ListenerLimits()


class _Rate:
    """A token bucket that holds the tokens of one second."""

    __slots__ = ("at", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.tokens = tokens
        self.at = at

    def wait(self, per_second: int, now: float) -> float:
        """Seconds until the next token."""
        self.tokens = min(float(max(per_second, 1)), self.tokens + (now - self.at) * per_second)
        self.at = now
        if self.tokens >= 1:
            return 0.0
        return LONGEST_WAIT if per_second == 0 else min((1 - self.tokens) / per_second, LONGEST_WAIT)


def listener_limit(value: object) -> int:
    """A limit as it was set for a listener, or none.

    >>> listener_limit(5), listener_limit(None)
    (5, 2147483647)
    """
    return value if isinstance(value, int) else UNLIMITED
