"""Consumer groups over the wire: who is a member, who reads what, and the offsets that groups have committed.

Not through librdkafka, because it lacks half of this: it cannot delete committed offsets, shows no epochs, takes the
states Assigning and Reconciling for unknown, and gives up on a coordinator that is still loading. Group ids are asked
for together where the protocol allows it, so a look at a thousand groups is a handful of requests.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from barnabas.clients.admin.log_offsets import LogOffsets, by_topic
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import ANOTHER_COORDINATOR, RETRY_SECONDS
from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.model.ids import TopicPartition
from barnabas.model.permissions import Action, describe_group, on_group, on_topic
from barnabas.protocol.wire import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kio.schema.consumer_group_describe.v1.response import DescribedGroup as DescribedConsumerGroup
    from kio.schema.describe_groups.v6.response import DescribedGroup as DescribedClassicGroup

    from barnabas.clients.admin.log_offsets import VisibleOffsets
    from barnabas.clients.wire.connection import Node, WireClient

CONSUMER_PROTOCOLS: Final = ("consumer", "")
"""Protocol types of consumers: those that share partitions, and those that only commit offsets."""

MEANINGS: Final = {
    ErrorCode.group_id_not_found: "there is no such group",
    ErrorCode.non_empty_group: "the group has active members",
    ErrorCode.unknown_member_id: "the group has active members",
    ErrorCode.rebalance_in_progress: "the group has active members",
    ErrorCode.group_subscribed_to_topic: "an active member of the group is subscribed to the topic",
    ErrorCode.unknown_topic_or_partition: "there is no such partition",
    ErrorCode.invalid_group_id: "the group id is not valid",
}
"""What error codes mean here, for the APIs that send no message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as a list has it; `state` and `type` as Kafka writes them, "" where a broker is too old to tell."""

    group_id: str
    state: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group. What only the new protocol has is None for members of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    upgraded: bool | None = None
    """Whether it speaks the new protocol; members of the classic one may be in such a group while it changes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group as its coordinator describes it; epochs are None for classic groups."""

    group_id: str
    type: str
    state: str
    assignor: str
    coordinator: Node
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset: the next record to read, and the leader epoch of the last one that was read, if known."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
    """What the consumer wrote beside it."""


class Groups:
    """The groups of a cluster. Use it as a context manager, which closes the connection to the cluster."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._wire.__exit__(*exc_info)

    def listing(
        self,
        states: Collection[str] = (),
        types: Collection[str] = (),
        protocols: Collection[str] = CONSUMER_PROTOCOLS,
        at: Node | None = None,
    ) -> list[GroupListing]:
        """Groups of consumers, or of other `protocols`, by id; of these states and types if any are given.

        All groups, or those that one broker coordinates.
        """
        from kio.schema.list_groups.v5.request import ListGroupsRequest

        request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
        at_least = 5 if types else 4 if states else 0
        deadline = self._wire.deadline()
        found = []
        for node in self._wire.nodes() if at is None else [at]:
            while (answer := self._wire.ask(request, at=node, at_least=at_least)).error_code in ANOTHER_COORDINATOR:
                if deadline.passed:
                    break
                time.sleep(RETRY_SECONDS)
            refuse(answer.error_code)
            found += [group for group in answer.groups if group.protocol_type in protocols]
        return sorted(
            (GroupListing(group_id=one.group_id, state=one.group_state, type=one.group_type) for one in found),
            key=lambda listing: listing.group_id,
        )

    def describe(self, group_ids: Iterable[str]) -> dict[str, GroupInfo | RequestRefused]:
        """The named groups, in their order; where the coordinator has none to describe, what it said."""
        from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
        from kio.schema.describe_groups.v6.request import DescribeGroupsRequest

        wanted = list(dict.fromkeys(group_ids))
        found: dict[str, GroupInfo | RequestRefused] = {}
        try:
            answers = self._wire.ask_coordinators(
                wanted,
                lambda ids: ConsumerGroupDescribeRequest(
                    group_ids=as_group_ids(ids), include_authorized_operations=False
                ),
                lambda response: ((group.group_id, group.error_code, group) for group in response.groups),
                action=describe_group,
            )
        except RequestRefused as error:
            if error.code != ErrorCode.unsupported_version:
                raise
            answers = {}
        for group_id, (node, code, group) in answers.items():
            if code not in (ErrorCode.group_id_not_found, ErrorCode.unsupported_version):
                found[group_id] = described_group(code, group, node, _consumer_group)
        classic = self._wire.ask_coordinators(
            [group_id for group_id in wanted if group_id not in found],
            lambda ids: DescribeGroupsRequest(groups=as_group_ids(ids), include_authorized_operations=False),
            lambda response: ((group.group_id, group.error_code, group) for group in response.groups),
            action=describe_group,
        )
        for group_id, (node, code, group) in classic.items():
            found[group_id] = described_group(code, group, node, _classic_group)
        return {group_id: found[group_id] for group_id in wanted}

    def committed(self, group_ids: Iterable[str]) -> dict[str, dict[TopicPartition, Committed]]:
        """What each group has committed; nothing for a group that does not exist."""
        from kio.schema.offset_fetch.v9.request import OffsetFetchRequest, OffsetFetchRequestGroup

        answers = self._wire.ask_coordinators(
            group_ids,
            lambda ids: OffsetFetchRequest(
                groups=tuple(OffsetFetchRequestGroup(group_id=GroupId(group_id), topics=None) for group_id in ids)
            ),
            lambda response: ((group.group_id, group.error_code, group) for group in response.groups),
            at_least=8,
            action=see_offsets,
        )
        return {group_id: _committed(code, group) for group_id, (_, code, group) in answers.items()}

    def settled(self, group_ids: Iterable[str], partition: TopicPartition) -> dict[str, Committed]:
        """What each group has committed for one partition, without those that have nothing there.

        Where a transaction is about to change it, its end is waited for.
        """
        from kio.schema.offset_fetch.v9.request import (
            OffsetFetchRequest,
            OffsetFetchRequestGroup,
            OffsetFetchRequestTopics,
        )

        # The partition is named: of all that a group has, a first offset in an open transaction would be left out.
        topic = OffsetFetchRequestTopics(name=TopicName(partition.topic), partition_indexes=(i32(partition.partition),))
        answers = self._wire.ask_coordinators(
            group_ids,
            lambda ids: OffsetFetchRequest(
                groups=tuple(OffsetFetchRequestGroup(group_id=GroupId(each), topics=(topic,)) for each in ids),
                require_stable=True,
            ),
            lambda response: ((group.group_id, _first_error(group), group) for group in response.groups),
            at_least=8,
            retried=frozenset({ErrorCode.unstable_offset_commit}),
            action=see_offsets,
        )
        found = {group_id: _committed(code, group) for group_id, (_, code, group) in answers.items()}
        return {group_id: offsets[partition] for group_id, offsets in found.items() if partition in offsets}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members, which need not exist before; raises RequestRefused."""
        from kio.schema.offset_commit.v9.request import (
            OffsetCommitRequest,
            OffsetCommitRequestPartition,
            OffsetCommitRequestTopic,
        )

        if not offsets:
            return
        request = OffsetCommitRequest(
            group_id=GroupId(group_id),
            member_id="",
            topics=tuple(
                OffsetCommitRequestTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=i32(partition),
                            committed_offset=i64(offsets[TopicPartition(topic, partition)]),
                            committed_metadata="",
                        )
                        for partition in partitions
                    ),
                )
                for topic, partitions in by_topic(offsets).items()
            ),
        )

        def action(topic: str | None = None) -> Action:
            return on_group("commit offsets of", "Read", group_id, topic)

        for partition, code in self._ask_about_partitions(group_id, request, action()).items():
            refuse(code, f"group {group_id}, partition {partition}", action=action(partition.topic))

    def delete(self, group_ids: Iterable[str]) -> dict[str, RequestRefused | None]:
        """Delete groups and what they committed; says of each why not, or None."""
        from kio.schema.delete_groups.v2.request import DeleteGroupsRequest

        answers = self._wire.ask_coordinators(
            group_ids,
            lambda ids: DeleteGroupsRequest(groups_names=as_group_ids(ids)),
            lambda response: ((result.group_id, result.error_code, None) for result in response.results),
            action=_deletion_of,
        )
        return {group_id: refusal_of(code, action=_deletion_of(group_id)) for group_id, (_, code, _) in answers.items()}

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, RequestRefused | None]:
        """Delete what a group committed for these partitions; says of each why not, or None.

        Raises RequestRefused when the coordinator refuses the whole.
        """
        from kio.schema.offset_delete.v0.request import (
            OffsetDeleteRequest,
            OffsetDeleteRequestPartition,
            OffsetDeleteRequestTopic,
        )

        request = OffsetDeleteRequest(
            group_id=GroupId(group_id),
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=TopicName(topic),
                    partitions=tuple(OffsetDeleteRequestPartition(partition_index=i32(number)) for number in numbers),
                )
                for topic, numbers in by_topic(partitions).items()
            ),
        )
        codes = self._ask_about_partitions(group_id, request, delete_offsets(group_id))
        return {
            partition: refusal_of(code, action=delete_offsets(group_id, partition.topic))
            for partition, code in codes.items()
        }

    def leaders(self, topics: Iterable[str]) -> dict[TopicPartition, Node | None]:
        """Who leads each partition of the named topics (see `LogOffsets`)."""
        return LogOffsets(self._wire).leaders(topics)

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Offsets by time, or at LATEST or EARLIEST (see `LogOffsets`)."""
        return LogOffsets(self._wire).at(partitions, timestamp)

    def visible_offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> VisibleOffsets:
        """The same for those of the partitions whose topics may be seen."""
        return LogOffsets(self._wire).visible(partitions, timestamp)

    def _ask_about_partitions(self, group_id: str, request: Any, action: Action) -> dict[TopicPartition, ErrorCode]:
        """What the coordinator of one group says of each partition; an error of the whole is raised."""

        def parts(response: Any) -> Iterable[tuple[str, ErrorCode, Any]]:
            codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
            whole = getattr(response, "error_code", ErrorCode.none)
            moved = next((code for code in codes if code in ANOTHER_COORDINATOR), whole)
            yield group_id, moved, response

        answers = self._wire.ask_coordinators([group_id], lambda _: request, parts, action=lambda _: action)
        _, code, response = answers[group_id]
        refuse(code, f"group {group_id}", action=action)
        return {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }


