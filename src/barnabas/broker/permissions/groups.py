"""Groups and their offsets: which groups a caller may join, describe or delete, and of which topics it may see offsets.

A group is judged before its topics: without permission on it nothing is said of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kio.static.primitive import i32

from barnabas.broker.permissions.needs import Admitted, Denied
from barnabas.machines.security.acls import AclResourceType, Operation
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.permissions.needs import Asked

GROUP_DENIED = ErrorCode.group_authorization_failed
TOPIC_DENIED = ErrorCode.topic_authorization_failed
UNSEEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
GROUP, TRANSACTION, SHARE = range(3)
"""Kinds of coordinators."""


def offset_commit(asked: Asked) -> Admitted | Denied:
    """Read of the group, and of each topic."""
    if not asked.access.allows_group(Operation.READ, asked.request.group_id):
        return asked.refuse(AclResourceType.GROUP)
    return asked.split("topics", "topics", _may(asked, Operation.READ), TOPIC_DENIED)


def _may(asked: Asked, operation: Operation, *, quiet: bool = False) -> Callable[[Any], bool]:
    """Whether the caller may do this to a topic that a request names, by name or by id; unknown ids are let through."""

    def may(topic: Any) -> bool:
        name = topic.name
        if topic.topic_id is not None:
            found = asked.image.topic_by_id(topic.topic_id)
            if found is None:
                return True
            name = found.name
        return asked.access.allows_topic(operation, name, quiet=quiet)

    return may


def offset_fetch(asked: Asked) -> Admitted | Denied:
    """Describe of each group, and of each topic; of all topics of a group those are told that may be described."""
    access, request = asked.access, asked.request
    may, may_see = _may(asked, Operation.DESCRIBE), _may(asked, Operation.DESCRIBE, quiet=True)
    groups: list[Any] = []
    refused: list[Any] = []
    topics: dict[str, tuple[Any, ...]] = {}
    """By group, topics that may not be described."""
    filtered: set[str] = set()
    """Groups all of whose topics were asked for."""
    for group in dict.fromkeys(request.groups):
        if not access.allows_group(Operation.DESCRIBE, group.group_id):
            refused.append(group)
        elif group.topics is None:
            filtered.add(group.group_id)
            groups.append(group)
        else:
            allowed = tuple(topic for topic in group.topics if may(topic))
            if len(allowed) < len(group.topics):
                kept = set(map(id, allowed))
                denied = tuple(topic for topic in group.topics if id(topic) not in kept)
                topics[group.group_id] = (*topics.get(group.group_id, ()), *denied)
                group = replace(group, topics=allowed)
            groups.append(group)
    errors = asked.errors(GROUP_DENIED, replace(request, groups=tuple(refused))).groups if refused else ()
    if not groups:
        return Denied(asked.errors(GROUP_DENIED))

    def complete(response: Any) -> Any:
        left = dict(topics)
        told = []
        for group in response.groups:
            found = group.topics
            if group.group_id in filtered:
                found = tuple(topic for topic in found if may_see(topic))
            if group.error_code is ErrorCode.none:
                found = (*found, *_no_offsets(left.pop(group.group_id, ())))
            told.append(replace(group, topics=found))
        return replace(response, groups=(*told, *errors))

    return Admitted(replace(request, groups=tuple(groups)), complete)


def _no_offsets(topics: tuple[Any, ...]) -> tuple[Any, ...]:
    from barnabas.protocol.messages.groups.offset_fetch import OffsetFetchResponsePartitions, OffsetFetchResponseTopics

    return tuple(
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            name=topic.name,
            partitions=tuple(
                OffsetFetchResponsePartitions(partition_index=index, error_code=TOPIC_DENIED)
                for index in topic.partition_indexes
            ),
        )
        for topic in topics
    )


def offset_delete(asked: Asked) -> Admitted | Denied:
    """Delete of the group, and Read of each topic."""
    from kio.schema.offset_delete.v0.response import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic

    access, request = asked.access, asked.request
    if not access.allows_group(Operation.DELETE, request.group_id):
        return asked.refuse(AclResourceType.GROUP)
    allowed = access.topics(Operation.READ, (topic.name for topic in request.topics))
    refused = tuple(
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=TOPIC_DENIED)
                for each in topic.partitions
            ),
        )
        for topic in request.topics
        if topic.name not in allowed
    )
    if not refused:
        return Admitted(request)

    def complete(response: Any) -> Any:
        if response.error_code is not ErrorCode.none:
            return response
        return replace(response, topics=(*response.topics, *refused))

    return Admitted(replace(request, topics=tuple(each for each in request.topics if each.name in allowed)), complete)


def find_coordinator(asked: Asked) -> Admitted | Denied:
    """Describe of each group or transactional id; ClusterAction for share groups."""
    access, kind = asked.access, asked.request.key_type
    if kind == GROUP:
        return asked.split(
            "coordinator_keys", "coordinators", lambda key: access.allows_group(Operation.DESCRIBE, key), GROUP_DENIED
        )
    if kind == TRANSACTION:
        return asked.split(
            "coordinator_keys",
            "coordinators",
            lambda key: access.allows(Operation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, key),
            ErrorCode.transactional_id_authorization_failed,
        )
    if kind == SHARE and not access.allows_cluster(Operation.CLUSTER_ACTION):
        return asked.refuse(AclResourceType.CLUSTER)
    return Admitted(asked.request)


def consumer_group_heartbeat(asked: Asked) -> Admitted | Denied:
    """Read of the group, and Describe of each topic that is subscribed to by name."""
    access, request = asked.access, asked.request
    if not access.allows_group(Operation.READ, request.group_id):
        return asked.refuse(AclResourceType.GROUP)
    names = set(request.subscribed_topic_names or ())
    if access.topics(Operation.DESCRIBE, names) != names:
        return asked.refuse(AclResourceType.TOPIC)
    return Admitted(request)


share_group_heartbeat = consumer_group_heartbeat


def share_request(asked: Asked) -> Admitted | Denied:
    """Read of the group. The handler asks for Read of each topic, whose partitions have errors of their own."""
    group_id = asked.request.group_id
    if group_id is not None and not asked.access.allows_group(Operation.READ, group_id):
        return asked.refuse(AclResourceType.GROUP)
    return Admitted(asked.request)


def list_groups(asked: Asked) -> Admitted | Denied:
    """Describe of the cluster, or of each group; others are left out."""
    access = asked.access
    if access.allows_cluster(Operation.DESCRIBE, quiet=True):
        return Admitted(asked.request)

    def complete(response: Any) -> Any:
        seen = (each for each in response.groups if access.allows_group(Operation.DESCRIBE, each.group_id, quiet=True))
        return replace(response, groups=tuple(seen))

    return Admitted(asked.request, complete)


def delete_groups(asked: Asked) -> Admitted | Denied:
    """Delete, of each group."""
    access = asked.access
    return asked.split(
        "groups_names", "results", lambda group_id: access.allows_group(Operation.DELETE, group_id), GROUP_DENIED
    )


def describe_groups(asked: Asked) -> Admitted | Denied:
    """Describe, of each group."""
    return _describe(asked, "groups", lambda group: group)


def consumer_group_describe(asked: Asked) -> Admitted | Denied:
    """Describe of each group, and of each topic that is in it; otherwise the group has TOPIC_AUTHORIZATION_FAILED."""
    access = asked.access

    def hide(group: Any) -> Any:
        topics = {name for member in group.members for name in _topics_of(member)}
        if access.topics(Operation.DESCRIBE, topics, quiet=True) == topics:
            return group
        return replace(group, error_code=TOPIC_DENIED, error_message=UNSEEN_TOPICS, members=())

    return _describe(asked, "group_ids", hide)


share_group_describe = consumer_group_describe


def _topics_of(member: Any) -> set[str]:
    assigned = list(member.assignment.topic_partitions)
    if (target := getattr(member, "target_assignment", None)) is not None:  # members of share groups have none
        assigned += target.topic_partitions
    return {*member.subscribed_topic_names, *(each.topic_name for each in assigned)}


def _describe(asked: Asked, name: str, hide: Callable[[Any], Any]) -> Admitted | Denied:
    """Describe what may be described, with the operations that the caller may do if it asks for them."""
    access, asks = asked.access, asked.request.include_authorized_operations
    answer = asked.split(
        name, "groups", lambda group_id: access.allows_group(Operation.DESCRIBE, group_id), GROUP_DENIED
    )
    if isinstance(answer, Denied):
        return answer

    def complete_group(group: Any) -> Any:
        if group.error_code is ErrorCode.none:
            group = hide(group)
        if asks and group.error_code is ErrorCode.none:
            operations = access.operations(AclResourceType.GROUP, group.group_id)
            return replace(group, authorized_operations=i32(operations))
        return group

    def complete(response: Any) -> Any:
        response = replace(response, groups=tuple(map(complete_group, response.groups)))
        return response if answer.complete is None else answer.complete(response)

    return Admitted(answer.request, complete)
