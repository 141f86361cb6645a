"""Share groups through their handlers, over real logs: members, states that are made and deleted, and offsets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.alter_share_group_offsets.v0 import request as altering
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_share_group_offsets.v0 import request as deleting
from kio.schema.describe_share_group_offsets.v1 import request as describing
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

from barnabas.broker.handlers import group_admin, groups, share_offsets
from barnabas.machines.controller.requests import LevelChange, UpdateFeatures
from barnabas.model.errors import ErrorCode, GroupIdNotFound, NonEmptyGroup, UnsupportedVersion
from barnabas.protocol.wire.conversion import zero
from tests.support.group_handlers import answer, coordinating, listed, reload
from tests.support.images import CALLER
from tests.support.share_groups import MemoryPersister

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from barnabas.broker.context import BrokerContext


@asynccontextmanager
async def sharing(path: Path) -> AsyncIterator[tuple[BrokerContext, MemoryPersister]]:
    """A broker with topic `t` of two partitions, and states in memory."""
    persister = MemoryPersister()
    async with coordinating(path, group_share_assignment_interval_ms="0") as broker:
        broker.groups.keep_states_by(lambda: persister)
        yield broker, persister


async def beat(broker: BrokerContext, epoch: int, **fields: Any) -> Any:
    request = zero(ShareGroupHeartbeatRequest, group_id="g", member_id="m", member_epoch=epoch, **fields)
    return await answer(groups.share_group_heartbeat(broker, request, CALLER, 1))


async def join(broker: BrokerContext) -> int:
    """Join, and go on until there are two partitions; the member's epoch."""
    latest = await beat(broker, 0, subscribed_topic_names=("t",))
    async with asyncio.timeout(30):
        while not latest.assignment or [len(each.partitions) for each in latest.assignment.topic_partitions] != [2]:
            await asyncio.sleep(0.005)
            latest = await beat(broker, latest.member_epoch)
    return int(latest.member_epoch)


async def delete_group(broker: BrokerContext) -> ErrorCode:
    request = DeleteGroupsRequest(groups_names=("g",))  # type: ignore[arg-type]  # kio's own type of text
    response = await group_admin.delete_groups(broker, request, CALLER)
    return response.results[0].error_code


async def offsets(broker: BrokerContext) -> dict[int, tuple[int, int]]:
    """Start offset and lag of all partitions of the group that have state."""
    group = describing.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)  # type: ignore[arg-type]
    request = describing.DescribeShareGroupOffsetsRequest(groups=(group,))
    (found,) = (await share_offsets.describe_share_group_offsets(broker, request, CALLER)).groups
    assert found.error_code is ErrorCode.none
    return {part.partition_index: (part.start_offset, part.lag) for topic in found.topics for part in topic.partitions}


async def alter(broker: BrokerContext, topic: str, starts: dict[int, int]) -> list[ErrorCode]:
    parts = tuple(
        zero(altering.AlterShareGroupOffsetsRequestPartition, partition_index=index, start_offset=offset)
        for index, offset in starts.items()
    )
    topics = (zero(altering.AlterShareGroupOffsetsRequestTopic, topic_name=topic, partitions=parts),)
    request = zero(altering.AlterShareGroupOffsetsRequest, group_id="g", topics=topics)
    response = await share_offsets.alter_share_group_offsets(broker, request, CALLER)
    return [part.error_code for topic in response.responses for part in topic.partitions]


async def delete_offsets(broker: BrokerContext, *names: str) -> list[ErrorCode]:
    topics = tuple(zero(deleting.DeleteShareGroupOffsetsRequestTopic, topic_name=name) for name in names)
    request = zero(deleting.DeleteShareGroupOffsetsRequest, group_id="g", topics=topics)
    response = await share_offsets.delete_share_group_offsets(broker, request, CALLER)
    return [topic.error_code for topic in response.responses]


