"""CreateTopics v2–7, DeleteTopics v1–6 and CreatePartitions v0–3: topics come, grow and go.

CreateTopics
- With counts (-1: num.partitions, default.replication.factor) or with an assignment of every partition, and with
  configuration overrides. Each topic is made or refused on its own; one named twice is refused.
- validate_only tells what would happen. v5+: the answer has the counts and the whole configuration; v7: the topic's id.

DeleteTopics
- By name, or by id (v6). One given twice, by both, or by neither is an INVALID_REQUEST.
- delete.topic.enable=false refuses everything with TOPIC_DELETION_DISABLED (before v3 INVALID_REQUEST).

CreatePartitions
- Up to a count, placed by the controller or by an assignment of the new partitions. validate_only as above.
- Topics of brokers themselves keep their number: groups are found by it, and would lose their offsets. (Apache Kafka
  takes more, and looks at another partition for old offsets after its next start.)

An answer is sent when the change is written and this broker acts by it, so the timeouts that requests carry are not
waited for.

Not implemented: access control, mutation quotas, topic policies.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.create_topics.v7.response import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from barnabas.broker.config_entries import Describer
from barnabas.broker.throttle import NO_THROTTLE
from barnabas.machines.controller.image import INTERNAL_TOPICS
from barnabas.machines.controller.names import check_name
from barnabas.machines.controller.requests import NewPartitions, NewTopic
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    InvalidRequest,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping
    from uuid import UUID

    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker
    from barnabas.machines.controller.image import TopicImage

logger = logging.getLogger(__name__)


async def create_topics(broker: Broker, request: CreateTopicsRequest, caller: Caller) -> CreateTopicsResponse:
    """Make topics."""
    times = Counter(topic.name for topic in request.topics)
    outcomes: dict[str, TopicImage | ApiError] = {}
    accepted: list[NewTopic] = []
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            accepted.append(_new_topic(broker, topic))
        except ApiError as error:
            outcomes[topic.name] = error
    if accepted:
        creating = broker.controller.create_topics(accepted, validate_only=request.validate_only)
        outcomes |= await _each(creating, [topic.name for topic in accepted])
        await broker.replicas.settled()
    overrides = {topic.name: topic.configs for topic in accepted}
    describer = Describer(broker, with_synonyms=False, with_documentation=False)
    results = []
    for name in times:
        outcome = outcomes[name]
        if isinstance(outcome, ApiError):
            results.append(_not_created(name, outcome))
            continue
        results.append(_created(outcome, overrides[name], describer))
        if not request.validate_only:
            logger.info("created topic %s with %d partitions for %s", name, len(outcome.partitions), caller.client_id)
    return CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=tuple(results))


async def _each(
    request: Awaitable[Mapping[str, TopicImage | ApiError]], names: Iterable[str]
) -> Mapping[str, TopicImage | ApiError]:
    """The controller's answers; if it takes no requests at all, that is the answer for each topic."""
    try:
        return await request
    except ApiError as error:
        return dict.fromkeys(names, error)


def _new_topic(broker: Broker, topic: CreatableTopic) -> NewTopic:
    """What the controller is asked for; names and configuration are checked here, the rest by its rules."""
    check_name(topic.name)
    if broker.metadata.topic(topic.name) is not None:
        raise TopicAlreadyExists(f"Topic '{topic.name}' already exists.")
    configs = {config.name: config.value for config in topic.configs}
    broker.settings.check_topic(configs)
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {name: text for name, text in configs.items() if text is not None},
    )


def _created(topic: TopicImage, overrides: Mapping[str, str], describer: Describer) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=TopicName(topic.name),
        topic_id=topic.topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=i32(len(topic.partitions)),
        replication_factor=i16(len(topic.partitions[0].replicas)),
        configs=tuple(
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.config_source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in describer.topic_with(overrides)
        ),
    )


def _not_created(name: TopicName, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, topic_id=None, error_code=error.code, error_message=str(error), configs=())