def as_group_ids(group_ids: Iterable[str]) -> tuple[GroupId, ...]:
    """Ids as requests have them."""
    return tuple(map(GroupId, group_ids))


def see_offsets(group_id: str) -> Action:
    """What it takes to ask for the offsets of a group."""
    return on_group("see the offsets of", "Describe", group_id)


def delete_offsets(group_id: str, topic: str | None = None) -> Action:
    """What it takes to delete offsets of a group, of a topic if it is known of which."""
    return on_group("delete offsets of", "Delete", group_id, topic)


def _deletion_of(group_id: str) -> Action:
    return on_group("delete", "Delete", group_id)


def refusal_of(
    code: ErrorCode, what: str = "", message: str | None = None, action: Action | None = None
) -> RequestRefused | None:
    """What an error code says, in words; None if it is none."""
    if code == ErrorCode.none:
        return None
    reason = MEANINGS.get(code) or message or f"the broker answered {code.name.upper()}"
    return RequestRefused(code, f"{what}: {reason}" if what else reason, action)


def refuse(code: ErrorCode, what: str = "", message: str | None = None, action: Action | None = None) -> None:
    """Raise what an error code says."""
    if (refusal := refusal_of(code, what, message, action)) is not None:
        raise refusal


def described_group(
    code: ErrorCode, group: Any, node: Node, read: Callable[[Any, Node], GroupInfo]
) -> GroupInfo | RequestRefused:
    """A group, or why it is not described. Brokers before Kafka 4.0 describe groups that do not exist as dead ones."""
    if code == ErrorCode.none and group.group_state == "Dead":
        code = ErrorCode.group_id_not_found
    try:
        refusal = refusal_of(code, message=group.error_message, action=describe_group(group.group_id))
        return refusal or read(group, node)
    except RequestRefused as refusal:
        return refusal


