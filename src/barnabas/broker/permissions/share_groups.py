"""How far share groups are with topics: which groups and topics a caller may look at, move or reset."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kio.schema.alter_share_group_offsets.v0 import response as altering
from kio.schema.delete_share_group_offsets.v0 import response as deleting
from kio.schema.describe_share_group_offsets.v1 import response as describing
from kio.static.primitive import i64

from barnabas.broker.permissions.needs import WORDS, Admitted, Denied
from barnabas.machines.security.acls import AclResourceType, Operation
from barnabas.model.errors import ErrorCode
from barnabas.protocol.wire.conversion import zero

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.permissions.needs import Asked

TOPIC_DENIED = ErrorCode.topic_authorization_failed


def describe_offsets(asked: Asked) -> Admitted | Denied:
    """Describe of each group, and of each topic; of all topics of a group those are told that may be described."""
    access = asked.access
    refused: dict[str, tuple[Any, ...]] = {}
    """By group, topics that may not be described."""
    filtered: set[str] = set()
    """Groups all of whose topics were asked for."""
    groups = []
    for group in asked.request.groups:
        if group.topics is None:
            filtered.add(group.group_id)
            groups.append(group)
            continue
        allowed = access.topics(Operation.DESCRIBE, [topic.topic_name for topic in group.topics])
        refused[group.group_id] = tuple(topic for topic in group.topics if topic.topic_name not in allowed)
        groups.append(replace(group, topics=tuple(each for each in group.topics if each.topic_name in allowed)))
    reduced = asked._replace(request=replace(asked.request, groups=tuple(groups)))
    answer = reduced.split(
        "groups",
        "groups",
        lambda group: access.allows_group(Operation.DESCRIBE, group.group_id),
        ErrorCode.group_authorization_failed,
    )
    if isinstance(answer, Denied):
        return answer

    def tell(group: Any) -> Any:
        topics = group.topics
        if group.group_id in filtered:
            names = {topic.topic_name for topic in topics}
            seen = access.topics(Operation.DESCRIBE, names, quiet=True)
            topics = tuple(topic for topic in topics if topic.topic_name in seen)
        if group.error_code is ErrorCode.none:
            topics = (*topics, *map(_undescribed, refused.get(group.group_id, ())))
        return replace(group, topics=topics)

    def complete(response: Any) -> Any:
        response = replace(response, groups=tuple(map(tell, response.groups)))
        return response if answer.complete is None else answer.complete(response)

    return Admitted(answer.request, complete)


def _undescribed(topic: Any) -> describing.DescribeShareGroupOffsetsResponseTopic:
    part = describing.DescribeShareGroupOffsetsResponsePartition
    return describing.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=None,
        partitions=tuple(
            zero(
                part,
                partition_index=index,
                start_offset=i64(-1),
                error_code=TOPIC_DENIED,
                error_message=WORDS[TOPIC_DENIED],
            )
            for index in topic.partitions
        ),
    )


def alter_offsets(asked: Asked) -> Admitted | Denied:
    """Read of the group, and of each topic."""

    def refused(topic: Any) -> altering.AlterShareGroupOffsetsResponseTopic:
        return altering.AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=None,
            partitions=tuple(
                altering.AlterShareGroupOffsetsResponsePartition(
                    partition_index=part.partition_index, error_code=TOPIC_DENIED, error_message=WORDS[TOPIC_DENIED]
                )
                for part in topic.partitions
            ),
        )

    return _split_topics(asked, Operation.READ, refused)


def delete_offsets(asked: Asked) -> Admitted | Denied:
    """Delete of the group, and Read of each topic."""

    def refused(topic: Any) -> deleting.DeleteShareGroupOffsetsResponseTopic:
        return deleting.DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, topic_id=None, error_code=TOPIC_DENIED, error_message=WORDS[TOPIC_DENIED]
        )

    return _split_topics(asked, Operation.DELETE, refused)


def _split_topics(asked: Asked, on_group: Operation, refused: Callable[[Any], Any]) -> Admitted | Denied:
    """Serve the topics that the caller may read, and answer the others as `refused` does."""
    access, request = asked.access, asked.request
    if not access.allows_group(on_group, request.group_id):
        return asked.refuse(AclResourceType.GROUP)
    allowed = access.topics(Operation.READ, [topic.topic_name for topic in request.topics])
    errors = tuple(refused(topic) for topic in request.topics if topic.topic_name not in allowed)
    if not errors:
        return Admitted(request)

    def complete(response: Any) -> Any:
        if response.error_code is not ErrorCode.none:
            return response
        return replace(response, responses=(*response.responses, *errors))

    served = tuple(topic for topic in request.topics if topic.topic_name in allowed)
    return Admitted(replace(request, topics=served), complete)
