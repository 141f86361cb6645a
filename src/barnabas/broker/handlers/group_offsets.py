"""OffsetCommit v2–10, OffsetFetch v1–10 and OffsetDelete v0: how far groups have read.

OffsetCommit
- Topics by name, from v10 on by id. One that does not exist is refused with UNKNOWN_TOPIC_OR_PARTITION (by id:
  UNKNOWN_TOPIC_ID); the others are committed, in one batch, or where they are more than a thousand in several.
- v2–4 may ask for a retention time of their own.

OffsetFetch
- From v8 on for many groups, each with its own error; of given topics, or (null) of all that a group has. v10: topics
  by id, and those with an unknown id have UNKNOWN_TOPIC_ID. A group that is named twice alike is answered once.
- v9+: a member may say who it is, and is refused if it is behind. v7+: offsets that a transaction is about to change
  can be waited for (UNSTABLE_OFFSET_COMMIT).

OffsetDelete
- Offsets of topics that nobody in the group subscribes to.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.serving.answers import wait_for
from barnabas.broker.serving.long_answers import DECISION, PART, divided, merged
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.model.errors import ErrorCode
from barnabas.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest, OffsetDeleteRequestPartition
    from kio.schema.offset_delete.v0.response import OffsetDeleteResponse

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.answers import HandlerResult
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.machines.groups.offsets.rules import GroupOffsets
    from barnabas.model.errors import ApiError

    Copied = GroupOffsets | OffsetFetchResponseGroup
    """The offsets of a group, or a response with an error."""

Response = TypeVar("Response")

BY_ID = 10
"""From this version on topics are named by their ids."""


# OffsetCommit


def offset_commit(
    broker: BrokerContext, request: OffsetCommitRequest, caller: Caller, version: int
) -> HandlerResult[OffsetCommitResponse]:
    """Store offsets; the request is completed by names and ids of topics, and keeps only what there is."""
    image = broker.metadata.image
    if not 0 < _complete(request, image, version) <= DECISION:
        return _commit_known(broker, request, image, caller, version)
    return broker.groups.ask_at_once(
        request.group_id,
        lambda machine, call, now_ms: machine.offset_commit(request, call, now_ms),
        caller,
        version,
        lambda error: _commit_failed(request, error),
        may_be_empty=True,
    )


def _complete(request: OffsetCommitRequest, image: ClusterImage, version: int) -> int:
    """Give topics their names and ids; how many offsets there are, or 0 if one is of a partition that there is not."""
    offsets = 0
    for topic in request.topics:
        if version >= BY_ID and topic.topic_id is not None:
            found = image.topic_by_id(topic.topic_id)
        else:
            found = image.topics.get(topic.name)
        if found is None:
            return 0
        topic.topic_id, topic.name = found.topic_id, found.name
        count, partitions = len(found.partitions), topic.partitions
        for partition in partitions:
            if not 0 <= partition.partition_index < count:
                return 0
        offsets += len(partitions)
    return offsets


def _commit_known(
    broker: BrokerContext, request: OffsetCommitRequest, image: ClusterImage, caller: Caller, version: int
) -> HandlerResult[OffsetCommitResponse]:
    """Store the offsets of those partitions that there are, in parts if they are many."""
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    offsets = 0
    for topic in request.topics:
        found = image.topic_by_id(topic.topic_id) if version >= BY_ID and topic.topic_id else image.topic(topic.name)
        if found is None:
            unknown = ErrorCode.unknown_topic_id if version >= BY_ID else ErrorCode.unknown_topic_or_partition
            refused.append(_commit_refused(topic, unknown))
            continue
        topic.topic_id, topic.name = found.topic_id, found.name
        count, partitions = len(found.partitions), topic.partitions
        present = tuple([each for each in partitions if 0 <= each.partition_index < count])
        if len(present) < len(partitions):
            missing = tuple(each for each in partitions if not 0 <= each.partition_index < count)
            refused.append(_commit_refused(replace(topic, partitions=missing), ErrorCode.unknown_topic_or_partition))
            if not present:
                continue
            topic.partitions = present
        known.append(topic)
        offsets += len(present)
    if not known:
        return OffsetCommitResponse(topics=merged(refused, _commit_key))
    request.topics = tuple(known)
    if offsets > DECISION:
        return _commit_in_parts(broker, request, refused, caller, version)
    answer = _commit(broker, request, caller, version)
    return _then(answer, lambda response: replace(response, topics=merged([*refused, *response.topics], _commit_key)))


async def _commit_in_parts(
    broker: BrokerContext,
    request: OffsetCommitRequest,
    refused: list[OffsetCommitResponseTopic],
    caller: Caller,
    version: int,
) -> OffsetCommitResponse:
    """Store some offsets in each turn of the event loop. Each of them has its own result."""
    parts = (replace(request, topics=topics) for topics in divided(request.topics))
    answers = await broker.long_answers.each(
        parts, lambda part: _commit(broker, part, caller, version), lambda _: DECISION
    )
    topics = refused
    for answer in answers:
        topics += (await wait_for(answer)).topics
    return OffsetCommitResponse(topics=merged(topics, _commit_key))


def _commit(
    broker: BrokerContext, request: OffsetCommitRequest, caller: Caller, version: int
) -> OffsetCommitResponse | Future[OffsetCommitResponse]:
    return broker.groups.ask(
        request.group_id,
        lambda machine, call, now_ms: machine.offset_commit(request, call, now_ms),
        caller,
        version,
        lambda error: _commit_failed(request, error),
        may_be_empty=True,
    )


def _commit_refused(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        topic_id=topic.topic_id,
        name=topic.name,
        partitions=tuple(
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ),
    )


def _commit_failed(request: OffsetCommitRequest, error: ApiError) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=tuple(_commit_refused(topic, error.code) for topic in request.topics))


def _commit_key(topic: OffsetCommitResponseTopic) -> object:
    return topic.topic_id or topic.name


# OffsetFetch


def offset_fetch(
    broker: BrokerContext, request: OffsetFetchRequest, caller: Caller, version: int
) -> HandlerResult[OffsetFetchResponse]:
    """Fetch committed offsets; a coroutine where they may be many."""
    if len(request.groups) > 1:
        request = replace(request, groups=tuple(dict.fromkeys(request.groups)))
    if len(request.groups) > PART or any(map(_is_long, request.groups)):
        return _fetch_in_parts(broker, request, caller, version)
    answers = [_fetch_group(broker, group, request.require_stable, caller, version) for group in request.groups]
    given = tuple([answer for answer in answers if not isinstance(answer, Future)])
    return OffsetFetchResponse(groups=given) if len(given) == len(answers) else _gathered(answers)


async def _gathered(
    answers: Sequence[OffsetFetchResponseGroup | Future[OffsetFetchResponseGroup]],
) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=tuple([await wait_for(answer) for answer in answers]))


def _is_long(group: OffsetFetchRequestGroup) -> bool:
    """Whether a group's answer may be long."""
    topics = group.topics
    return topics is None or len(topics) > PART or sum(len(topic.partition_indexes) for topic in topics) > PART


