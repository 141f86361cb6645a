"""Metadata v0–13 and DescribeTopicPartitions v0: brokers, topics and where their partitions are.

Metadata
- Topics by name, by id (v12+; where one id is given, names are not looked at), or all of them (null; in v0 also empty).
- Brokers are told by the address of the listener that the caller came in on; a broker without that listener is not
  told, and a partition that it leads has LISTENER_NOT_FOUND (v6+, before LEADER_NOT_AVAILABLE).
- An unknown name is made a topic when auto.create.topics.enable and the request (v4+) allow it, and answered as it is
  then; Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION and lets the client come again. Brokers' own topics are left to
  those who need them, so they get their proper settings.
- v8+: authorized operations of topics, v8–10 of the cluster too, when asked for.

DescribeTopicPartitions
- Topics in the order of their names, from the cursor on, at most response_partition_limit and
  max.request.partition.size.limit partitions; the next cursor says where to go on.

Not implemented: access control (everything is authorized), eligible leader replicas (always empty).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from kio.schema.describe_topic_partitions.v0 import response as describing
from kio.schema.metadata.v13.response import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.static.primitive import i32

from barnabas.broker.throttle import NO_THROTTLE
from barnabas.machines.acls import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from barnabas.machines.controller.image import INTERNAL_TOPICS, NO_LEADER
from barnabas.machines.controller.names import check_name
from barnabas.machines.controller.requests import NewTopic
from barnabas.model.errors import ApiError, ErrorCode, InvalidTopic, TopicAlreadyExists
from barnabas.protocol.metadata import NOT_ASKED, MetadataRequest, MetadataResponse, down
from barnabas.protocol.metadata_response import pack_topics

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
    from uuid import UUID

    from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
    from kio.schema.types import BrokerId, TopicName

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker
    from barnabas.machines.controller.image import ClusterImage, Endpoint, PartitionImage, TopicImage

logger = logging.getLogger(__name__)


MANY: Final = 200
"""Topics, or partitions, from which on an answer is made in parts."""


def metadata(
    broker: Broker, request: MetadataRequest, caller: Caller, version: int
) -> MetadataResponse | Coroutine[None, None, MetadataResponse]:
    """Tell the cluster; a coroutine when topics must be made first, or when there are many."""
    image = broker.metadata.image
    if request.allow_auto_topic_creation and broker.settings.flag("auto.create.topics.enable"):
        creatable = [name for name in _names(request) if name not in image.topics and _is_creatable(name)]
        if creatable:
            return _create_first(broker, request, caller, version, creatable)
    view = View.of(image, caller.listener)
    if _is_long(request, image):
        return _answer_in_parts(broker, request, view, {}, version)
    return _answer(request, view, {})


async def _create_first(
    broker: Broker, request: MetadataRequest, caller: Caller, version: int, names: Sequence[str]
) -> MetadataResponse:
    failures: dict[str, ErrorCode] = {}
    try:
        results = await broker.cluster.link.create_topics([NewTopic(name) for name in names])
        await broker.replicas.settled()
    except ApiError as error:
        logger.warning("could not create %s, which %s asked for: %s", ", ".join(names), caller.client_id, error)
        results = {}
    for name, result in results.items():
        if isinstance(result, ApiError):
            # Somebody else was faster, and this broker has not heard of it yet.
            known = isinstance(result, TopicAlreadyExists)
            failures[name] = ErrorCode.leader_not_available if known else result.code
        else:
            logger.info(
                "created %s with %d partitions, which %s asked for", name, len(result.partitions), caller.client_id
            )
    view = View.of(broker.metadata.image, caller.listener)
    if _is_long(request, view.image):
        return await _answer_in_parts(broker, request, view, failures, version)
    return _answer(request, view, failures)


def _names(request: MetadataRequest) -> Iterable[str]:
    """The topics that a request names; none when it asks for ids or for everything."""
    topics = request.topics or ()
    if any(topic.topic_id is not None for topic in topics):
        return ()
    return dict.fromkeys(topic.name or "" for topic in topics)


def _is_creatable(name: str) -> bool:
    try:
        check_name(name)
    except InvalidTopic:
        return False
    return name not in INTERNAL_TOPICS


def _is_long(request: MetadataRequest, image: ClusterImage) -> bool:
    """Whether many topics or partitions are asked for."""
    if request.topics is None:
        topics: Collection[TopicImage | None] = image.topics.values()
    elif len(request.topics) > MANY:
        return True
    else:
        topics = [
            image.topics.get(topic.name or "") if topic.topic_id is None else image.topic_by_id(topic.topic_id)
            for topic in request.topics
        ]
    return len(topics) > MANY or sum(len(topic.partitions) for topic in topics if topic is not None) > MANY


def _answer(request: MetadataRequest, view: View, failures: Mapping[str, ErrorCode]) -> MetadataResponse:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    topics = tuple(_told(view, found, operations) for found in _found(request, view.image, failures))
    return replace(_without_topics(request, view), topics=topics)


async def _answer_in_parts(
    broker: Broker, request: MetadataRequest, view: View, failures: Mapping[str, ErrorCode], version: int
) -> MetadataResponse:
    """The same, made a part at a time: others are served meanwhile."""
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    answer = _without_topics(request, view)

    def pack(some: Sequence[Found]) -> bytes:
        topics = tuple(_told(view, found, operations) for found in some)
        return pack_topics(down(replace(answer, topics=topics), version), version)

    found = _found(request, view.image, failures)
    if request.topics is None:
        kind = version, tuple(view.endpoints), operations
        packed = await broker.long_answers.pack_all(view.image, kind, found, pack, _partitions_of)
    else:
        packed = await broker.long_answers.pack(found, pack, _partitions_of)
    return replace(answer, packed_topics=packed)


class Missing(NamedTuple):
    """A topic that was asked for by name or id, and is not there."""

    name: str | None
    topic_id: UUID | None
    error: ErrorCode


Found: TypeAlias = "TopicImage | Missing"


def _found(request: MetadataRequest, image: ClusterImage, failures: Mapping[str, ErrorCode]) -> Sequence[Found]:
    """What a request asks for, in the order in which it is told."""
    if request.topics is None:
        return list(image.topics.values())
    if any(topic.topic_id is not None for topic in request.topics):
        ids = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id is not None)
        by_id = {topic_id: image.topic_by_id(topic_id) for topic_id in ids}
        unknown = [Missing(None, topic_id, ErrorCode.unknown_topic_id) for topic_id in ids if by_id[topic_id] is None]
        return [*unknown, *(topic for topic in by_id.values() if topic is not None)]
    return [
        image.topics.get(name) or Missing(name, None, failures.get(name) or _why_not(name)) for name in _names(request)
    ]


def _partitions_of(found: Found) -> int:
    return 0 if isinstance(found, Missing) else len(found.partitions)


def _told(view: View, found: Found, operations: int) -> MetadataResponseTopic:
    if isinstance(found, Missing):
        return _no_topic(found.name, found.topic_id, found.error, NOT_ASKED if found.name is None else operations)
    return _topic(view, found, operations)


def _without_topics(request: MetadataRequest, view: View) -> MetadataResponse:
    image = view.image
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(
                node_id=cast("BrokerId", broker_id),
                host=endpoint.host,
                port=i32(endpoint.port),
                rack=image.brokers[broker_id].rack,
            )
            for broker_id, endpoint in view.endpoints.items()
        ),
        cluster_id=image.cluster_id,
        controller_id=cast("BrokerId", image.controller_id),
        topics=(),
        error_code=ErrorCode.none,
        cluster_authorized_operations=(
            i32(CLUSTER_OPERATIONS) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


class View(NamedTuple):
    """A cluster as callers on one listener see it."""

    image: ClusterImage
    endpoints: Mapping[int, Endpoint]
    """Of the brokers that have this listener, by broker id."""

    @staticmethod
    def of(image: ClusterImage, listener: str) -> View:
        """The cluster on this listener."""
        endpoints = {
            broker_id: broker.endpoints[listener]
            for broker_id, broker in sorted(image.brokers.items())
            if listener in broker.endpoints
        }
        return View(image, endpoints)

    def leader(self, partition: PartitionImage) -> tuple[int, ErrorCode]:
        """The leader that callers can reach, or nobody and why."""
        if partition.leader in self.endpoints:
            return partition.leader, ErrorCode.none
        if partition.leader in self.image.brokers:
            return NO_LEADER, ErrorCode.listener_not_found
        return NO_LEADER, ErrorCode.leader_not_available

    def offline(self, topic: str, partition: PartitionImage) -> tuple[BrokerId, ...]:
        """The replicas that callers cannot reach, or whose log directory has failed."""
        if not self.image.failed and all(map(self.endpoints.__contains__, partition.replicas)):
            return ()
        lost = self.image.offline_replicas(topic, partition)
        found = tuple(node for node in partition.replicas if node not in self.endpoints or node in lost)
        return cast("tuple[BrokerId, ...]", found)


def _topic(view: View, topic: TopicImage, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=cast("TopicName", topic.name),
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(_partition(view, topic.name, partition) for partition in topic.partitions),
        topic_authorized_operations=cast("i32", operations),
    )


def _partition(view: View, topic: str, partition: PartitionImage) -> MetadataResponsePartition:
    leader, error = view.leader(partition)
    return MetadataResponsePartition(
        error_code=error,
        partition_index=cast("i32", partition.index),
        leader_id=cast("BrokerId", leader),
        leader_epoch=cast("i32", partition.leader_epoch),
        replica_nodes=cast("tuple[BrokerId, ...]", partition.replicas),
        isr_nodes=cast("tuple[BrokerId, ...]", partition.isr),
        offline_replicas=view.offline(topic, partition),
    )


def _no_topic(
    name: str | None, topic_id: UUID | None, error: ErrorCode, operations: int = NOT_ASKED
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=cast("TopicName | None", name),
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=cast("i32", operations),
    )


def _why_not(name: str) -> ErrorCode:
    try:
        check_name(name)
    except InvalidTopic as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition


def describe_topic_partitions(
    broker: Broker, request: DescribeTopicPartitionsRequest, caller: Caller
) -> describing.DescribeTopicPartitionsResponse:
    """Tell topics and partitions page by page."""
    view = View.of(broker.metadata.image, caller.listener)
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    asked = {topic.name for topic in request.topics} or view.image.topics.keys()
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and first not in asked)):
        return _no_page([_describe_nothing(topic.name, ErrorCode.invalid_request) for topic in request.topics])
    left = max(min(broker.settings.number("max.request.partition.size.limit"), request.response_partition_limit), 1)
    topics: list[describing.DescribeTopicPartitionsResponseTopic] = []
    for name in sorted(name for name in asked if name >= first):
        if left == 0:
            return _page(topics, name, 0)
        topic = view.image.topics.get(name)
        if topic is None:
            topics.append(_describe_nothing(name, _why_not(name), TOPIC_OPERATIONS))
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        partitions = topic.partitions[start : start + left]
        topics.append(_describe_topic(view, topic, partitions))
        if start + left < len(topic.partitions):
            return _page(topics, name, start + left)
        left -= len(partitions)
    return _no_page(topics)


def _page(
    topics: Sequence[describing.DescribeTopicPartitionsResponseTopic], next_topic: str, next_partition: int
) -> describing.DescribeTopicPartitionsResponse:
    cursor = describing.Cursor(topic_name=cast("TopicName", next_topic), partition_index=i32(next_partition))
    return describing.DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=cursor
    )


def _no_page(
    topics: Sequence[describing.DescribeTopicPartitionsResponseTopic],
) -> describing.DescribeTopicPartitionsResponse:
    return describing.DescribeTopicPartitionsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _describe_nothing(
    name: str, error: ErrorCode, operations: int = NOT_ASKED
) -> describing.DescribeTopicPartitionsResponseTopic:
    return describing.DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=cast("TopicName", name),
        topic_id=None,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=cast("i32", operations),
    )


def _describe_topic(
    view: View, topic: TopicImage, partitions: Iterable[PartitionImage]
) -> describing.DescribeTopicPartitionsResponseTopic:
    return describing.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=cast("TopicName", topic.name),
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            describing.DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.none,
                partition_index=cast("i32", partition.index),
                leader_id=cast("BrokerId", view.leader(partition)[0]),
                leader_epoch=cast("i32", partition.leader_epoch),
                replica_nodes=cast("tuple[BrokerId, ...]", partition.replicas),
                isr_nodes=cast("tuple[BrokerId, ...]", partition.isr),
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=view.offline(topic.name, partition),
            )
            for partition in partitions
        ),
        topic_authorized_operations=i32(TOPIC_OPERATIONS),
    )
