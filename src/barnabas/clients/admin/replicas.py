"""Where replicas are and who leads: asked for, moved to other brokers and directories, and elected."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32

from barnabas.clients.admin.log_offsets import by_topic
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import RETRY_SECONDS, Node, meaning
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.permissions import on_cluster, on_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kio.static.protocol import RequestPayload

    from barnabas.clients.wire.connection import WireClient
    from barnabas.model.permissions import Action

_REASONS: Final = {
    ErrorCode.log_dir_not_found: "the broker has no such directory in log.dirs (LOG_DIR_NOT_FOUND)",
    ErrorCode.invalid_request: (
        "it is in another directory of its broker already, and these brokers do not move replicas between directories "
        "(INVALID_REQUEST). Move it to another broker, and then back with this directory"
    ),
}
"""Why a replica does not go to a directory, where the bare code would leave one guessing."""


_REASSIGN: Final = on_cluster("reassign partitions", "Alter")
_ELECT: Final = on_cluster("elect leaders", "Alter")
_MOVE: Final = on_cluster("move replicas between log directories", "Alter")


class Replica(NamedTuple):
    """A partition on one broker; its text is Kafka's."""

    broker: int
    partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move that is under way: all replicas for now, of which some come and some go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Election(IntEnum):
    """Who may be elected: the first replica if it is in sync, or whoever lives."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The brokers that are up, by id with their racks, and the replicas of partitions."""

    racks: dict[int, str | None]
    replicas: dict[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads a partition (None: nobody), since which epoch, and who could: all replicas, and those in sync."""

    leader: int | None
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Replicas:
    """The replicas of a cluster: where they are, who leads, and how both change."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def leaderships(self, topic: str) -> dict[int, Leadership]:
        """The partitions of a topic by number, as the broker knows them that is asked. Raises RequestRefused."""
        (found,) = self._metadata([topic]).topics
        if found.error_code != ErrorCode.none:
            action = on_topic("describe", "Describe", topic)
            raise RequestRefused(found.error_code, f"topic {topic}: {meaning(found)}", action)
        return {
            one.partition_index: Leadership(
                None if one.leader_id < 0 else one.leader_id,
                one.leader_epoch,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
            )
            for one in found.partitions
        }

    def controller_id(self) -> int | None:
        """Who is the controller, as the broker knows that is asked."""
        found: int = self._metadata(()).controller_id
        return None if found < 0 else found

    def layout(self, topics: Collection[str] | None) -> Layout:
        """Brokers, and the replicas of some topics or of all; topics that are not there are left out."""
        metadata = self._metadata(topics)
        return Layout(
            {broker.node_id: broker.rack for broker in sorted(metadata.brokers, key=lambda broker: broker.node_id)},
            {
                TopicPartition(topic.name, partition.partition_index): tuple(partition.replica_nodes)
                for topic in metadata.topics
                for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
                if topic.error_code == ErrorCode.none
            },
        )

    def reassignments(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Reassignment]:
        """Moves that are under way, of some partitions or of all."""
        from kio.schema.list_partition_reassignments.v0.request import (
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsTopics,
        )

        wanted = None
        if partitions is not None:
            wanted = tuple(
                ListPartitionReassignmentsTopics(name=TopicName(topic), partition_indexes=tuple(map(i32, numbers)))
                for topic, numbers in by_topic(partitions).items()
            )
        answer = self._ask_controller(
            ListPartitionReassignmentsRequest(topics=wanted), on_cluster("list reassignments", "Describe")
        )
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    def reassign(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, RequestRefused]:
        """Move partitions to these replicas, or with None give up a move; what was refused, and why."""
        from kio.schema.alter_partition_reassignments.v1.request import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        def replicas(target: Sequence[int] | None) -> tuple[BrokerId, ...] | None:
            return None if target is None else tuple(map(BrokerId, target))

        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=allow_replication_factor_change,
            topics=tuple(
                ReassignableTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        ReassignablePartition(
                            partition_index=i32(number), replicas=replicas(targets[TopicPartition(topic, number)])
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(targets).items()
            ),
        )
        answer = self._ask_controller(request, _REASSIGN, at_least=0 if allow_replication_factor_change else 1)
        return {
            TopicPartition(topic.name, one.partition_index): _refused(one, _REASSIGN)
            for topic in answer.responses
            for one in topic.partitions
            if one.error_code != ErrorCode.none
        }

    def elect_leaders(
        self, kind: Election, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, RequestRefused | None]:
        """Elect leaders of some partitions or of all that need it; None for each that got one, else why it did not."""
        from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions

        wanted = None
        if partitions is not None:
            wanted = tuple(
                TopicPartitions(topic=TopicName(topic), partitions=tuple(map(i32, numbers)))
                for topic, numbers in by_topic(partitions).items()
            )
        request = ElectLeadersRequest(election_type=i8(kind), topic_partitions=wanted)
        answer = self._ask_controller(request, _ELECT, at_least=0 if kind is Election.PREFERRED else 1)
        return {
            TopicPartition(topic.topic, one.partition_id): (
                None if one.error_code == ErrorCode.none else _refused(one, _ELECT)
            )
            for topic in answer.replica_election_results
            for one in topic.partition_result
        }

    def move_to_directories(self, moves: Mapping[Replica, str]) -> set[Replica]:
        """Have replicas in these directories of their brokers; those that are there, or are being moved there.

        A replica that is not on its broker yet is left out, so that it can be asked for again; its broker makes it in
        that directory later. Raises RequestRefused.
        """
        from kio.schema.alter_replica_log_dirs.v2.request import (
            AlterReplicaLogDir,
            AlterReplicaLogDirsRequest,
            AlterReplicaLogDirTopic,
        )

        nodes = {node.id: node for node in self._wire.nodes()}
        begun = set()
        for broker in sorted({replica.broker for replica in moves}):
            by_path: dict[str, list[TopicPartition]] = {}
            for replica, path in moves.items():
                if replica.broker == broker:
                    by_path.setdefault(path, []).append(replica.partition)
            request = AlterReplicaLogDirsRequest(
                dirs=tuple(
                    AlterReplicaLogDir(
                        path=path,
                        topics=tuple(
                            AlterReplicaLogDirTopic(name=TopicName(topic), partitions=tuple(map(i32, numbers)))
                            for topic, numbers in by_topic(partitions).items()
                        ),
                    )
                    for path, partitions in by_path.items()
                )
            )
            if broker not in nodes:
                raise RequestRefused(ErrorCode.broker_not_available, f"broker {broker} is not up")
            for topic in self._served(request, nodes[broker]).results:
                for one in topic.partitions:
                    replica = Replica(broker, TopicPartition(topic.topic_name, one.partition_index))
                    if one.error_code == ErrorCode.none:
                        begun.add(replica)
                    elif one.error_code != ErrorCode.replica_not_available:
                        reason = _REASONS.get(one.error_code, f"broker {broker} answered {one.error_code.name.upper()}")
                        raise RequestRefused(
                            one.error_code, f"replica {replica} cannot go to {moves[replica]}: {reason}", _MOVE
                        )
        return begun

    def _metadata(self, topics: Collection[str] | None) -> Any:
        from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

        wanted = None
        if topics is not None:
            wanted = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in sorted(set(topics)))
        return self._wire.ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False),
            at_least=4,
        )

    def _ask_controller(self, request: RequestPayload, action: Action, *, at_least: int = 0) -> Any:
        """Ask the controller, as metadata names it; another is looked for if that one is no longer the controller."""
        deadline = self._wire.deadline()
        while True:
            metadata = self._metadata(())
            nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in metadata.brokers}
            answer = self._served(request, nodes.get(metadata.controller_id), at_least=at_least)
            if answer.error_code == ErrorCode.none:
                return answer
            if answer.error_code != ErrorCode.not_controller or deadline.passed:
                raise _refused(answer, action)
            time.sleep(RETRY_SECONDS)

    def _served(self, request: RequestPayload, node: Node | None, *, at_least: int = 0) -> Any:
        """The answer of a broker; one that does not know the API is told apart from one that refuses."""
        try:
            return self._wire.ask(request, at=node, at_least=at_least)
        except RequestRefused as error:
            if error.code != ErrorCode.unsupported_version:
                raise
            api = type(request).__name__.removesuffix("Request")
            raise RequestRefused(
                error.code,
                f"the brokers of this cluster do not serve {api} (API {request.__api_key__}), which this needs",
            ) from error


def _refused(answer: Any, action: Action) -> RequestRefused:
    message = getattr(answer, "error_message", None)
    return RequestRefused(answer.error_code, message or f"the broker answered {answer.error_code.name.upper()}", action)
