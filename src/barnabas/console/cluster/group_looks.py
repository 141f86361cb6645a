"""What coordinators tell of single groups: members, who reads what, and how far they are now.

A group is asked for once at a time, however many pages show it. A coordinator that hangs is not waited for: pages get
what it told before, with the words that it does not answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.console.cluster.lines import BrokerLines
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.groups import GroupInfo
    from barnabas.console.cluster.connections import Connections
    from barnabas.console.cluster.group_lags import GroupState
    from barnabas.console.cluster.snapshot import ClusterSnapshot
    from barnabas.model.ids import TopicPartition

SHARE: Final = "Share"
LOOK_SECONDS: Final = 0.5
"""How old an answer may be that a page gets."""
MOST_GROUPS: Final = 16
"""Groups that somebody looks at, of which connections are kept."""


class GroupLook(NamedTuple):
    """A group in full, as its coordinator tells it; why not, where it refuses."""

    info: GroupInfo | RequestRefused
    offsets: Mapping[TopicPartition, int]


class GroupLooks:
    """The groups that pages show."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._looks: OrderedDict[str, _Look] = OrderedDict()

    async def get(self, group: GroupState, snapshot: ClusterSnapshot) -> tuple[GroupLook | None, str | None]:
        """A group, and why that is not how it is now, if it is not; None if nobody has ever told."""
        look = self._looks.setdefault(group.id, _Look(self._connections))
        self._looks.move_to_end(group.id)
        while len(self._looks) > MOST_GROUPS:
            self._looks.popitem(last=False)[1].close()
        return await look.get(group, snapshot)

    def close(self) -> None:
        """Ask nothing more."""
        for look in self._looks.values():
            look.close()
        self._looks.clear()


class _Look:
    """One group."""

    def __init__(self, connections: Connections) -> None:
        self._lines = BrokerLines[GroupLook](connections)
        self._turn = asyncio.Lock()
        self._newest: GroupLook | None = None
        self._until = 0.0

    async def get(self, group: GroupState, snapshot: ClusterSnapshot) -> tuple[GroupLook | None, str | None]:
        async with self._turn:
            if self._newest is not None and time.monotonic() < self._until:
                return self._newest, None
            broker = snapshot.brokers.get(-1 if group.coordinator is None else group.coordinator)
            if broker is None or not broker.up:
                return self._newest, f"Broker {group.coordinator} coordinated it and is down. No other has taken over."
            reason = snapshot.silent.get(broker.id)
            if reason is None:
                answer = (await self._lines.ask({broker.node: _question(group)}))[broker.node]
                self._lines.keep([broker.node])
                if not isinstance(answer, BarnabasError):
                    self._newest, self._until = answer, time.monotonic() + LOOK_SECONDS
                    return answer, None
                if not isinstance(answer, BrokerUnreachable):
                    raise answer
                reason = str(answer)
            return self._newest, f"Broker {broker.id} coordinates it and does not answer: {reason}."

    def close(self) -> None:
        self._lines.close()


def _question(group: GroupState) -> Callable[[ClusterAdmin], GroupLook]:
    def ask(cluster: ClusterAdmin) -> GroupLook:
        groups = cluster.share_groups if group.type == SHARE else cluster.groups
        return GroupLook(groups.describe([group.id])[group.id], offsets_of(cluster, group))

    return ask


def offsets_of(cluster: ClusterAdmin, group: GroupState) -> dict[TopicPartition, int]:
    """Where a group is, asked of its coordinator now."""
    if group.type == SHARE:
        found = cluster.share_groups.offsets([group.id])[group.id]
        return {place: part.start for place, part in found.items() if part is not None}
    return {place: one.offset for place, one in cluster.groups.committed([group.id])[group.id].items()}