async def _fetch_in_parts(
    broker: BrokerContext, request: OffsetFetchRequest, caller: Caller, version: int
) -> OffsetFetchResponse:
    """Copy each group's offsets at once, and make the response a part at a time."""
    groups: list[OffsetFetchResponseGroup] = []
    for start in range(0, len(request.groups), PART):
        some = request.groups[start : start + PART]
        copying = await broker.long_answers.each(
            some, lambda group: _copy_group(broker, group, request.require_stable, caller, version), lambda _: PART // 4
        )
        for group, (asked, refused, copied) in zip(some, copying, strict=True):
            offsets: Copied = await wait_for(copied)
            groups.append(await _answer_group_in_parts(broker, group, asked, refused, offsets, version))
    return OffsetFetchResponse(groups=tuple(groups))


def _copy_group(
    broker: BrokerContext, group: OffsetFetchRequestGroup, require_stable: bool, caller: Caller, version: int
) -> tuple[OffsetFetchRequestGroup, list[OffsetFetchResponseTopics], Copied | Future[Copied]]:
    """The group with its topics completed, those that are not known, and the offsets, or a future of them."""
    asked, refused = _completed(broker.metadata.image, group, version)
    copied: Copied | Future[Copied] = broker.groups.ask(
        group.group_id,
        lambda machine, call, now_ms: machine.copy_offsets(asked, require_stable, call, now_ms),
        caller,
        version,
        lambda error: _fetch_failed(group, error, version),
        may_be_empty=True,
        only_reads=True,
    )
    return asked, refused, copied


async def _answer_group_in_parts(
    broker: BrokerContext,
    group: OffsetFetchRequestGroup,
    asked: OffsetFetchRequestGroup,
    refused: Sequence[OffsetFetchResponseTopics],
    offsets: Copied,
    version: int,
) -> OffsetFetchResponseGroup:
    if isinstance(offsets, OffsetFetchResponseGroup):
        return _fetch_error(group, offsets.error_code, version)
    each = broker.long_answers.each
    topics = await each(
        offsets.requested_topics(asked), offsets.topic_response, lambda topic: len(topic.partition_indexes)
    )
    if version >= BY_ID:
        image = broker.metadata.image
        known = await each(topics, lambda topic: _with_id(image, topic))
        topics = [*(topic for topic in known if topic is not None), *refused]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=tuple(topics))


