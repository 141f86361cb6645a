"""Topics: which of those that a request names may be read, described, created, changed or deleted by the caller.

What a caller may not even describe is answered with TOPIC_AUTHORIZATION_FAILED whether it exists or not, and is left
out where a request asks for everything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kio.static.primitive import i16, i32

from barnabas.broker.permissions.needs import Admitted, Denied
from barnabas.machines.security.acls import Operation
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.permissions.access import Access
    from barnabas.broker.permissions.needs import Asked

DENIED = ErrorCode.topic_authorization_failed


def _each(asked: Asked, operation: Operation, response_name: str, name: str = "name") -> Admitted | Denied:
    """Serve the topics on which the caller may do this."""
    access = asked.access
    allowed = access.topics(operation, (getattr(topic, name) for topic in asked.request.topics))
    return asked.split("topics", response_name, lambda topic: getattr(topic, name) in allowed, DENIED)


def list_offsets(asked: Asked) -> Admitted | Denied:
    """Describe, of each topic."""
    return _each(asked, Operation.DESCRIBE, "topics")


def delete_records(asked: Asked) -> Admitted | Denied:
    """Delete, of each topic."""
    return _each(asked, Operation.DELETE, "topics")


def describe_producers(asked: Asked) -> Admitted | Denied:
    """Read, of each topic."""
    return _each(asked, Operation.READ, "topics")


def create_partitions(asked: Asked) -> Admitted | Denied:
    """Alter, of each topic."""
    return _each(asked, Operation.ALTER, "results")


def offset_for_leader_epoch(asked: Asked) -> Admitted | Denied:
    """ClusterAction, or Describe of each topic."""
    if asked.access.allows_cluster(Operation.CLUSTER_ACTION, quiet=True):
        return Admitted(asked.request)
    return _each(asked, Operation.DESCRIBE, "topics", "topic")


def create_topics(asked: Asked) -> Admitted | Denied:
    """Create of the cluster, or of each topic; its settings are told to those who may DescribeConfigs."""
    access, topics = asked.access, asked.request.topics
    may_create = _creatable(access, [topic.name for topic in topics])
    times = Counter(topic.name for topic in topics)
    answer = asked.split("topics", "topics", lambda topic: times[topic.name] > 1 or may_create(topic.name), DENIED)
    if isinstance(answer, Denied):
        return answer
    names = [topic.name for topic in answer.request.topics]
    described = access.topics(Operation.DESCRIBE_CONFIGS, names, quiet=True)
    if len(described) == len(set(names)):
        return answer

    def complete(response: Any) -> Any:
        told = tuple(topic if topic.name in described else _without_configs(topic) for topic in response.topics)
        response = replace(response, topics=told)
        return response if answer.complete is None else answer.complete(response)

    return Admitted(answer.request, complete)


def _creatable(access: Access, names: list[str]) -> Callable[[str], bool]:
    if access.allows_cluster(Operation.CREATE, quiet=True):
        return lambda name: True
    return access.topics(Operation.CREATE, names).__contains__


def _without_configs(topic: Any) -> Any:
    """A topic that was created, without what its creator may not know."""
    if topic.error_code is not ErrorCode.none:
        return topic
    return replace(
        topic,
        topic_config_error_code=i16(DENIED),
        num_partitions=i32(-1),
        replication_factor=i16(-1),
        configs=(),
    )


def delete_topics(asked: Asked) -> Admitted | Denied:
    """Delete of the cluster, or of each topic; a topic that may not be described is refused before it is looked for."""
    access = asked.access
    if access.allows_cluster(Operation.DELETE, quiet=True):
        return Admitted(asked.request)

    def may_delete(state: Any) -> bool:
        name = _name_of(asked, state)
        if name is None:  # the handler says what is wrong with it
            return True
        if state.name is not None:  # by its id a topic may be deleted without that, as in Kafka
            if not access.allows_topic(Operation.DESCRIBE, name):
                return False
            if asked.image.topic(name) is None:
                return True
        return access.allows_topic(Operation.DELETE, name)

    answer = asked.split("topics", "responses", may_delete, DENIED)
    return _with_names(asked, answer)


def _name_of(asked: Asked, state: Any) -> str | None:
    """The topic that a request means; None if it means none, or two."""
    if state.name is not None:
        return None if state.topic_id is not None else str(state.name)
    topic = None if state.topic_id is None else asked.image.topic_by_id(state.topic_id)
    return None if topic is None else topic.name


def _with_names(asked: Asked, answer: Admitted | Denied) -> Admitted | Denied:
    """Topics that were refused by id, with their names for those who may describe them."""

    def add_name(result: Any) -> Any:
        if result.error_code is not DENIED or result.name is not None or result.topic_id is None:
            return result
        topic = asked.image.topic_by_id(result.topic_id)
        if topic is None or not asked.access.allows_topic(Operation.DESCRIBE, topic.name, quiet=True):
            return result
        return replace(result, name=topic.name)

    def complete(response: Any) -> Any:
        if isinstance(answer, Admitted) and answer.complete is not None:
            response = answer.complete(response)
        return replace(response, responses=tuple(map(add_name, response.responses)))

    if isinstance(answer, Denied):
        return Denied(complete(answer.response))
    return Admitted(answer.request, complete)