async def delete_topics(broker: Broker, request: DeleteTopicsRequest, caller: Caller) -> DeleteTopicsResponse:
    """Remove topics."""
    if not broker.settings.flag("delete.topic.enable"):
        disabled = TopicDeletionDisabled("Topic deletion is disabled.")
        return _deleted([(state.name, state.topic_id, disabled) for state in request.topics])
    times = Counter((state.name, state.topic_id) for state in request.topics)
    results: list[tuple[str | None, UUID | None, ApiError | None]] = []
    chosen: dict[str, UUID] = {}
    by_id: dict[str, UUID] = {}
    for state in dict.fromkeys(request.topics):
        try:
            name, topic_id = _find(broker, state, times[state.name, state.topic_id])
            if name in chosen:
                raise InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            chosen[name] = topic_id
            if state.topic_id is not None:
                by_id[name] = topic_id
        except ApiError as error:
            results.append((state.name, state.topic_id, error))
    outcomes = await _each(broker.controller.delete_topics(list(chosen), by_id), chosen) if chosen else {}
    for name, outcome in outcomes.items():
        if isinstance(outcome, ApiError):
            results.append((name, chosen[name], outcome))
        else:
            results.append((name, outcome.topic_id, None))
            logger.info("deleted topic %s for %s", name, caller.client_id)
    return _deleted(results)


def _find(broker: Broker, state: DeleteTopicState, times: int) -> tuple[str, UUID]:
    """The topic that a request means."""
    name, topic_id = state.name, state.topic_id
    if name is not None and topic_id is not None:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if name is not None:
        if times > 1:
            raise InvalidRequest("Duplicate topic name.")
        topic = broker.metadata.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    elif topic_id is not None:
        if times > 1:
            raise InvalidRequest("Duplicate topic id.")
        topic = broker.metadata.topic_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId("This server does not host this topic ID.")
    else:
        raise InvalidRequest("Neither topic name nor id were specified.")
    return topic.name, topic.topic_id


def _deleted(results: list[tuple[str | None, UUID | None, ApiError | None]]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            DeletableTopicResult(
                name=None if name is None else TopicName(name),
                topic_id=topic_id,
                error_code=ErrorCode.none if error is None else error.code,
                error_message=None if error is None else str(error),
            )
            for name, topic_id, error in results
        ),
    )


async def create_partitions(
    broker: Broker, request: CreatePartitionsRequest, caller: Caller
) -> CreatePartitionsResponse:
    """Give topics more partitions."""
    times = Counter(topic.name for topic in request.topics)
    wanted = [
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
        if times[topic.name] == 1 and topic.name not in INTERNAL_TOPICS
    ]
    outcomes: dict[str, TopicImage | ApiError] = {
        name: InvalidRequest(f"The partitions of {name} cannot become more: what is in which depends on their number.")
        for name in times
        if name in INTERNAL_TOPICS
    }
    outcomes |= {name: InvalidRequest("Duplicate topic name.") for name, count in times.items() if count > 1}
    if wanted:
        extending = broker.controller.create_partitions(wanted, validate_only=request.validate_only)
        outcomes |= await _each(extending, [topic.name for topic in wanted])
        await broker.replicas.settled()
    for name, outcome in outcomes.items():
        if not isinstance(outcome, ApiError) and not request.validate_only:
            logger.info("topic %s has %d partitions now, for %s", name, len(outcome.partitions), caller.client_id)
    return CreatePartitionsResponse(
        throttle_time=NO_THROTTLE, results=tuple(_extended(name, outcomes[name]) for name in times)
    )


def _extended(name: TopicName, outcome: TopicImage | ApiError) -> CreatePartitionsTopicResult:
    error = outcome if isinstance(outcome, ApiError) else None
    return CreatePartitionsTopicResult(
        name=name,
        error_code=ErrorCode.none if error is None else error.code,
        error_message=None if error is None else str(error),
    )
