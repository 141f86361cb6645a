"""Groups of all kinds with what they have left to read, from few requests however many groups there are.

Each broker is asked for the groups that it coordinates, all brokers at the same time: one that hangs keeps nobody
waiting, and of its groups stays what it told before. A group without members is kept: it is the one whose lag grows
unseen. Lag is never below zero: an end that was asked for before the offsets were may be older than they are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.clients.admin.groups import CONSUMER_PROTOCOLS
from barnabas.clients.admin.share_groups import SHARE
from barnabas.clients.errors import BrokerUnreachable, LoginFailed, RequestRefused
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.groups import GroupListing
    from barnabas.clients.wire.connection import Node
    from barnabas.model.ids import TopicPartition

STREAMS: Final = "streams"
NO_ANSWER: Final = "No answer"
"""The state of a group whose coordinator does not answer."""
ALL_PROTOCOLS: Final = (*CONSUMER_PROTOCOLS, SHARE, STREAMS)
WITHOUT_COORDINATOR_SECONDS: Final = 15.0
"""How long a group is kept whose coordinator is down, and that no other has taken over."""


class GroupState(NamedTuple):
    """A group, and its lag by partition: None where it has not begun."""

    id: str
    type: str
    state: str
    offsets: Mapping[TopicPartition, int]
    lags: Mapping[TopicPartition, int | None]
    coordinator: int | None = None
    at: float = 0.0
    """When its coordinator told this, in seconds since 1970."""
    is_old: bool = False
    """Whether its coordinator does not answer now."""

    @property
    def shown_state(self) -> str:
        """The state as pages show it."""
        return NO_ANSWER if self.is_old else self.state

    @property
    def lag(self) -> int:
        """All that is left to read."""
        return sum(each for each in self.lags.values() if each is not None)

    @property
    def topics(self) -> list[str]:
        """What it reads, as far as it has committed."""
        return sorted({place.topic for place in self.lags})


class CoordinatedGroups(NamedTuple):
    """The groups that one broker coordinates; `error` says why offsets of some are missing."""

    groups: Mapping[str, GroupState]
    error: str | None


@dataclass(frozen=True, slots=True)
class GroupStates:
    """All groups by id; `error` says why some may be missing, or old."""

    at: float
    groups: Mapping[str, GroupState]
    error: str | None = None


def group_question(node: Node, ends: Mapping[TopicPartition, int]) -> Callable[[ClusterAdmin], CoordinatedGroups]:
    """To one broker: the groups that it coordinates, as far as the user may see them."""

    def ask(cluster: ClusterAdmin) -> CoordinatedGroups:
        listed = cluster.groups.listing(protocols=ALL_PROTOCOLS, at=node)
        shared = [each for each in listed if each.type.lower() == SHARE]
        consuming = [each for each in listed if each.type.lower() != SHARE]
        error: str | None = None
        found: dict[str, GroupState] = {}
        for some, look in ((consuming, _consumer_groups), (shared, _share_groups)):
            try:
                found |= look(cluster, ends, some)
            except (RequestRefused, BrokerUnreachable) as failure:
                error = str(failure)
                found |= {each.group_id: _bare(each) for each in some}
        now = time.time()
        return CoordinatedGroups(
            {name: each._replace(coordinator=node.id, at=now) for name, each in found.items()}, error
        )

    return ask


def join_groups(
    before: GroupStates | None, answers: Mapping[Node, CoordinatedGroups | BarnabasError], silent: Mapping[int, str]
) -> GroupStates:
    """All groups; those of brokers that do not answer as they were before. Raises LoginFailed.

    `silent` are brokers that were not asked because they have just not answered something else.
    """
    now = time.time()
    found: dict[str, GroupState] = {}
    errors: list[str] = []
    unanswered = set(silent)
    for node, answer in answers.items():
        if isinstance(answer, LoginFailed):
            raise answer
        if isinstance(answer, BarnabasError):
            unanswered.add(node.id)
        else:
            found |= answer.groups
            errors += [] if answer.error is None else [answer.error]
    asked = {node.id for node in answers}
    old: dict[int | None, int] = {}
    for name, group in ({} if before is None else before.groups).items():
        is_kept = group.coordinator in unanswered or (
            group.coordinator not in asked and now - group.at < WITHOUT_COORDINATOR_SECONDS
        )
        if name not in found and is_kept:
            found[name] = group._replace(is_old=True)
            old[group.coordinator] = old.get(group.coordinator, 0) + 1
    for number in sorted(unanswered):
        if number in old:
            groups = "one group" if old[number] == 1 else f"{old[number]:,} groups"
            errors.append(f"broker {number} coordinates {groups} and does not answer")
        elif before is None:
            errors.append(f"broker {number} does not answer")
    moving = sum(count for number, count in old.items() if number not in unanswered)
    if moving:
        errors.append(f"{'one waits' if moving == 1 else f'{moving:,} wait'} for another coordinator")
    return GroupStates(now, dict(sorted(found.items())), "; ".join(errors) or None)


def _bare(listed: GroupListing) -> GroupState:
    return GroupState(listed.group_id, (listed.type or "Classic").capitalize(), listed.state, {}, {})


def _consumer_groups(
    cluster: ClusterAdmin, ends: Mapping[TopicPartition, int], listed: list[GroupListing]
) -> dict[str, GroupState]:
    committed = cluster.groups.committed([each.group_id for each in listed]) if listed else {}
    found = {}
    for each in listed:
        offsets = {place: one.offset for place, one in committed.get(each.group_id, {}).items()}
        lags = {place: lag_of(ends.get(place), offset) for place, offset in offsets.items()}
        found[each.group_id] = GroupState(
            each.group_id, (each.type or "Classic").capitalize(), each.state, offsets, lags
        )
    return found


def lag_of(end: int | None, offset: int) -> int | None:
    """How much lies between an offset and the end; None if nobody knows the end."""
    return None if end is None else max(0, end - offset)


def _share_groups(
    cluster: ClusterAdmin, ends: Mapping[TopicPartition, int], listed: list[GroupListing]
) -> dict[str, GroupState]:
    """Their coordinators count what is left themselves."""
    states = cluster.share_groups.offsets([each.group_id for each in listed]) if listed else {}
    found = {}
    for each in listed:
        parts = states.get(each.group_id, {})
        offsets = {place: part.start for place, part in parts.items() if part is not None}
        lags = {place: None if part is None else part.lag for place, part in parts.items()}
        found[each.group_id] = GroupState(each.group_id, "Share", each.state, offsets, lags)
    return found
