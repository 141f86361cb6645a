"""Where the messages of a share group stand, as the group coordinator sees it: which partitions have state, and since
when. The state itself, with its offsets, is the share coordinator's.

Every change is made in two steps, with the share coordinator asked in between: first what is going to be is written
down, then that it was done. A coordinator that stops between them finds what it began, and whoever asked asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.machines.groups.share.group import ShareGroup
from barnabas.machines.groups.share.state_partitions import NamedPartitions, joined
from barnabas.machines.outcome import Outcome, answer
from barnabas.model.errors import ApiError, ErrorCode, GroupIdNotFound

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from barnabas.machines.controller.image import TopicImage
    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.table import GroupOutcome, GroupTable
    from barnabas.machines.outcome import Asker

    StartOffsets = Mapping[UUID, Mapping[int, int]]
    """Offsets by partition and topic."""


class InitializeStates(NamedTuple):
    """To the share coordinator: make state of partitions, which begins at these offsets."""

    group_id: str
    state_epoch: int
    start_offsets: StartOffsets


class DeleteStates(NamedTuple):
    """To the share coordinator: delete the state of partitions."""

    group_id: str
    partitions: Partitions


def share_group(table: GroupTable, group_id: str) -> ShareGroup:
    """The share group of this id."""
    group = table.groups.get(group_id)
    if isinstance(group, ShareGroup):
        return group
    raise GroupIdNotFound(f"Group {group_id} {'not found.' if group is None else 'is not a share group.'}")


class ShareOffsets:
    """Decides about the states of partitions, but for those that heartbeats ask for."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self.asked: dict[str, dict[UUID, int]] = {}
        """By group, when the share coordinator was asked last to make the state of a topic's partitions; soft state."""

    def initialized_partitions(self, group_id: str, asker: Asker[Partitions], now_ms: int) -> GroupOutcome:
        """Partitions that have state; of a group that is no share group, none."""
        group = self._table.groups.get(group_id)
        return answer(asker, group.state_partitions.assignable() if isinstance(group, ShareGroup) else {})

    def alter(self, group_id: str, offsets: StartOffsets, asker: Asker[InitializeStates], now_ms: int) -> GroupOutcome:
        """Let partitions begin at other offsets; a group that does not exist is made by it. The answer is what to ask.

        The partitions are of topics that exist.
        """
        found = self._table.groups.get(group_id)
        if found is not None and not isinstance(found, ShareGroup):
            return answer(asker, GroupIdNotFound(f"Group {group_id} is not a share group."))
        group = found or ShareGroup(group_id)
        try:
            group.check_delete()
        except ApiError as error:
            return answer(asker, error)
        reply = InitializeStates(group_id, group.epoch, offsets)
        names = self._table.image.topic_names
        topics = {topic: NamedPartitions(names[topic], frozenset(found)) for topic, found in offsets.items()}
        if not topics:
            return answer(asker, reply)
        self.asked.setdefault(group_id, {}).update(dict.fromkeys(topics, now_ms))
        changes = (group.state_partitions.initialize(topics).record(group_id),)
        return Outcome(changes=changes, replies=((asker, reply),))

    def initialize_ended(self, group_id: str, done: Partitions, failed: Partitions, now_ms: int) -> GroupOutcome:
        """The share coordinator has state of some partitions; of the others it has none, and is asked again.

        Nothing is true of topics that went meanwhile.
        """
        group = self._table.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return Outcome()
        names = self._table.image.topic_names
        before = group.state_partitions
        there = {topic: found for topic, found in done.items() if topic in names}
        after = before.initialize_failed(failed).initialize_done(there, names)
        return Outcome(changes=(after.record(group_id),) if after != before else ())

    def begin_delete(
        self, group_id: str, topics: Collection[TopicImage], asker: Asker[DeleteStates], now_ms: int
    ) -> GroupOutcome:
        """Give up the state of topics. The answer is what to ask; topics without state are not in it."""
        try:
            group = share_group(self._table, group_id)
            group.check_delete()
        except ApiError as error:
            return answer(asker, error)
        states = group.state_partitions
        partitions: dict[UUID, frozenset[int]] = {}
        for topic in topics:
            if (done := states.initialized.get(topic.topic_id)) is not None:
                partitions[topic.topic_id] = done.partitions
            elif topic.topic_id in states.deleting:
                partitions[topic.topic_id] = _all_partitions(topic)
        reply = DeleteStates(group_id, partitions)
        if not partitions:
            return answer(asker, reply)
        names = {topic.topic_id: topic.name for topic in topics if topic.topic_id in partitions}
        return Outcome(changes=(states.give_up(names).record(group_id),), replies=((asker, reply),))

    def complete_delete(
        self, group_id: str, topics: Collection[UUID], asker: Asker[ErrorCode], now_ms: int
    ) -> GroupOutcome:
        """The share coordinator has deleted the state of these topics."""
        group = self._table.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return answer(asker, ErrorCode.none)
        changes = (group.state_partitions.delete_done(topics).record(group_id),)
        return Outcome(changes=changes, replies=((asker, ErrorCode.none),))

    def give_all_up(self, group: ShareGroup, asker: Asker[DeleteStates | ErrorCode]) -> GroupOutcome | None:
        """Begin to delete all states of a group; None if it has none. The answer is what to ask.

        What an earlier try left is deleted again: whoever deletes state that is gone is told that all is well.
        """
        states = group.state_partitions
        topics = joined(states.initialized, states.initializing)
        for topic_id, name in states.deleting.items():
            if (topic := self._table.image.topic_by_id(topic_id)) is not None:
                topics = joined(topics, {topic_id: NamedPartitions(name, _all_partitions(topic))})
        if not topics:
            return None
        names = {topic_id: found.name for topic_id, found in topics.items()}
        reply = DeleteStates(group.group_id, {topic_id: found.partitions for topic_id, found in topics.items()})
        changes = (states.give_all_up(names).record(group.group_id),)
        return Outcome(changes=changes, replies=((asker, reply),))


def _all_partitions(topic: TopicImage) -> frozenset[int]:
    return frozenset(range(len(topic.partitions)))