def assigned_partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment that the broker made, in order."""
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def _consumer_group(group: DescribedConsumerGroup, node: Node) -> GroupInfo:
    return GroupInfo(
        group_id=group.group_id,
        type="Consumer",
        state=group.group_state,
        assignor=group.assignor_name,
        coordinator=node,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=assigned_partitions(member.assignment),
                target_assignment=assigned_partitions(member.target_assignment),
                epoch=member.member_epoch,
                upgraded=None if member.member_type == -1 else member.member_type == 1,
            )
            for member in group.members
        ),
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def _classic_group(group: DescribedClassicGroup, node: Node) -> GroupInfo:
    if group.protocol_type not in CONSUMER_PROTOCOLS:
        raise RequestRefused(
            ErrorCode.inconsistent_group_protocol,
            f"it is not a group of consumers, but of type {group.protocol_type}",
        )
    return GroupInfo(
        group_id=group.group_id,
        type="Classic",
        state=group.group_state,
        assignor=group.protocol_data,
        coordinator=node,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_classic_assignment(member.member_assignment),
            )
            for member in group.members
        ),
    )


def _classic_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """What a leader gave to a member; all versions begin alike, and members without an assignment have no bytes."""
    from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment

    if not data:
        return ()
    try:
        assignment = bounds.read(ConsumerProtocolAssignment, data, bounds.VERSION_BYTES, bounds.MAX_ELEMENTS)
    except InvalidFrame as error:
        raise RequestRefused(
            ErrorCode.inconsistent_group_protocol, f"a member's assignment is not one of a consumer: {error}"
        ) from error
    return tuple(
        sorted(
            TopicPartition(topic.topic, number)
            for topic in assignment.assigned_partitions
            for number in topic.partitions
        )
    )


def _first_error(group: Any) -> ErrorCode:
    """What a coordinator says of a group, or else of a partition."""
    codes = [group.error_code, *(each.error_code for topic in group.topics for each in topic.partitions)]
    return next((code for code in codes if code != ErrorCode.none), ErrorCode.none)


def _committed(code: ErrorCode, group: Any) -> dict[TopicPartition, Committed]:
    refuse(code, f"group {group.group_id}", action=see_offsets(group.group_id))
    offsets = {}
    for topic in group.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            action = on_topic("see the offsets of", "Describe", partition.topic)
            refuse(answer.error_code, f"group {group.group_id}, partition {partition}", action=action)
            if answer.committed_offset >= 0:
                epoch = answer.committed_leader_epoch
                offsets[partition] = Committed(
                    answer.committed_offset, None if epoch < 0 else epoch, answer.metadata or ""
                )
    return offsets
