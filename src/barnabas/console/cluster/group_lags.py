"""Groups of all kinds with what they have left to read, from few requests however many groups there are.

A group without members is kept: it is the one whose lag grows unseen. Lag is never below zero: an end that was asked
for before the offsets were may be older than they are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.clients.admin.groups import CONSUMER_PROTOCOLS
from barnabas.clients.admin.share_groups import SHARE
from barnabas.clients.errors import BrokerUnreachable, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.groups import GroupListing
    from barnabas.console.cluster.snapshot import ClusterSnapshot
    from barnabas.model.ids import TopicPartition

STREAMS: Final = "streams"
ALL_PROTOCOLS: Final = (*CONSUMER_PROTOCOLS, SHARE, STREAMS)


class GroupState(NamedTuple):
    """A group, and its lag by partition: None where it has not begun."""

    id: str
    type: str
    state: str
    offsets: Mapping[TopicPartition, int]
    lags: Mapping[TopicPartition, int | None]

    @property
    def lag(self) -> int:
        """All that is left to read."""
        return sum(each for each in self.lags.values() if each is not None)

    @property
    def topics(self) -> list[str]:
        """What it reads, as far as it has committed."""
        return sorted({place.topic for place in self.lags})


@dataclass(frozen=True, slots=True)
class GroupStates:
    """All groups by id; `error` says why some may be missing."""

    at: float
    groups: Mapping[str, GroupState]
    error: str | None = None


def describe_groups(cluster: ClusterAdmin, snapshot: ClusterSnapshot) -> GroupStates:
    """All groups that the user may see."""
    listed = cluster.groups.listing(protocols=ALL_PROTOCOLS)
    shared = [each for each in listed if each.type.lower() == SHARE]
    consuming = [each for each in listed if each.type.lower() != SHARE]
    error: str | None = None
    found: dict[str, GroupState] = {}
    try:
        found |= _consumer_groups(cluster, snapshot, consuming)
    except (RequestRefused, BrokerUnreachable) as failure:
        error = str(failure)
        found |= {each.group_id: _bare(each) for each in consuming}
    try:
        found |= _share_groups(cluster, shared)
    except (RequestRefused, BrokerUnreachable) as failure:
        error = str(failure)
        found |= {each.group_id: _bare(each) for each in shared}
    return GroupStates(time.time(), dict(sorted(found.items())), error)


def _bare(listed: GroupListing) -> GroupState:
    return GroupState(listed.group_id, (listed.type or "Classic").capitalize(), listed.state, {}, {})


def _consumer_groups(
    cluster: ClusterAdmin, snapshot: ClusterSnapshot, listed: list[GroupListing]
) -> dict[str, GroupState]:
    committed = cluster.groups.committed([each.group_id for each in listed]) if listed else {}
    found = {}
    for each in listed:
        offsets = {place: one.offset for place, one in committed.get(each.group_id, {}).items()}
        lags = {place: lag_of(snapshot.ends.get(place), offset) for place, offset in offsets.items()}
        found[each.group_id] = GroupState(
            each.group_id, (each.type or "Classic").capitalize(), each.state, offsets, lags
        )
    return found


def lag_of(end: int | None, offset: int) -> int | None:
    """How much lies between an offset and the end; None if nobody knows the end."""
    return None if end is None else max(0, end - offset)


def _share_groups(cluster: ClusterAdmin, listed: list[GroupListing]) -> dict[str, GroupState]:
    states = cluster.share_groups.offsets([each.group_id for each in listed]) if listed else {}
    found = {}
    for each in listed:
        parts = states.get(each.group_id, {})
        offsets = {place: part.start for place, part in parts.items() if part is not None}
        lags = {place: None if part is None else part.lag for place, part in parts.items()}
        found[each.group_id] = GroupState(each.group_id, "Share", each.state, offsets, lags)
    return found