async def test_a_member_gets_partitions_and_the_group_outlives_its_broker(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (broker, persister):
        epoch = await join(broker)
        assert {(group, partition) for group, _, partition in persister.states} == {("g", 0), ("g", 1)}
        assert (await listed(broker))["g"][0] == "share"
        await reload(broker)
        request = zero(ShareGroupDescribeRequest, group_ids=("g", "none"), include_authorized_operations=True)
        described = (await group_admin.share_group_describe(broker, request, CALLER)).groups
        assert [group.error_code for group in described] == [ErrorCode.none, ErrorCode.group_id_not_found]
        (member,) = described[0].members
        assert (member.member_epoch, member.assignment.topic_partitions[0].partitions) == (epoch, (0, 1))


async def test_states_that_cannot_be_made_are_made_later(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (broker, persister):
        persister.fails_with = ErrorCode.coordinator_not_available
        assert (await beat(broker, 0, subscribed_topic_names=("t",))).error_code is ErrorCode.none
        persister.fails_with = None
        await join(broker)


async def test_a_group_is_deleted_after_its_states_and_stays_if_they_do(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (broker, persister):
        await join(broker)
        assert await delete_group(broker) is ErrorCode.non_empty_group
        await beat(broker, -1)
        persister.fails_with = ErrorCode.network_exception
        assert await delete_group(broker) is ErrorCode.network_exception
        assert "g" in await listed(broker)
        persister.fails_with = None
        assert await delete_group(broker) is ErrorCode.none
        assert persister.states == {}
        assert "g" not in await listed(broker)
        assert await delete_group(broker) is ErrorCode.group_id_not_found


async def test_offsets_are_moved_looked_at_and_deleted(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (broker, persister):
        assert await offsets(broker) == {}
        assert await alter(broker, "t", {0: 0, 7: 1}) == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        assert await alter(broker, "none", {0: 0}) == [ErrorCode.unknown_topic_or_partition]
        assert await offsets(broker) == {0: (0, 0)}
        persister.fails_with = ErrorCode.coordinator_not_available
        assert await alter(broker, "t", {1: 0}) == [ErrorCode.coordinator_not_available]
        assert await delete_offsets(broker, "t") == [ErrorCode.coordinator_not_available]
        persister.fails_with = None
        assert await delete_offsets(broker, "t", "none") == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        assert await offsets(broker) == {}
        assert await delete_offsets(broker, "t") == [ErrorCode.unknown_topic_or_partition]


async def test_offsets_of_a_group_with_members_stay(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (broker, _):
        with pytest.raises(GroupIdNotFound):
            await delete_offsets(broker, "t")
        await join(broker)
        with pytest.raises(NonEmptyGroup):
            await alter(broker, "t", {0: 0})
        with pytest.raises(NonEmptyGroup):
            await delete_offsets(broker, "t")


async def test_a_state_that_nobody_has_begun_is_no_error(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (broker, persister):
        await join(broker)
        assert await offsets(broker) == {0: (-1, -1), 1: (-1, -1)}
        persister.states.clear()
        assert await offsets(broker) == {0: (-1, -1), 1: (-1, -1)}


async def test_states_are_kept_by_the_share_coordinator(tmp_path: Path) -> None:
    async with coordinating(
        tmp_path, group_share_assignment_interval_ms="0", share_coordinator_state_topic_num_partitions="2"
    ) as broker:
        await join(broker)
        assert await offsets(broker) == {0: (-1, -1), 1: (-1, -1)}
        await beat(broker, -1)
        assert await alter(broker, "t", {1: 0}) == [ErrorCode.none]
        assert await offsets(broker) == {0: (-1, -1), 1: (0, 0)}
        assert await delete_group(broker) is ErrorCode.none


async def test_share_groups_can_be_switched_off(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (broker, _):
        await broker.controller.decide(UpdateFeatures({"share.version": LevelChange(0, "downgrade")}))
        with pytest.raises(UnsupportedVersion, match=r"share\.version is 0"):
            await beat(broker, 0, subscribed_topic_names=("t",))
        with pytest.raises(UnsupportedVersion):
            await group_admin.share_group_describe(broker, zero(ShareGroupDescribeRequest, group_ids=("g",)), CALLER)
        with pytest.raises(UnsupportedVersion):
            await offsets(broker)
