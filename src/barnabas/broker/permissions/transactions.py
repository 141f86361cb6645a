"""Transactions and producers: Write on the transactional id, and on what the transaction writes to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.permissions.needs import WORDS, Admitted, Denied
from barnabas.machines.security.acls import AclResourceType, Operation
from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.messages.add_partitions_to_txn import BATCHED_SINCE
from barnabas.protocol.wire.error_responses import top_level_error

if TYPE_CHECKING:
    from barnabas.broker.permissions.needs import Asked

TOPIC_DENIED: Final = ErrorCode.topic_authorization_failed
ID_DENIED: Final = ErrorCode.transactional_id_authorization_failed


def _may_write(asked: Asked, transactional_id: str) -> bool:
    return asked.access.allows(Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)


def init_producer_id(asked: Asked) -> Admitted | Denied:
    """Write of the transactional id; without one IdempotentWrite of the cluster, or Write of any topic.

    Whoever is refused lacked both, and the audit log has a line for each.
    """
    access, transactional_id = asked.access, asked.request.transactional_id
    if transactional_id is not None:
        return Admitted(asked.request) if _may_write(asked, transactional_id) else _refuse_id(asked)
    if access.allows_cluster(Operation.IDEMPOTENT_WRITE, quiet=True):
        return Admitted(asked.request)
    if access.allows_some(Operation.WRITE, AclResourceType.TOPIC):
        return Admitted(asked.request)
    access.allows_cluster(Operation.IDEMPOTENT_WRITE)  # for the log
    return asked.refuse(AclResourceType.CLUSTER)


def _refuse_id(asked: Asked) -> Denied:
    return asked.refuse(AclResourceType.TRANSACTIONAL_ID)


def add_partitions_to_txn(asked: Asked) -> Admitted | Denied:
    """Write of the transactional id and of each topic; of brokers, who ask for many transactions, ClusterAction.

    One topic that may not be written to keeps all partitions of the transaction from being added.
    """
    access, request = asked.access, asked.request
    if asked.version >= BATCHED_SINCE:
        if access.allows_cluster(Operation.CLUSTER_ACTION):
            return Admitted(request)
        code = ErrorCode.cluster_authorization_failed
        return Denied(top_level_error(asked.key, asked.newest, code, WORDS[code]))
    if not all(_may_write(asked, each.transactional_id) for each in request.transactions):
        return _refuse_id(asked)
    names = {topic.name for each in request.transactions for topic in each.topics}
    allowed = access.topics(Operation.WRITE, names - INTERNAL_TOPICS)
    if allowed == names:
        return Admitted(request)
    errors = asked.errors(TOPIC_DENIED)
    return Denied(
        replace(
            errors,
            results_by_transaction=tuple(
                replace(each, topic_results=tuple(_not_added(asked, topic, allowed) for topic in each.topic_results))
                for each in errors.results_by_transaction
            ),
        )
    )


def _not_added(asked: Asked, topic: Any, allowed: set[str]) -> Any:
    """The results of a topic in a request of which another topic was refused."""
    if topic.name not in allowed:
        return topic
    return replace(
        topic,
        results_by_partition=tuple(
            replace(each, partition_error_code=_why_not(asked, topic.name, each.partition_index))
            for each in topic.results_by_partition
        ),
    )


def _why_not(asked: Asked, topic: str, index: int) -> ErrorCode:
    if asked.image.partition(topic, index) is None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.operation_not_attempted


def add_offsets_to_txn(asked: Asked) -> Admitted | Denied:
    """Write of the transactional id, and Read of the group."""
    if not _may_write(asked, asked.request.transactional_id):
        return _refuse_id(asked)
    if not asked.access.allows_group(Operation.READ, asked.request.group_id):
        return asked.refuse(AclResourceType.GROUP)
    return Admitted(asked.request)


def txn_offset_commit(asked: Asked) -> Admitted | Denied:
    """Write of the transactional id, Read of the group, and Read of each topic."""
    answer = add_offsets_to_txn(asked)
    if isinstance(answer, Denied):
        return answer
    allowed = asked.access.topics(Operation.READ, (topic.name for topic in asked.request.topics))
    return asked.split("topics", "topics", lambda topic: topic.name in allowed, TOPIC_DENIED)


def describe_transactions(asked: Asked) -> Admitted | Denied:
    """Describe of each transactional id; topics that may not be described are left out."""
    access = asked.access
    answer = asked.split(
        "transactional_ids",
        "transaction_states",
        lambda each: access.allows(Operation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, each),
        ID_DENIED,
    )
    if isinstance(answer, Denied):
        return answer

    def hide_topics(state: Any) -> Any:
        seen = access.topics(Operation.DESCRIBE, (each.topic for each in state.topics), quiet=True)
        return replace(state, topics=tuple(each for each in state.topics if each.topic in seen))

    def complete(response: Any) -> Any:
        response = replace(response, transaction_states=tuple(map(hide_topics, response.transaction_states)))
        return response if answer.complete is None else answer.complete(response)

    return Admitted(answer.request, complete)


def list_transactions(asked: Asked) -> Admitted | Denied:
    """Describe of each transactional id; others are left out."""
    access, kind = asked.access, AclResourceType.TRANSACTIONAL_ID

    def complete(response: Any) -> Any:
        states = response.transaction_states
        seen = (each for each in states if access.allows(Operation.DESCRIBE, kind, each.transactional_id, quiet=True))
        return replace(response, transaction_states=tuple(seen))

    return Admitted(asked.request, complete)
