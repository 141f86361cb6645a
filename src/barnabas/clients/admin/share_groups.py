"""Share groups over the wire: who is a member, and from where on messages of a partition are not yet done.

A share group commits no offsets. For each partition its state has a start offset: everything before it is acknowledged
or given up. What is in flight lies behind it, and the lag that the coordinator tells counts what is left to do. The
share coordinator tells what is stored of messages in flight; which of them a member holds is known to the leader only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from barnabas.clients.admin.groups import (
    GroupInfo,
    GroupMember,
    Groups,
    as_group_ids,
    assigned_partitions,
    delete_offsets,
    described_group,
    refusal_of,
    refuse,
    see_offsets,
)
from barnabas.clients.admin.log_offsets import by_topic
from barnabas.model.ids import TopicPartition, uuid_to_text
from barnabas.model.permissions import describe_group, on_cluster, on_group, on_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from kio.schema.read_share_group_state.v0.request import ReadShareGroupStateRequest
    from kio.schema.share_group_describe.v1.response import DescribedGroup

    from barnabas.clients.admin.groups import GroupListing
    from barnabas.clients.errors import RequestRefused
    from barnabas.clients.wire.connection import Node, WireClient
    from barnabas.model.permissions import Action

SHARE: Final = "share"
SHARE_COORDINATORS: Final = 2
"""In FindCoordinator: those of share partitions."""
STATES: Final = {0: "Available", 2: "Acknowledged", 3: "Archiving", 4: "Archived"}
"""What may be stored of a message."""
TRIES: Final = 5
"""How often the state of a partition is asked for whose leader changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionOffsets:
    """How far a share group is with a partition."""

    start: int
    """The first offset that is not done; what is behind it may be done, too."""
    lag: int | None
    """How many messages are not done; None if the coordinator does not tell."""
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """Messages of a partition that follow each other, behind the start offset, and are in the same state."""

    first: int
    last: int
    state: str
    deliveries: int
    """How often they were delivered, as far as that is stored."""


class ShareGroups:
    """The share groups of a cluster."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire
        self._groups = Groups(wire)

    def listing(self, states: Collection[str] = ()) -> list[GroupListing]:
        """Share groups by id, of these states if any are given."""
        return self._groups.listing(states, (SHARE,), (SHARE,))

    def describe(self, group_ids: Iterable[str]) -> dict[str, GroupInfo | RequestRefused]:
        """The named groups, in their order; where the coordinator has none to describe, what it said."""
        from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

        wanted = list(dict.fromkeys(group_ids))
        answers = self._wire.ask_coordinators(
            wanted,
            lambda ids: ShareGroupDescribeRequest(group_ids=as_group_ids(ids), include_authorized_operations=False),
            lambda response: ((group.group_id, group.error_code, group) for group in response.groups),
            at_least=1,
            action=describe_group,
        )
        return {group_id: self._described(*answers[group_id]) for group_id in wanted}

    @staticmethod
    def _described(node: Node, code: Any, group: Any) -> GroupInfo | RequestRefused:
        return described_group(code, group, node, _share_group)

    def offsets(self, group_ids: Iterable[str]) -> dict[str, dict[TopicPartition, SharePartitionOffsets | None]]:
        """How far each group is with each partition that it has a state of; None where it has not begun.

        Raises RequestRefused.
        """
        return {group_id: _offsets(group) for group_id, group in self._with_offsets(group_ids).items()}

    def in_flight(self, group_id: str) -> dict[TopicPartition, list[InFlight]]:
        """What is stored of the messages behind the start offsets of a group, by partition. Raises RequestRefused."""
        for tries in reversed(range(TRIES)):
            group = self._with_offsets([group_id])[group_id]
            parts = {
                f"{group_id}:{uuid_to_text(topic.topic_id)}:{part.partition_index}": (topic, part)
                for topic in group.topics
                for part in topic.partitions
                if part.start_offset >= 0
            }
            answers = self._read_states(group_id, parts)
            if tries and any(code is ErrorCode.fenced_leader_epoch for _, code, _ in answers.values()):
                continue  # another broker leads since the offsets were asked for
            break
        found = {}
        for key, (_, code, result) in answers.items():
            topic, part = parts[key]
            place = TopicPartition(topic.topic_name, part.partition_index)
            refuse(code, f"group {group_id}, partition {place}", result.error_message, _see_in_flight(group_id))
            found[place] = [
                _in_flight(batch) for batch in result.state_batches if batch.last_offset >= part.start_offset
            ]
        return found

    def _read_states(
        self, group_id: str, parts: Mapping[str, tuple[Any, Any]]
    ) -> dict[str, tuple[Node, ErrorCode, Any]]:
        return self._wire.ask_coordinators(
            parts,
            lambda keys: _read_request(group_id, [parts[key] for key in keys]),
            lambda response: _read_results(group_id, response),
            of=SHARE_COORDINATORS,
            action=lambda _: _see_in_flight(group_id),
        )

    def _with_offsets(self, group_ids: Iterable[str]) -> dict[str, Any]:
        """The answers about the offsets of groups, by group. Raises RequestRefused."""
        from kio.schema.describe_share_group_offsets.v1.request import (
            DescribeShareGroupOffsetsRequest,
            DescribeShareGroupOffsetsRequestGroup,
        )

        answers = self._wire.ask_coordinators(
            group_ids,
            lambda ids: DescribeShareGroupOffsetsRequest(
                groups=tuple(
                    DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
                    for group_id in as_group_ids(ids)
                )
            ),
            lambda response: ((group.group_id, group.error_code, group) for group in response.groups),
            action=see_offsets,
        )
        found = {}
        for group_id, (_, code, group) in answers.items():
            refuse(code, f"group {group_id}", group.error_message, see_offsets(group_id))
            found[group_id] = group
        return found

    def alter(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a group without members go on at these offsets; it need not exist before. Raises RequestRefused."""
        from kio.schema.alter_share_group_offsets.v0.request import (
            AlterShareGroupOffsetsRequest,
            AlterShareGroupOffsetsRequestPartition,
            AlterShareGroupOffsetsRequestTopic,
        )

        if not offsets:
            return
        request = AlterShareGroupOffsetsRequest(
            group_id=GroupId(group_id),
            topics=tuple(
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=TopicName(topic),
                    partitions=tuple(
                        AlterShareGroupOffsetsRequestPartition(
                            partition_index=i32(number), start_offset=i64(offsets[TopicPartition(topic, number)])
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(offsets).items()
            ),
        )
        for topic in self._ask(group_id, request, _change_offsets(group_id)).responses:
            action = _change_offsets(group_id, topic.topic_name)
            for part in topic.partitions:
                place = TopicPartition(topic.topic_name, part.partition_index)
                refuse(part.error_code, f"group {group_id}, partition {place}", part.error_message, action)

    def delete_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, RequestRefused | None]:
        """Forget how far a group without members is with topics; says of each why not, or None.

        Raises RequestRefused when the coordinator refuses the whole.
        """
        from kio.schema.delete_share_group_offsets.v0.request import (
            DeleteShareGroupOffsetsRequest,
            DeleteShareGroupOffsetsRequestTopic,
        )

        request = DeleteShareGroupOffsetsRequest(
            group_id=GroupId(group_id),
            topics=tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=TopicName(topic)) for topic in topics),
        )
        return {
            topic.topic_name: refusal_of(
                topic.error_code, "", topic.error_message, delete_offsets(group_id, topic.topic_name)
            )
            for topic in self._ask(group_id, request, delete_offsets(group_id)).responses
        }

    def delete(self, group_ids: Iterable[str]) -> dict[str, RequestRefused | None]:
        """Delete groups and their state; says of each why not, or None."""
        return self._groups.delete(group_ids)

    def _ask(self, group_id: str, request: Any, action: Action) -> Any:
        """The answer of one group's coordinator; an error of the whole is raised."""
        answers = self._wire.ask_coordinators(
            [group_id],
            lambda _: request,
            lambda response: [(group_id, response.error_code, response)],
            action=lambda _: action,
        )
        _, code, response = answers[group_id]
        refuse(code, f"group {group_id}", response.error_message, action)
        return response


