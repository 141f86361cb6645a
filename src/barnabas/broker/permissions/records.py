"""Records: which topics of a Produce may be written, and which partitions of a Fetch may be read, by the caller.

Their handlers ask here when the caller's connection does not remember that all of it is allowed (`Memo`): then the next
request for the same topics costs a look into a set.

Nothing is remembered of names that a client has made up: only of topics that there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.machines.security.acls import AclResourceType, Operation
from barnabas.model.errors import (
    ApiError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.permissions.access import Permissions
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.fetch_session import SessionPartition
    from barnabas.metadata.images.cache import MetadataCache
    from barnabas.protocol.messages.produce import ProduceRequest, Topic


def unwritable(
    permissions: Permissions, caller: Caller, metadata: MetadataCache, request: ProduceRequest
) -> dict[Topic, ApiError]:
    """The topics of a Produce that the caller may not write to, each with its error."""
    if _may_write_all(caller, request):
        return {}
    access, session = permissions.of(caller, "PRODUCE"), caller.session
    if caller.broker_id is not None and access.allows_cluster(Operation.CLUSTER_ACTION):
        return {}
    names = {topic: _name(metadata, topic) for topic, _, _ in request.partitions}
    transactional_id = request.transactional_id
    if transactional_id is not None and not access.allows(
        Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return dict.fromkeys(names, TransactionalIdAuthorizationFailed("Transactional Id authorization failed."))
    writable = access.topics(Operation.WRITE, (name for name in names.values() if name is not None))
    known = [topic for topic, name in names.items() if name in writable and name in metadata.image.topics]
    if known:
        permissions.memo(session).writable.update((session.principal, topic) for topic in known)
    return {topic: _denial(name) for topic, name in names.items() if name not in writable}


def _may_write_all(caller: Caller, request: ProduceRequest) -> bool:
    """Whether the connection remembers that all of the request is allowed."""
    memo, principal = caller.session.memo, caller.session.principal
    if request.transactional_id is not None:
        asked = principal, Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id
        if not memo.decisions.get(asked):
            return False
    return all((principal, topic) in memo.writable for topic, _, _ in request.partitions)


def unreadable(
    permissions: Permissions, caller: Caller, metadata: MetadataCache, partitions: Sequence[SessionPartition]
) -> dict[object, ApiError]:
    """The partitions of a Fetch that the caller may not read by the rules of now, by their keys, each with its error.

    A session, or a wait, outlasts rules. Where all of a session's partitions may be read, its next fetch costs not even
    a look into a set.
    """
    session = caller.session
    memo, principal = session.memo, session.principal
    if memo.fetched is partitions and memo.fetched_by == principal:
        return {}
    readable = memo.readable
    for wanted in partitions:
        if (principal, wanted.topic) not in readable:
            return _ask_to_read(permissions, caller, metadata, partitions)
    if readable:  # else this may be the memo of those that were never asked
        memo.fetched, memo.fetched_by = partitions, principal
    return {}


def _ask_to_read(
    permissions: Permissions, caller: Caller, metadata: MetadataCache, partitions: Sequence[SessionPartition]
) -> dict[object, ApiError]:
    access, session = permissions.of(caller, "FETCH"), caller.session
    names = {wanted.topic: _name(metadata, wanted.topic) for wanted in partitions}
    readable = access.topics(Operation.READ, (name for name in names.values() if name is not None))
    known = [topic for topic, name in names.items() if name in readable and name in metadata.image.topics]
    if known:
        permissions.memo(session).readable.update((session.principal, topic) for topic in known)
    denied = {topic: _denial(name) for topic, name in names.items() if name not in readable}
    return {wanted.key: denied[wanted.topic] for wanted in partitions if wanted.topic in denied}


def _name(metadata: MetadataCache, topic: str | bytes) -> str | None:
    """A topic's name; None if no topic has this id."""
    if isinstance(topic, str):
        return topic
    found = metadata.topic_by_id(UUID(bytes=topic))
    return None if found is None else found.name


def _denial(name: str | None) -> ApiError:
    if name is None:
        return UnknownTopicId("No topic has this id.")
    return TopicAuthorizationFailed("Topic authorization failed.")
