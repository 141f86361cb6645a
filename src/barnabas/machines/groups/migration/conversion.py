"""A group changes its protocol while it works: from classic to consumer when a member of the new protocol joins, and
back when the last of them leaves.

Upgrade: every classic member becomes a member that uses the classic protocol inside the consumer group, with the
partitions that its leader assigned to it last; the group's epoch goes on from its generation. Downgrade: every member
that is left becomes a member of a classic group, assigned what it has or has not revoked yet, and the group's
generation goes on from its epoch. A rebalance follows, unless all members have their target assignment. The records
remove the group of the one kind and write that of the other, in one batch, so the log never holds both or none.

Apache Kafka assigns what members were to have. Should the group be upgraded again before they joined, partitions that
one of them still reads would be assigned to another member.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from barnabas.machines.groups.classic.consumer_protocol import (
    by_id,
    read_assignment,
    read_subscription,
    write_assignment,
)
from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.members import ClassicMember
from barnabas.machines.groups.classic.rules import ClassicRules
from barnabas.machines.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from barnabas.machines.groups.consumer.group import ConsumerGroup
from barnabas.machines.groups.consumer.member import (
    Member,
    current_record,
    held_by,
    member_record,
    target_record,
    with_epoch,
)
from barnabas.machines.groups.consumer.rebalance import SESSION, cancel_timers, compare_again, epoch_record
from barnabas.machines.groups.consumer.target import target_epoch_record
from barnabas.machines.groups.table import TimerKey
from barnabas.machines.outcome import Draft, as_before
from barnabas.model.errors import ErrorCode, GroupIdNotFound, InvalidRecord
from barnabas.protocol.coordinator_records import ClassicMemberMetadata, GroupMetadataValue

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.machines.groups.consumer.rebalance import ConsumerRebalance
    from barnabas.machines.groups.table import GroupDraft, GroupOutcome, GroupTable
    from barnabas.protocol.coordinator_records import CoordinatorRecord

logger = logging.getLogger(__name__)


class Conversion:
    """Changes the protocol of the groups of one coordinator."""

    def __init__(self, table: GroupTable, rebalance: ConsumerRebalance) -> None:
        self._table = table
        self._rebalance = rebalance
        self._classic = ClassicRules(table)

    def upgraded(self, classic: ClassicGroup, draft: GroupDraft, now_ms: int) -> ConsumerGroup:
        """Write the consumer group that a classic one becomes, and read it back. Raises GroupIdNotFound if it may not.

        The classic group is left as it is until `dissolve`, since the request may be refused yet.
        """
        group = ConsumerGroup(classic.group_id)
        draft.changes.extend(classic.tombstones())
        if classic.is_empty:
            return group
        self._check_upgrade(classic)
        try:
            members = [self._consumer_member(classic, member) for member in classic.members.values()]
        except InvalidRecord as error:
            raise GroupIdNotFound(f"Classic group {classic.group_id} cannot be upgraded: {error}") from None
        group_id, epoch = classic.group_id, classic.generation
        topics = frozenset[str]().union(*(member.topics for member in members))
        records = [member_record(group_id, member) for member in members]
        records.append(epoch_record(group_id, epoch, self._rebalance.hash_of(topics)))
        for member in members:
            target = {topic: frozenset(partitions) for topic, partitions in member.assigned.items()}
            records.append(target_record(group_id, member.member_id, target))
        records.append(target_epoch_record(group_id, epoch, 0))
        records.extend(current_record(group_id, member) for member in members)
        draft.changes.extend(records)
        for record in records:
            group.apply(record)
        for member in members:
            assert member.classic is not None
            key = TimerKey(SESSION, group_id, member.member_id)
            draft.set_timer(key, now_ms + member.classic.session_timeout_ms)
        return group

    def dissolve(self, classic: ClassicGroup, draft: GroupDraft) -> None:
        """End the classic group: members that wait in it have to join again, now that it is a consumer group."""
        self._classic.dissolve(draft, classic, ErrorCode.rebalance_in_progress)
        draft.otherwise = as_before
        if classic.members:
            logger.info("Group %s is a consumer group now.", classic.group_id)

    def may_downgrade(self, group: ConsumerGroup, leaving: Collection[Member], joining: Member | None = None) -> bool:
        """Whether only classic members are left without these, and the group may become theirs."""
        left = len(group.members) - len(leaving)
        classic_left = group.classic_members - sum(member.classic is not None for member in leaving)
        size = left + (joining is not None)
        if left != classic_left or not size:
            return False
        settings = self._table.settings_of(group.group_id)
        if settings.consumer_migration_policy.allows_downgrade and size <= settings.max_size:
            return True
        logger.info(
            "Group %s has only classic members, but group.consumer.migration.policy does not allow a downgrade.",
            group.group_id,
        )
        return False

    def remove(self, group: ConsumerGroup, members: Collection[Member], draft: GroupDraft, now_ms: int) -> None:
        """Remove members; if only classic ones are left, the group becomes a classic one, unless that is too large."""
        if not members:
            return
        if self.may_downgrade(group, members):
            self.downgrade(group, members, None, draft, now_ms, "the last member of the consumer protocol left")
            draft.otherwise = partial(self._only_remove, group, members)
        else:
            self._rebalance.remove(group, members, draft)

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Collection[Member],
        joining: Member | None,
        draft: GroupDraft,
        now_ms: int,
        rebalance_reason: str | None,
    ) -> None:
        """Make it a classic group of all members but those that leave, and of who joins in the place of one."""
        gone = {member.member_id for member in leaving}
        members = [member for member_id, member in group.members.items() if member_id not in gone]
        if joining is not None:
            members.append(joining)
        if rebalance_reason is None and not all(member.is_reconciled_to(group.epoch) for member in members):
            rebalance_reason = "not all members have their target assignment"
        classic = ClassicGroup.of_members(
            group.group_id, group.epoch, CONSUMER_PROTOCOL_TYPE, [_classic_member(member) for member in members], now_ms
        )
        for member in members:
            classic_member = classic.members[member.member_id]
            subscription = classic_member.metadata(classic.protocol or "")
            classic_member.assignment = write_assignment(held_by(member), self._table.image, subscription)
        draft.changes.extend(group.tombstones())
        draft.changes.append(_record(classic, now_ms, rebalances=rebalance_reason is not None))
        for member_id in group.members:
            cancel_timers(group.group_id, member_id, draft)
        self._classic.adopt(draft, classic, now_ms, rebalance_reason)
        draft.otherwise = partial(self._stay, group)
        logger.info("Group %s is a classic group now.", group.group_id)

    def _stay(self, group: ConsumerGroup) -> GroupOutcome:
        """The classic group is more than can be stored at once: the consumer group goes on."""
        self._table.groups[group.group_id] = group
        return compare_again(group)

    def _only_remove(self, group: ConsumerGroup, members: Collection[Member]) -> GroupOutcome:
        self._stay(group)
        draft: GroupDraft = Draft()
        self._rebalance.remove(group, members, draft)
        return draft.outcome()

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        settings = self._table.settings_of(classic.group_id)
        if not settings.consumer_migration_policy.allows_upgrade:
            reason = "group.consumer.migration.policy does not allow it"
        elif not classic.uses_consumer_protocol:
            reason = "its members are not consumers"
        elif len(classic.members) > settings.consumer_max_size:
            reason = f"it has more than {settings.consumer_max_size} members"
        else:
            return
        raise GroupIdNotFound(f"Classic group {classic.group_id} cannot be upgraded to a consumer group: {reason}")

    def _consumer_member(self, classic: ClassicGroup, member: ClassicMember) -> Member:
        assignment = read_assignment(member.assignment)
        if assignment.has_user_data:
            raise GroupIdNotFound(
                f"Classic group {classic.group_id} cannot be upgraded to a consumer group: "
                "its assignor adds user data to assignments. Change to an assignor of Kafka first."
            )
        metadata = {protocol.name: protocol.metadata for protocol in member.protocols}
        subscription = read_subscription(metadata.get(classic.protocol or "", member.protocols[0].metadata))
        epoch = classic.generation
        return Member(
            member_id=member.member_id,
            epoch=epoch,
            previous_epoch=epoch,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topics=subscription.topics,
            assigned=with_epoch(by_id(assignment.partitions, self._table.image), epoch),
            classic=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
        )


def _record(classic: ClassicGroup, now_ms: int, *, rebalances: bool) -> CoordinatorRecord:
    """The group for the log.

    One that is to rebalance is written with a generation that no member ever gets: should the broker die before the
    rebalance is done, all of them find that they are not in it and join, and what the last member left does not stay
    unread.
    """
    record = classic.record(now_ms)
    if not rebalances:
        return record
    assert isinstance(record.value, GroupMetadataValue)
    return record._replace(value=replace(record.value, generation=classic.generation + 1))


def _classic_member(member: Member) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.supported_protocols,
    )
