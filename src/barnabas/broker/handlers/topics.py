"""CreateTopics v2–7, DeleteTopics v1–6 and CreatePartitions v0–3: topics are created, deleted and extended.

CreateTopics
- With counts (-1: num.partitions, default.replication.factor) or with an assignment of every partition, and with
  configuration overrides. Each topic is created or refused on its own; one named twice is refused.
- validate_only changes nothing. v5+: the response has the counts and the whole configuration; v7: the topic's id.

DeleteTopics
- By name, or by id (v6). One given twice, by both, or by neither is an INVALID_REQUEST.
- delete.topic.enable=false refuses everything with TOPIC_DELETION_DISABLED (before v3 INVALID_REQUEST).

CreatePartitions
- Up to a count, placed by the controller or by an assignment of the new partitions. validate_only as above.
- Internal topics keep their number of partitions: groups are found by it, and would lose their offsets. (Apache Kafka
  allows more, and looks at another partition for old offsets after its next start.)

A response is sent when the change is written and applied by this broker, so the timeouts in requests are not used.
With a quota of controller mutations, each partition that is created or deleted counts (KIP-599). What there are no
tokens for is refused with THROTTLING_QUOTA_EXCEEDED, from CreateTopics v6, DeleteTopics v5 and CreatePartitions v3 on;
older clients are served, and have to wait afterwards. What is refused for another reason does not count.

Not implemented: topic policies.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.create_topics.v7.response import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from barnabas.broker.serving.config_entries import ENTRIES, Describer
from barnabas.broker.serving.long_answers import portions
from barnabas.machines.controller.requests import NewPartitions, TopicToCreate
from barnabas.machines.controller.topics import MAX_PARTITIONS_PER_REQUEST, TopicDefaults, requested_partitions
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    InvalidRequest,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.security.metering import MutationQuota
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.controller.image import TopicImage

logger = logging.getLogger(__name__)

T = TypeVar("T", TopicToCreate, NewPartitions)


async def create_topics(
    broker: BrokerContext, request: CreateTopicsRequest, caller: Caller, version: int
) -> CreateTopicsResponse:
    """Create topics."""
    quota = broker.quotas.mutations(caller, strict=version >= 6)
    topics = await broker.long_answers.each(
        request.topics, lambda topic: _new_topic(broker, topic), lambda topic: 5 + 5 * len(topic.configs)
    )
    defaults = TopicDefaults(partitions=broker.settings.number("num.partitions"))
    counts = [requested_partitions(topic, defaults) for topic in topics]
    outcomes: dict[str, TopicImage | ApiError] = {}
    for some in _decisions(topics, counts, validate_only=request.validate_only):
        outcomes |= await _within(
            quota,
            {topic.name: requested_partitions(topic, defaults) for topic in some},
            some,
            lambda these, only: broker.controller.create_topics(these, validate_only=only),
            validate_only=request.validate_only,
        )
        await broker.replicas.settled()
    overrides = {topic.name: topic.configs for topic in topics}
    describer = Describer(broker, with_synonyms=False, with_documentation=False)

    def creation_result(name: TopicName) -> CreatableTopicResult:
        outcome = outcomes[name]
        if isinstance(outcome, ApiError):
            return _not_created(name, outcome)
        if not request.validate_only:
            logger.info(
                "Created topic %s with %d partitions, as client %s asked.",
                name,
                len(outcome.partitions),
                caller.client_id,
            )
        return _created(outcome, overrides[name], describer)

    results = await broker.long_answers.each(
        dict.fromkeys(topic.name for topic in request.topics), creation_result, lambda _: ENTRIES
    )
    return CreateTopicsResponse(throttle_time=quota.throttle_time, topics=tuple(results))


async def _within(
    quota: MutationQuota,
    partitions: Mapping[str, int],
    wanted: Sequence[T],
    ask: Callable[[Sequence[T], bool], Awaitable[Mapping[str, TopicImage | ApiError]]],
    *,
    validate_only: bool,
) -> Mapping[str, TopicImage | ApiError]:
    """Have the controller do what the quota allows; the rest is only validated, and refused.

    `partitions` says how many each topic would have created, `ask` asks the controller, to do it or to validate it.
    """
    refused = {name: wait for name in partitions if (wait := quota.take(partitions[name]))}
    allowed = [one for one in wanted if one.name not in refused]
    outcomes: dict[str, TopicImage | ApiError] = {}
    if allowed:
        outcomes |= await _outcomes(ask(allowed, validate_only), [one.name for one in allowed])
    quota.give_back(sum(partitions[name] for name, outcome in outcomes.items() if isinstance(outcome, ApiError)))
    if refused:
        validated = await _outcomes(ask([one for one in wanted if one.name in refused], True), refused)
        for name, outcome in validated.items():
            outcomes[name] = outcome if isinstance(outcome, ApiError) else quota.refusal(refused[name])
    return outcomes


async def _outcomes(
    request: Awaitable[Mapping[str, TopicImage | ApiError]], names: Iterable[str]
) -> Mapping[str, TopicImage | ApiError]:
    """The controller's answer for each topic; if it refuses the whole request, its error for each."""
    try:
        return await request
    except ApiError as error:
        return dict.fromkeys(names, error)


