"""Metadata v0–13 and DescribeTopicPartitions v0: brokers, topics and where their partitions are.

Metadata
- Topics by name, by id (v12+; where one id is given, names are not looked at), or all of them (null; in v0 also empty).
- Brokers are told by the address of the listener that the caller came in on; a broker without that listener is not
  told, and a partition that it leads has LISTENER_NOT_FOUND (v6+, before LEADER_NOT_AVAILABLE).
- While no broker is registered, the one that answers names itself. Apache Kafka names none, and librdkafka 2.16, which
  forgets brokers that are not named, then has nobody left to ask.
- An unknown name is made a topic when auto.create.topics.enable and the request (v4+) allow it, and answered as it is
  then; Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION and lets the client come again. Brokers' own topics are left to
  those who need them, so they get their proper settings.
- v8+: authorized operations of topics, v8–10 of the cluster too, when asked for.

DescribeTopicPartitions
- Topics in the order of their names, from the cursor on, at most response_partition_limit and
  max.request.partition.size.limit partitions; the next cursor says where to go on.

With an authorizer, topics need Describe. Others have TOPIC_AUTHORIZATION_FAILED, whether they exist or not, and are
left out of all topics. A topic is created for those who may Create it, or may Create in the cluster.

Not implemented: eligible leader replicas (always empty).
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

from barnabas.broker.serving.long_answers import portions
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.controller.names import check_name
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.machines.controller.topics import MAX_PARTITIONS_PER_REQUEST
from barnabas.machines.security.acls import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, AclResourceType, Operation
from barnabas.model.errors import ApiError, ErrorCode, InvalidTopic, TopicAlreadyExists
from barnabas.model.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.messages.metadata import NOT_ASKED, MetadataRequest, MetadataResponse, down, pack_topics

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
    from uuid import UUID

    from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
    from kio.schema.types import BrokerId, TopicName

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.permissions.access import Access
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.controller.image import ClusterImage, Endpoint, PartitionImage, TopicImage

logger = logging.getLogger(__name__)


MANY: Final = 200
"""Topics, or partitions, from which on an answer is made in parts."""


def metadata(
    broker: BrokerContext, request: MetadataRequest, caller: Caller, version: int
) -> MetadataResponse | Coroutine[None, None, MetadataResponse]:
    """Describe the cluster; a coroutine when topics must be created first, or when there are many."""
    image = broker.metadata.image
    if request.allow_auto_topic_creation and broker.settings.flag("auto.create.topics.enable"):
        creatable = [name for name in _names(request) if name not in image.topics and _is_creatable(name)]
        if creatable:
            return _create_first(broker, request, caller, version, creatable)
    view = View.of(broker, caller)
    if _is_long(request, image):
        return _answer_in_parts(broker, request, view, {}, version)
    return _answer(request, view, {})


async def _create_first(
    broker: BrokerContext, request: MetadataRequest, caller: Caller, version: int, names: Sequence[str]
) -> MetadataResponse:
    failures: dict[str, ErrorCode] = {}
    results: dict[str, TopicImage | ApiError] = {}
    if broker.permissions is not None:
        allowed = await _allowed_to_create(broker, broker.permissions.of(caller, "METADATA"), names)
        failures = dict.fromkeys((name for name in names if name not in allowed), ErrorCode.topic_authorization_failed)
        names = [name for name in names if name in allowed]
    try:
        for some in portions(names) if len(names) <= MAX_PARTITIONS_PER_REQUEST else [names]:
            results |= await broker.controller_link.create_topics([TopicToCreate(name) for name in some])
        await broker.replicas.settled()
    except ApiError as error:
        logger.warning("Could not create %s automatically for client %s: %s", ", ".join(names), caller.client_id, error)
    for name, result in results.items():
        if isinstance(result, ApiError):
            # Somebody else was faster, and this broker has not heard of it yet.
            known = isinstance(result, TopicAlreadyExists)
            failures[name] = ErrorCode.leader_not_available if known else result.code
        else:
            logger.info(
                "Created topic %s with %d partitions automatically for client %s",
                name,
                len(result.partitions),
                caller.client_id,
            )
    view = View.of(broker, caller)
    if _is_long(request, view.image):
        return await _answer_in_parts(broker, request, view, failures, version)
    return _answer(request, view, failures)


async def _allowed_to_create(broker: BrokerContext, access: Access, names: Sequence[str]) -> Collection[str]:
    """Of topics that do not exist, those that the caller may have created: it may describe them, and create them."""
    described = await broker.long_answers.each(names, lambda name: access.allows_topic(Operation.DESCRIBE, name))
    seen = [name for name, may in zip(names, described, strict=True) if may]
    if access.allows_cluster(Operation.CREATE, quiet=True):
        return frozenset(seen)
    created = await broker.long_answers.each(seen, lambda name: access.allows_topic(Operation.CREATE, name))
    return frozenset(name for name, may in zip(seen, created, strict=True) if may)


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
    operations = request.include_topic_authorized_operations
    topics = tuple(_topic_or_error(view, found, operations) for found in _select_topics(request, view, failures))
    return replace(_without_topics(request, view), topics=topics)


async def _answer_in_parts(
    broker: BrokerContext, request: MetadataRequest, view: View, failures: Mapping[str, ErrorCode], version: int
) -> MetadataResponse:
    """The same, made a part at a time: others are served meanwhile."""
    operations = request.include_topic_authorized_operations
    answer = _without_topics(request, view)

    def pack(some: Sequence[Found]) -> bytes:
        topics = tuple(_topic_or_error(view, found, operations) for found in some)
        return pack_topics(down(replace(answer, topics=topics), version), version)

    found: Sequence[Found]
    if request.topics is None and view.access is not None:
        all_topics = list(view.image.topics.values())
        seen = await broker.long_answers.each(all_topics, lambda topic: view.shows(topic.name, quiet=True))
        found = [topic for topic, is_seen in zip(all_topics, seen, strict=True) if is_seen]
    elif request.topics is None or any(topic.topic_id is not None for topic in request.topics):
        found = _select_topics(request, view, failures)
    else:
        found = await broker.long_answers.each(_names(request), lambda name: _find(name, view, failures))
    if request.topics is None and view.access is None:
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


def _select_topics(request: MetadataRequest, view: View, failures: Mapping[str, ErrorCode]) -> Sequence[Found]:
    """The topics of the response, in their order; those that the caller may not see are left out, or refused."""
    image = view.image
    if request.topics is None:
        return [topic for topic in image.topics.values() if view.shows(topic.name, quiet=True)]
    if any(topic.topic_id is not None for topic in request.topics):
        ids = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id is not None)
        by_id = {topic_id: image.topic_by_id(topic_id) for topic_id in ids}
        unknown = [Missing(None, topic_id, ErrorCode.unknown_topic_id) for topic_id in ids if by_id[topic_id] is None]
        return [
            *unknown,
            *(
                topic if view.shows(topic.name) else Missing(None, topic.topic_id, ErrorCode.topic_authorization_failed)
                for topic in by_id.values()
                if topic is not None
            ),
        ]
    return [_find(name, view, failures) for name in _names(request)]


def _find(name: str, view: View, failures: Mapping[str, ErrorCode]) -> Found:
    if not view.shows(name):
        return Missing(name, None, ErrorCode.topic_authorization_failed)
    return view.image.topics.get(name) or Missing(name, None, failures.get(name) or _missing_code(name))


def _partitions_of(found: Found) -> int:
    return 0 if isinstance(found, Missing) else len(found.partitions)


def _topic_or_error(view: View, found: Found, asks_operations: bool) -> MetadataResponseTopic:
    if isinstance(found, Missing):
        is_told = asks_operations and found.name and found.error is not ErrorCode.topic_authorization_failed
        operations = view.operations(found.name or "") if is_told else NOT_ASKED
        return _no_topic(found.name, found.topic_id, found.error, operations)
    return _topic(view, found, view.operations(found.name) if asks_operations else NOT_ASKED)


def _without_topics(request: MetadataRequest, view: View) -> MetadataResponse:
    image = view.image
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(
                node_id=cast("BrokerId", broker_id),
                host=endpoint.host,
                port=i32(endpoint.port),
                rack=image.brokers[broker_id].rack if broker_id in image.brokers else None,
            )
            for broker_id, endpoint in view.named.items()
        ),
        cluster_id=image.cluster_id,
        controller_id=cast("BrokerId", image.controller_id),
        topics=(),
        error_code=ErrorCode.none,
        cluster_authorized_operations=(
            i32(view.cluster_operations()) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


class View(NamedTuple):
    """A cluster as a caller sees it, who came in on one listener."""

    image: ClusterImage
    endpoints: Mapping[int, Endpoint]
    """Of the brokers that have this listener, by broker id."""
    named: Mapping[int, Endpoint]
    """The same, or this broker's own if none is registered."""
    access: Access | None = None
    """What the caller may see; None where everybody may see everything."""

    @staticmethod
    def of(broker: BrokerContext, caller: Caller) -> View:
        """The cluster as this broker knows it, for this caller."""
        image, listener = broker.metadata.image, caller.listener
        access = None if broker.permissions is None else broker.permissions.of(caller, "METADATA")
        endpoints = {
            broker_id: each.endpoints[listener]
            for broker_id, each in sorted(image.brokers.items())
            if listener in each.endpoints
        }
        if endpoints:
            return View(image, endpoints, endpoints, access)
        own = broker.membership.endpoint(listener)
        return View(image, endpoints, {} if own is None else {broker.broker_id: own}, access)

    def shows(self, topic: str, *, quiet: bool = False) -> bool:
        """Whether the caller may know of a topic."""
        return self.access is None or self.access.allows_topic(Operation.DESCRIBE, topic, quiet=quiet)

    def operations(self, topic: str) -> int:
        """What the caller may do to a topic, as a bit field."""
        return TOPIC_OPERATIONS if self.access is None else self.access.operations(AclResourceType.TOPIC, topic)

    def cluster_operations(self) -> int:
        """What the caller may do to the cluster, as a bit field."""
        return CLUSTER_OPERATIONS if self.access is None else self.access.cluster_operations()

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
        is_internal=name in INTERNAL_TOPICS and error is not ErrorCode.topic_authorization_failed,
        partitions=(),
        topic_authorized_operations=cast("i32", operations),
    )