def _offsets(group: Any) -> dict[TopicPartition, SharePartitionOffsets | None]:
    found: dict[TopicPartition, SharePartitionOffsets | None] = {}
    for topic in group.topics:
        for part in topic.partitions:
            place = TopicPartition(topic.topic_name, part.partition_index)
            action = on_topic("see the offsets of", "Describe", place.topic)
            refuse(part.error_code, f"group {group.group_id}, partition {place}", part.error_message, action)
            begun = part.start_offset >= 0
            found[place] = _partition_offsets(part) if begun else None
    return found


def _change_offsets(group_id: str, topic: str | None = None) -> Action:
    return on_group("change offsets of", "Read", group_id, topic)


def _see_in_flight(group_id: str) -> Action:
    return on_cluster(f"see what is in flight of group {group_id}", "ClusterAction")


def _read_request(group_id: str, parts: Iterable[tuple[Any, Any]]) -> ReadShareGroupStateRequest:
    """Ask as the leader does that the state knows, which changes nothing."""
    from kio.schema.read_share_group_state.v0.request import PartitionData, ReadShareGroupStateRequest, ReadStateData

    by_id: dict[Any, list[PartitionData]] = {}
    for topic, part in parts:
        asked = PartitionData(partition=part.partition_index, leader_epoch=part.leader_epoch)
        by_id.setdefault(topic.topic_id, []).append(asked)
    topics = (ReadStateData(topic_id=topic_id, partitions=tuple(asked)) for topic_id, asked in by_id.items())
    return ReadShareGroupStateRequest(group_id=group_id, topics=tuple(topics))


def _read_results(group_id: str, response: Any) -> Iterator[tuple[str, ErrorCode, Any]]:
    for topic in response.results:
        for part in topic.partitions:
            yield f"{group_id}:{uuid_to_text(topic.topic_id)}:{part.partition}", part.error_code, part


def _in_flight(batch: Any) -> InFlight:
    return InFlight(
        first=batch.first_offset,
        last=batch.last_offset,
        state=STATES.get(batch.delivery_state, str(batch.delivery_state)),
        deliveries=batch.delivery_count,
    )


def _partition_offsets(part: Any) -> SharePartitionOffsets:
    return SharePartitionOffsets(
        start=part.start_offset,
        lag=None if part.lag < 0 else part.lag,
        leader_epoch=None if part.leader_epoch < 0 else part.leader_epoch,
    )


def _share_group(group: DescribedGroup, node: Node) -> GroupInfo:
    return GroupInfo(
        group_id=group.group_id,
        type="Share",
        state=group.group_state,
        assignor=group.assignor_name,
        coordinator=node,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=None,
                client_id=member.client_id,
                host=member.client_host,
                assignment=assigned_partitions(member.assignment),
                epoch=member.member_epoch,
            )
            for member in sorted(group.members, key=lambda member: member.member_id)
        ),
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )
