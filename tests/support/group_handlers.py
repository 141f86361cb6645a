"""Groups asked through their handlers, over real logs, without sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.list_groups.v5.request import ListGroupsRequest

from barnabas.broker.coordinators import internal_topics
from barnabas.broker.handlers import group_admin, group_offsets, groups
from barnabas.broker.serving.answers import Later
from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import CONSUMER_OFFSETS
from barnabas.protocol.coordinator_records import ClassicProtocol
from barnabas.protocol.messages.groups.join_group import JoinGroupRequest
from barnabas.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.wire.conversion import zero
from tests.support.images import CALLER
from tests.support.parts import make_topic, running_parts
from tests.support.producing import lead_anew

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from uuid import UUID

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.groups.coordinator import GroupCoordinator

PROPERTIES = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}


@asynccontextmanager
async def coordinating(path: Path, **properties: str) -> AsyncIterator[BrokerContext]:
    """A broker with topic `t` of two partitions, ready to coordinate."""
    settings = PROPERTIES | {name.replace("_", "."): text for name, text in properties.items()}
    async with running_parts(path, settings) as broker:
        await make_topic(broker, "t", 2)
        await internal_topics.make(broker, CONSUMER_OFFSETS)
        await broker.groups.runtime.loaded()
        yield broker


async def answer(result: Any) -> Any:
    if isinstance(result, Later):
        result = result.future()
    return await asyncio.wait_for(result, 30) if asyncio.isfuture(result) or asyncio.iscoroutine(result) else result


async def reload(broker: BrokerContext) -> None:
    """Drop every coordinator and build it again from its log."""
    lead_anew(broker, CONSUMER_OFFSETS)
    await broker.groups.runtime.loaded()


def fill_groups(broker: BrokerContext, count: int) -> GroupCoordinator:
    shard = next(broker.groups.runtime.shards())
    assert shard.machine is not None
    for number in range(count):
        shard.machine.table.groups[f"group-{number}"] = ClassicGroup(f"group-{number}")
    return shard.machine


def join_request(group: str, member_id: str = "") -> JoinGroupRequest:
    protocol = ClassicProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff")
    request = zero(
        JoinGroupRequest,
        group_id=group,
        member_id=member_id,
        session_timeout=timedelta(seconds=10),
        rebalance_timeout=timedelta(seconds=10),
        protocol_type="consumer",
        protocols=(protocol,),
    )
    return cast("JoinGroupRequest", request)


async def joined(broker: BrokerContext, group: str) -> tuple[str, int]:
    """A member that is alone in its group and has its assignment; its id and generation."""
    first = await answer(groups.join_group(broker, join_request(group), CALLER, 9))
    assert first.error_code is ErrorCode.member_id_required
    member = first.member_id
    second = await answer(groups.join_group(broker, join_request(group, member), CALLER, 9))
    assert second.error_code is ErrorCode.none
    assert second.leader == member
    synced = await answer(
        groups.sync_group(
            broker,
            zero(
                SyncGroupRequest,
                group_id=group,
                member_id=member,
                generation_id=second.generation_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=(SyncGroupRequestAssignment(member_id=member, assignment=b"all of it"),),
            ),
            CALLER,
            5,
        )
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"all of it")
    return member, second.generation_id


async def heartbeat(broker: BrokerContext, group: str, member: str, generation: int) -> ErrorCode:
    request = zero(HeartbeatRequest, group_id=group, member_id=member, generation_id=generation)
    code: ErrorCode = (await answer(groups.heartbeat(broker, request, CALLER, 4))).error_code
    return code


async def commit(
    broker: BrokerContext,
    group: str,
    offsets: dict[int, int],
    *,
    topic: str = "t",
    topic_id: UUID | None = None,
    member: str = "",
    generation: int = -1,
    metadata: str = "",
    version: int = 9,
) -> dict[int, ErrorCode]:
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=(
            OffsetCommitRequestTopic(
                name=topic if topic_id is None else "",
                topic_id=topic_id,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in offsets.items()
                ),
            ),
        ),
    )
    response = await answer(group_offsets.offset_commit(broker, request, CALLER, version))
    return {part.partition_index: part.error_code for topic in response.topics for part in topic.partitions}


async def committed(broker: BrokerContext, group: str, version: int = 9) -> dict[tuple[str, int], int]:
    """Everything that the group has committed."""
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
    response = await answer(group_offsets.offset_fetch(broker, request, CALLER, version))
    (only,) = response.groups
    assert only.error_code is ErrorCode.none
    return {
        (topic.name, part.partition_index): part.committed_offset for topic in only.topics for part in topic.partitions
    }


async def listed(broker: BrokerContext, **filters: Any) -> dict[str, tuple[str, str]]:
    response = await answer(group_admin.list_groups(broker, zero(ListGroupsRequest, **filters), CALLER))
    assert response.error_code is ErrorCode.none
    return {group.group_id: (group.group_type, group.group_state) for group in response.groups}