def _completed(
    image: ClusterImage, group: OffsetFetchRequestGroup, version: int
) -> tuple[OffsetFetchRequestGroup, list[OffsetFetchResponseTopics]]:
    """What is asked for, with names and ids of topics, and the answers for topics that are not known."""
    refused: list[OffsetFetchResponseTopics] = []
    asked = group
    if version >= BY_ID and group.topics is not None:
        known: list[OffsetFetchRequestTopics] = []
        for topic in group.topics:
            found = None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
            if found is None:
                refused.append(_fetch_refused(topic, ErrorCode.unknown_topic_id))
            else:
                known.append(replace(topic, name=found.name))
        asked = replace(group, topics=tuple(known))
    elif group.topics is not None:  # offsets of a topic that had this name before are not those of this one
        asked = replace(
            group,
            topics=tuple(
                topic if (found := image.topic(topic.name)) is None else replace(topic, topic_id=found.topic_id)
                for topic in group.topics
            ),
        )
    return asked, refused


def _fetch_group(
    broker: BrokerContext, group: OffsetFetchRequestGroup, require_stable: bool, caller: Caller, version: int
) -> OffsetFetchResponseGroup | Future[OffsetFetchResponseGroup]:
    """One group's offsets, or a future of them."""
    image = broker.metadata.image
    asked, refused = _completed(image, group, version)
    answer = broker.groups.ask(
        group.group_id,
        lambda machine, call, now_ms: machine.offset_fetch(asked, require_stable, call, now_ms),
        caller,
        version,
        lambda error: _fetch_failed(group, error, version),
        may_be_empty=True,
        only_reads=True,
    )

    def complete(response: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        if response.error_code is not ErrorCode.none:
            return _fetch_error(group, response.error_code, version)
        if version >= BY_ID:
            known = (_with_id(image, topic) for topic in response.topics)
            return replace(response, topics=(*(topic for topic in known if topic is not None), *refused))
        return response

    return _then(answer, complete)


def _with_id(image: ClusterImage, topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopics | None:
    """A topic with its id; one that has none any more cannot be told."""
    found = image.topic(topic.name)
    topic_id = topic.topic_id or (None if found is None else found.topic_id)
    return None if topic_id is None else replace(topic, topic_id=topic_id)


def _fetch_refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        name=topic.name,
        partitions=tuple(
            OffsetFetchResponsePartitions(partition_index=index, error_code=code) for index in topic.partition_indexes
        ),
    )


def _fetch_failed(group: OffsetFetchRequestGroup, error: ApiError, version: int) -> OffsetFetchResponseGroup:
    return _fetch_error(group, error.code, version)


def _fetch_error(group: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """A group's error; version 1 has no place for it but with each partition."""
    topics = () if version >= 2 else tuple(_fetch_refused(topic, code) for topic in group.topics or ())
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=code)


# OffsetDelete


async def offset_delete(
    broker: BrokerContext, request: OffsetDeleteRequest, caller: Caller, version: int
) -> OffsetDeleteResponse:
    """Delete committed offsets, some in each turn of the event loop."""
    from kio.schema.offset_delete.v0.response import (
        OffsetDeleteResponse,
        OffsetDeleteResponsePartition,
        OffsetDeleteResponseTopic,
    )

    image = broker.metadata.image
    known, refused = [], []
    for topic in request.topics:
        missing: list[OffsetDeleteRequestPartition] = []
        present: list[OffsetDeleteRequestPartition] = []
        for each in topic.partitions:
            (missing if image.partition(topic.name, each.partition_index) is None else present).append(each)
        if present:
            known.append(replace(topic, partitions=tuple(present)))
        if missing:
            refused.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetDeleteResponsePartition(
                            partition_index=each.partition_index, error_code=ErrorCode.unknown_topic_or_partition
                        )
                        for each in missing
                    ),
                )
            )

    def ask(asked: OffsetDeleteRequest) -> OffsetDeleteResponse | Future[OffsetDeleteResponse]:
        return broker.groups.ask(
            request.group_id,
            lambda machine, call, now_ms: machine.offset_delete(asked, call, now_ms),
            caller,
            version,
            lambda error: OffsetDeleteResponse(error_code=error.code, throttle_time=NO_THROTTLE, topics=()),
        )

    parts = [replace(request, topics=topics) for topics in divided(known)] or [replace(request, topics=())]
    answers = await broker.long_answers.each(parts, ask, lambda _: DECISION)
    deleted = refused
    for answer in answers:
        response = await wait_for(answer)
        if response.error_code is not ErrorCode.none:
            return response
        deleted += response.topics
    return OffsetDeleteResponse(
        error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=merged(deleted, lambda topic: topic.name)
    )


def _then(answer: Response | Future[Response], complete: Callable[[Response], Response]) -> Response | Future[Response]:
    """`complete` of an answer, now or when it is there."""
    if not isinstance(answer, Future):
        return complete(answer)
    completed: Future[Response] = get_running_loop().create_future()

    def done(future: Future[Response]) -> None:
        if not completed.done():  # nobody may wait any more
            completed.set_result(complete(future.result()))

    answer.add_done_callback(done)
    return completed