def _decisions(wanted: Sequence[T], partitions: Iterable[int], *, validate_only: bool) -> Iterable[Sequence[T]]:
    """What the controller is asked at once: all, where its answer for one topic depends on all, or some at a time."""
    has_repeated = len({topic.name for topic in wanted}) < len(wanted)
    if validate_only or has_repeated or sum(partitions) > MAX_PARTITIONS_PER_REQUEST:
        return [wanted] if wanted else []
    return portions(wanted)


def _new_topic(broker: BrokerContext, topic: CreatableTopic) -> TopicToCreate:
    """What the controller is asked for. Its rules check it (`machines/controller/topics`), but for the configs."""
    configs = {config.name: config.value for config in topic.configs}
    config_error = None
    try:
        broker.settings.check_topic(configs)
    except ApiError as error:
        config_error = error
    return TopicToCreate(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {name: text for name, text in configs.items() if text is not None},
        config_error,
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


async def delete_topics(
    broker: BrokerContext, request: DeleteTopicsRequest, caller: Caller, version: int
) -> DeleteTopicsResponse:
    """Delete topics."""
    quota = broker.quotas.mutations(caller, strict=version >= 5)
    if not broker.settings.flag("delete.topic.enable"):
        disabled = TopicDeletionDisabled("Topic deletion is disabled.")
        return _deleted([(state.name, state.topic_id, disabled) for state in request.topics], quota)
    times = Counter((state.name, state.topic_id) for state in request.topics)
    results: list[tuple[str | None, UUID | None, ApiError | None]] = []
    chosen: dict[str, UUID] = {}
    by_id: dict[str, UUID] = {}
    for state in dict.fromkeys(request.topics):
        try:
            name, topic_id = _find(broker, state, times[state.name, state.topic_id])
            if name in chosen:
                raise InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            if wait := quota.take(len(broker.metadata.image.topics[name].partitions)):
                raise quota.refusal(wait)
            chosen[name] = topic_id
            if state.topic_id is not None:
                by_id[name] = topic_id
        except ApiError as error:
            results.append((state.name, state.topic_id, error))
    outcomes: dict[str, TopicImage | ApiError] = {}
    for some in portions(list(chosen)):
        outcomes |= await _outcomes(broker.controller.delete_topics(some, by_id), some)
    for name, outcome in outcomes.items():
        if isinstance(outcome, ApiError):
            results.append((name, chosen[name], outcome))
        else:
            results.append((name, outcome.topic_id, None))
            logger.info("Deleted topic %s, as client %s asked.", name, caller.client_id)
    return _deleted(results, quota)


def _find(broker: BrokerContext, state: DeleteTopicState, times: int) -> tuple[str, UUID]:
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


def _deleted(
    results: list[tuple[str | None, UUID | None, ApiError | None]], quota: MutationQuota
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time=quota.throttle_time,
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
    broker: BrokerContext, request: CreatePartitionsRequest, caller: Caller, version: int
) -> CreatePartitionsResponse:
    """Give topics more partitions."""
    quota = broker.quotas.mutations(caller, strict=version >= 3)
    wanted = [
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]
    names = list(dict.fromkeys(topic.name for topic in request.topics))
    outcomes: dict[str, TopicImage | ApiError] = {}
    topics = broker.metadata.image.topics
    counts = [topic.count - len(topics[topic.name].partitions) for topic in wanted if topic.name in topics]
    for more in _decisions(wanted, [count for count in counts if count > 0], validate_only=request.validate_only):
        outcomes |= await _within(
            quota,
            {topic.name: max(0, topic.count - _present(topics, topic.name)) for topic in more},
            more,
            lambda these, only: broker.controller.create_partitions(these, validate_only=only),
            validate_only=request.validate_only,
        )
        await broker.replicas.settled()
    for name, outcome in outcomes.items():
        if not isinstance(outcome, ApiError) and not request.validate_only:
            logger.info(
                "Extended topic %s to %d partitions, as client %s asked.",
                name,
                len(outcome.partitions),
                caller.client_id,
            )
    return CreatePartitionsResponse(
        throttle_time=quota.throttle_time, results=tuple(_extended(name, outcomes[name]) for name in names)
    )


def _present(topics: Mapping[str, TopicImage], name: str) -> int:
    return len(topics[name].partitions) if name in topics else 0


def _extended(name: TopicName, outcome: TopicImage | ApiError) -> CreatePartitionsTopicResult:
    error = outcome if isinstance(outcome, ApiError) else None
    return CreatePartitionsTopicResult(
        name=name,
        error_code=ErrorCode.none if error is None else error.code,
        error_message=None if error is None else str(error),
    )
