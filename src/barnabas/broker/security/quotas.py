"""The client quotas of one broker: what the metadata tree says, applied to requests and connections.

Quotas follow the metadata cache, as all dynamic settings do. While there is one for users or client ids, every request
of a client has a `Meter` (`broker/security/metering`). The rules (`machines/security/quotas`) are loaded when the first
quota is set: most clusters have none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.net.admission import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.broker.security.host_lookups import HostLookups
    from barnabas.broker.security.metering import Meter, MutationQuota
    from barnabas.broker.security.quota_hosts import QuotaHosts
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.machines.security.quota_entities import QuotaEntity
    from barnabas.machines.security.quotas import ClientShares
    from barnabas.metadata.images.cache import Delta
    from barnabas.model.clock import Clock
    from barnabas.model.config.values import Values
    from barnabas.net.connection import Connection

logger = logging.getLogger(__name__)

KINDS: Final = frozenset({"users", "clients", "ips"})
"""Of settings in the tree, those that hold quotas."""


class ClientQuotas:
    """Quotas in force on this broker, and what clients have used of them."""

    def __init__(self, values: Values, clock: Clock, lookups: HostLookups | None = None) -> None:
        self.is_on = False
        """Whether there is any quota for users or client ids, so that requests have to be counted."""
        self.clock = clock
        self._values = values
        self._lookups = lookups
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._shares: ClientShares | None = None
        self._hosts: QuotaHosts | None = None
        self._subscribers: list[Callable[[Callable[[object], bool]], None]] = []

    def subscribe(self, callback: Callable[[Callable[[object], bool]], None]) -> None:
        """Call `callback` when there are other quotas, with what says whether they concern a client that waits."""
        self._subscribers.append(callback)

    @property
    def shares(self) -> ClientShares:
        """What clients have used."""
        if self._shares is None:
            from barnabas.machines.security.quotas import ClientShares, QuotaWindow

            number = self._values.number
            self._shares = ClientShares(
                QuotaWindow(number("quota.window.num"), number("quota.window.size.seconds")),
                QuotaWindow(number("controller.quota.window.num"), number("controller.quota.window.size.seconds")),
            )
        return self._shares

    @property
    def hosts(self) -> HostLookups:
        """What looks up the addresses of hosts."""
        if self._lookups is None:
            from barnabas.broker.security.host_lookups import HostLookups

            self._lookups = HostLookups()
        return self._lookups

    # Following the metadata

    def on_change(self, delta: Delta) -> None:
        """Take over quotas from an image of the metadata."""
        changed = delta.after.configs if delta.is_whole else delta.configs
        if (self._quotas and delta.is_whole) or any(resource.kind in KINDS for resource in changed):
            self._follow(delta.after)

    def _follow(self, image: ClusterImage) -> None:
        from barnabas.broker.security.quota_hosts import QuotaHosts
        from barnabas.machines.security.quota_entities import quotas_of

        quotas = dict(quotas_of(image))
        if quotas != self._quotas:
            self._quotas = quotas
            self._hosts = self._hosts or QuotaHosts(self.hosts, self._apply)
            self._apply()
            self._hosts.look_up(quotas)
            logger.info("Quotas are in force for %d users, client ids and addresses.", len(quotas))

    def _apply(self) -> None:
        from barnabas.machines.security.quota_entities import CLIENT_KEYS
        from barnabas.machines.security.quotas import QuotaLimits

        assert self._hosts is not None  # made with the first quota
        before, limits = self.shares.limits, QuotaLimits(dict(self._hosts.by_address(self._quotas)))
        self.shares.limits = limits
        self.is_on = bool(limits.keys & set(CLIENT_KEYS))

        def concerns(whose: object) -> bool:
            return isinstance(whose, ClientIdentity) and limits.differs(before, *whose)

        for callback in self._subscribers:
            callback(concerns)

    # Requests and connections

    def begin(self, connection: Connection, caller: Caller) -> Meter | None:
        """Measure a request; None for brokers, which have no quotas."""
        if caller.broker_id is not None:
            return None
        from barnabas.broker.security.metering import Meter

        return Meter(self, connection, *identity(caller))

    def mutations(self, caller: Caller, *, strict: bool) -> MutationQuota:
        """What a client may change of topics in one request; `strict` if it knows the error for too much."""
        from barnabas.broker.security.metering import MutationQuota

        return MutationQuota(self, *identity(caller), strict=strict)

    def delivered(self, caller: Caller, size: int) -> int:
        """A member of a share group is sent so many bytes: for how many milliseconds it gets no more.

        They are locked for the member, so they are not held back, as a consumer's are.
        """
        if self._shares is None:
            return 0
        return self._shares.delivered(*identity(caller), size, self.clock.monotonic())

    def most_delivered(self, caller: Caller) -> int:
        """The most bytes that a member of a share group is sent at once."""
        return UNLIMITED if self._shares is None else self._shares.most_at_once(*identity(caller))

    def delay_connection(self, ip: str) -> float:
        """The seconds after which a new connection is closed, because its address opened too many; 0 if it may be."""
        return 0.0 if self._shares is None else self._shares.connected(ip, self.clock.monotonic()) / 1000


class ClientIdentity(NamedTuple):
    """A client as quotas know it, which its connection waits as."""

    user: str
    client_id: str


def identity(caller: Caller) -> ClientIdentity:
    """A caller's user and client id, as quotas know them."""
    return ClientIdentity(caller.principal.partition(":")[2], caller.client_id or "")