def _missing_code(name: str) -> ErrorCode:
    try:
        check_name(name)
    except InvalidTopic as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition


async def describe_topic_partitions(
    broker: BrokerContext, request: DescribeTopicPartitionsRequest, caller: Caller
) -> describing.DescribeTopicPartitionsResponse:
    """Describe topics and partitions, page by page."""
    view = View.of(broker, caller)
    most = max(min(broker.settings.number("max.request.partition.size.limit"), request.response_partition_limit), 1)
    if max(len(request.topics), len(view.image.topics)) <= MANY:
        return _describe_page(view, request, most)
    describing_page = broker.validation_pool.start(0, lambda: _describe_page(view, request, most))
    assert describing_page is not None  # nothing of a request is held for it
    return await describing_page


def _describe_page(
    view: View, request: DescribeTopicPartitionsRequest, most: int
) -> describing.DescribeTopicPartitionsResponse:
    """One page of at most so many partitions. Runs in a thread where there are many topics."""
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    asked = {topic.name for topic in request.topics} or view.image.topics.keys()
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and first not in asked)):
        return _no_page([_describe_nothing(topic.name, ErrorCode.invalid_request) for topic in request.topics])
    left = most
    topics: list[describing.DescribeTopicPartitionsResponseTopic] = []
    names = sorted(name for name in asked if name >= first)
    if view.access is not None:
        seen = {name for name in names if view.shows(name, quiet=not request.topics)}
        if request.topics:
            denied = ErrorCode.topic_authorization_failed
            topics += [_describe_nothing(name, denied) for name in names if name not in seen]
        names = [name for name in names if name in seen]
    for name in names:
        if left == 0:
            return _page(topics, name, 0)
        topic = view.image.topics.get(name)
        if topic is None:
            topics.append(_describe_nothing(name, _missing_code(name), view.operations(name)))
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
        is_internal=name in INTERNAL_TOPICS and error is not ErrorCode.topic_authorization_failed,
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
        topic_authorized_operations=i32(view.operations(topic.name)),
    )
