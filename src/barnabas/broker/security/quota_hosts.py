"""Quotas for addresses may be set for the names of hosts: their addresses are looked up (`host_lookups`)."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.security.host_lookups import literal
from barnabas.machines.security.quota_entities import QuotaEntity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.broker.security.host_lookups import HostLookups

    Quotas = Mapping[QuotaEntity, Mapping[str, float]]

logger = logging.getLogger(__name__)

LOOKED_UP_AGAIN: Final = 60.0
"""Seconds after which a host that is not known is looked up again."""


class QuotaHosts:
    """The addresses of hosts that quotas are for; `on_found` is called when one of them was looked up."""

    def __init__(self, lookups: HostLookups, on_found: Callable[[], None]) -> None:
        self._lookups = lookups
        self._on_found = on_found
        self._hosts: frozenset[str] = frozenset()
        self._addresses: dict[str, tuple[str, ...]] = {}
        """None of those hosts that are being looked up."""

    def by_address(self, quotas: Quotas) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        """The quotas, with addresses instead of names of hosts, as far as they are known."""
        for entity, values in quotas.items():
            if not entity.ip:
                yield entity, values
            else:
                for address in self._addresses.get(entity.ip) or literal(entity.ip):
                    yield QuotaEntity(ip=address), values

    def look_up(self, quotas: Quotas) -> None:
        """Have the addresses of their hosts looked up, which may take a while. Others are forgotten."""
        self._hosts = frozenset(entity.ip for entity in quotas if entity.ip)
        self._addresses = {host: found for host, found in self._addresses.items() if host in self._hosts}
        for host in sorted(self._hosts - self._addresses.keys()):
            if not literal(host):
                self._look_up(host)

    def _look_up(self, host: str) -> None:
        if host in self._hosts and not self._addresses.get(host):
            self._addresses[host] = ()
            self._lookups.start(host, partial(self._note, host))

    def _note(self, host: str, found: tuple[str, ...]) -> None:
        if host not in self._hosts:
            return
        if not found:
            logger.warning(
                "The quota of host %s is not in force: its address is not known. It is looked up again in %d s.",
                host,
                LOOKED_UP_AGAIN,
            )
            get_running_loop().call_later(LOOKED_UP_AGAIN, self._look_up, host)
            return
        self._addresses[host] = found
        self._on_found()
