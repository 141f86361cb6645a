"""OffsetCommit v2–10, OffsetFetch v1–10 and OffsetDelete v0: how far groups have read.

OffsetCommit
- Topics by name, from v10 on by id. One that does not exist is refused with UNKNOWN_TOPIC_OR_PARTITION (by id:
  UNKNOWN_TOPIC_ID); the others are committed, in one batch.
- v2–4 may ask for a retention time of their own.

OffsetFetch
- From v8 on for many groups, each with its own error; of given topics, or (null) of all that a group has. v10: topics
  by id, and those whose id nobody knows are left out.
- v9+: a member may say who it is, and is refused if it is behind. v7+: offsets that a transaction is about to change
  can be waited for (UNSTABLE_OFFSET_COMMIT).

OffsetDelete
- Offsets of topics that nobody in the group subscribes to.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.broker.throttle import NO_THROTTLE
from barnabas.model.errors import ErrorCode
from barnabas.protocol.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
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

    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
    from kio.schema.offset_delete.v0.response import OffsetDeleteResponse

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.model.errors import ApiError

BY_ID = 10
"""From this version on topics are named by their ids."""


# OffsetCommit


def offset_commit(broker: Broker, request: OffsetCommitRequest, caller: Caller, version: int) -> Any:
    """Store offsets; the request is completed by names and ids of topics, and keeps only what there is."""
    image = broker.metadata.image
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
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
    if not known:
        return OffsetCommitResponse(topics=_merged(refused))
    request.topics = tuple(known)
    answer = broker.groups.ask(
        request.group_id,
        lambda machine, call, now_ms: machine.offset_commit(request, call, now_ms),
        caller,
        version,
        lambda error: _commit_failed(request, error),
        may_be_empty=True,
    )
    if not refused:
        return answer
    return _then(answer, lambda response: replace(response, topics=_merged([*refused, *response.topics])))


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


def _merged(topics: Sequence[OffsetCommitResponseTopic]) -> tuple[OffsetCommitResponseTopic, ...]:
    """Each topic once, with all its partitions."""
    merged: dict[object, OffsetCommitResponseTopic] = {}
    for topic in topics:
        key = topic.topic_id or topic.name
        known = merged.get(key)
        merged[key] = topic if known is None else replace(known, partitions=(*known.partitions, *topic.partitions))
    return tuple(merged.values())


# OffsetFetch


def offset_fetch(broker: Broker, request: OffsetFetchRequest, caller: Caller, version: int) -> Any:
    """Tell offsets."""
    answers = [_fetch_group(broker, group, request.require_stable, caller, version) for group in request.groups]
    if any(asyncio.isfuture(answer) for answer in answers):
        return _gathered(answers)
    return OffsetFetchResponse(groups=tuple(answers))


async def _gathered(answers: list[Any]) -> OffsetFetchResponse:
    groups = [await answer if asyncio.isfuture(answer) else answer for answer in answers]
    return OffsetFetchResponse(groups=tuple(groups))


def _fetch_group(
    broker: Broker, group: OffsetFetchRequestGroup, require_stable: bool, caller: Caller, version: int
) -> Any:
    """One group's offsets, or a future of them."""
    image = broker.metadata.image
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
            topics = (*_with_ids(image, response.topics), *refused)
            return replace(response, topics=topics)
        return response

    return _then(answer, complete)


def _with_ids(
    image: ClusterImage, topics: Sequence[OffsetFetchResponseTopics]
) -> tuple[OffsetFetchResponseTopics, ...]:
    """Topics with their ids; those that have none any more cannot be told."""
    complete = []
    for topic in topics:
        found = image.topic(topic.name)
        topic_id = topic.topic_id or (None if found is None else found.topic_id)
        if topic_id is not None:
            complete.append(replace(topic, topic_id=topic_id))
    return tuple(complete)


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


def offset_delete(broker: Broker, request: OffsetDeleteRequest, caller: Caller, version: int) -> Any:
    """Forget offsets."""
    from kio.schema.offset_delete.v0.response import (
        OffsetDeleteResponse,
        OffsetDeleteResponsePartition,
        OffsetDeleteResponseTopic,
    )

    image = broker.metadata.image
    known, refused = [], []
    for topic in request.topics:
        missing = [each for each in topic.partitions if image.partition(topic.name, each.partition_index) is None]
        present = tuple(each for each in topic.partitions if each not in missing)
        if present:
            known.append(replace(topic, partitions=present))
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
    asked = replace(request, topics=tuple(known))
    answer = broker.groups.ask(
        request.group_id,
        lambda machine, call, now_ms: machine.offset_delete(asked, call, now_ms),
        caller,
        version,
        lambda error: OffsetDeleteResponse(error_code=error.code, throttle_time=NO_THROTTLE, topics=()),
    )

    def complete(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code is not ErrorCode.none or not refused:
            return response
        merged = {each.name: each for each in refused}
        for each in response.topics:
            before = merged.get(each.name)
            partitions = each.partitions if before is None else (*before.partitions, *each.partitions)
            merged[each.name] = replace(each, partitions=partitions)
        return replace(response, topics=tuple(merged.values()))

    return _then(answer, complete)


def _then(answer: Any, complete: Callable[[Any], Any]) -> Any:
    """`complete` of an answer, now or when it is there."""
    if not asyncio.isfuture(answer):
        return complete(answer)
    completed = asyncio.get_running_loop().create_future()

    def done(future: asyncio.Future[Any]) -> None:
        if not completed.done():  # nobody may wait any more
            completed.set_result(complete(future.result()))

    answer.add_done_callback(done)
    return completed
