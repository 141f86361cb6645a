"""Groups through their handlers, over real logs: members, offsets, and what is left after a reload."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.types import GroupId

from barnabas.broker.controller.membership import new_id
from barnabas.broker.handlers import group_admin, group_offsets, groups
from barnabas.broker.handlers.topics import create_partitions
from barnabas.broker.serving.answers import Later
from barnabas.machines.controller.requests import LevelChange, UpdateFeatures
from barnabas.machines.security.acls import GROUP_OPERATIONS
from barnabas.model.errors import CoordinatorLoadInProgress, ErrorCode, UnsupportedVersion
from barnabas.model.internal_topics import CONSUMER_OFFSETS
from barnabas.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.wire.conversion import zero
from tests.support.group_handlers import (
    answer,
    commit,
    committed,
    coordinating,
    heartbeat,
    join_request,
    joined,
    listed,
    reload,
)
from tests.support.images import CALLER
from tests.support.parts import make_topic

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_member_joins_commits_and_leaves(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        member, generation = await joined(broker, "g")
        assert await heartbeat(broker, "g", member, generation) is ErrorCode.none
        assert await heartbeat(broker, "g", member, generation + 1) is ErrorCode.illegal_generation
        assert await heartbeat(broker, "g", "nobody", generation) is ErrorCode.unknown_member_id
        assert await commit(broker, "g", {0: 5, 1: 7}, member=member, generation=generation) == {
            0: ErrorCode.none,
            1: ErrorCode.none,
        }
        assert await commit(broker, "g", {0: 6}, member=member, generation=generation - 1) == {
            0: ErrorCode.illegal_generation
        }
        assert await committed(broker, "g") == {("t", 0): 5, ("t", 1): 7}
        leaving = LeaveGroupRequest(group_id=GroupId("g"), members=(MemberIdentity(member_id=member),))
        left = await answer(groups.leave_group(broker, leaving, CALLER, 5))
        assert [each.error_code for each in left.members] == [ErrorCode.none]
        assert await listed(broker) == {"g": ("classic", "Empty")}


async def test_a_reload_gives_the_same_members_generation_and_offsets(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        member, generation = await joined(broker, "g")
        await commit(broker, "g", {0: 5}, member=member, generation=generation)
        await commit(broker, "simple", {1: 9})
        await reload(broker)
        assert await listed(broker) == {"g": ("classic", "Stable"), "simple": ("classic", "Empty")}
        assert await heartbeat(broker, "g", member, generation) is ErrorCode.none
        assert await committed(broker, "g") == {("t", 0): 5}
        assert await committed(broker, "simple") == {("t", 1): 9}


async def test_commits_by_id_and_to_what_does_not_exist(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        topic = broker.metadata.topic("t")
        assert topic is not None
        assert await commit(broker, "g", {0: 5, 2: 5}, topic_id=topic.topic_id, version=10) == {
            0: ErrorCode.none,
            2: ErrorCode.unknown_topic_or_partition,
        }
        stranger = new_id()
        assert await commit(broker, "g", {0: 5}, topic_id=stranger, version=10) == {0: ErrorCode.unknown_topic_id}
        assert await commit(broker, "g", {0: 5}, topic="nowhere") == {0: ErrorCode.unknown_topic_or_partition}
        assert await committed(broker, "g") == {("t", 0): 5}
        request = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=(
                        OffsetFetchRequestTopics(topic_id=topic.topic_id, partition_indexes=(0,)),
                        OffsetFetchRequestTopics(topic_id=stranger, partition_indexes=(0,)),
                    ),
                ),
            )
        )
        response = await answer(group_offsets.offset_fetch(broker, request, CALLER, 10))
        found = {each.topic_id: each.partitions[0] for each in response.groups[0].topics}
        assert found[topic.topic_id].committed_offset == 5
        assert found[stranger].error_code is ErrorCode.unknown_topic_id


async def test_metadata_has_a_limit(tmp_path: Path) -> None:
    async with coordinating(tmp_path, offset_metadata_max_bytes="10") as broker:
        assert await commit(broker, "g", {0: 1}, metadata="x" * 11) == {0: ErrorCode.offset_metadata_too_large}
        assert await commit(broker, "g", {0: 1}, metadata="x" * 10) == {0: ErrorCode.none}


async def test_groups_are_described_and_deleted_one_by_one(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        member, _ = await joined(broker, "busy")
        await commit(broker, "idle", {0: 3})
        described = await answer(
            group_admin.describe_groups(
                broker,
                zero(DescribeGroupsRequest, groups=("busy", "idle", "none"), include_authorized_operations=True),
                CALLER,
                6,
            )
        )
        assert [(group.group_state, group.error_code) for group in described.groups] == [
            ("Stable", ErrorCode.none),
            ("Empty", ErrorCode.none),
            ("Dead", ErrorCode.group_id_not_found),
        ]
        assert [each.member_id for each in described.groups[0].members] == [member]
        assert described.groups[0].authorized_operations == GROUP_OPERATIONS
        old = await answer(
            group_admin.describe_groups(broker, zero(DescribeGroupsRequest, groups=("none",)), CALLER, 5)
        )
        assert (old.groups[0].group_state, old.groups[0].error_code) == ("Dead", ErrorCode.none)
        deleted = await answer(
            group_admin.delete_groups(
                broker, zero(DeleteGroupsRequest, groups_names=("busy", "idle", "none", "")), CALLER
            )
        )
        assert {result.group_id: result.error_code for result in deleted.results} == {
            "busy": ErrorCode.non_empty_group,
            "idle": ErrorCode.none,
            "none": ErrorCode.group_id_not_found,
            "": ErrorCode.invalid_group_id,
        }
        await reload(broker)
        assert await listed(broker) == {"busy": ("classic", "Stable")}
        assert await committed(broker, "idle") == {}


async def test_lists_are_filtered_by_state_and_type(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        await joined(broker, "busy")
        await commit(broker, "idle", {0: 3})
        assert set(await listed(broker)) == {"busy", "idle"}
        assert set(await listed(broker, states_filter=("sTaBLE",))) == {"busy"}
        assert set(await listed(broker, types_filter=("Consumer",))) == set()
        assert set(await listed(broker, types_filter=("classic",), states_filter=("Empty",))) == {"idle"}


async def test_the_coordinator_assigns_where_the_members_ask_for_it(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        topic = broker.metadata.topic("t")
        assert topic is not None
        request = zero(
            ConsumerGroupHeartbeatRequest,
            group_id="new",
            member_id="m-1",
            rebalance_timeout=timedelta(seconds=30),
            subscribed_topic_names=("t",),
            server_assignor="uniform",
            topic_partitions=(),
        )
        response = await answer(groups.consumer_group_heartbeat(broker, request, CALLER, 1))
        assert response.error_code is ErrorCode.none
        assert {part.topic_id: set(part.partitions) for part in response.assignment.topic_partitions} == {
            topic.topic_id: {0, 1}
        }
        described = await answer(
            group_admin.consumer_group_describe(
                broker, zero(ConsumerGroupDescribeRequest, group_ids=("new", "none")), CALLER
            )
        )
        assert [group.error_code for group in described.groups] == [ErrorCode.none, ErrorCode.group_id_not_found]
        assert [member.member_id for member in described.groups[0].members] == ["m-1"]
        assert (await listed(broker))["new"][0] == "consumer"
        await reload(broker)
        assert (await listed(broker))["new"][0] == "consumer"


async def test_the_new_protocol_can_be_switched_off(tmp_path: Path) -> None:
    request = zero(ConsumerGroupHeartbeatRequest, group_id="new", member_id="m-1", subscribed_topic_names=("t",))
    describe = zero(ConsumerGroupDescribeRequest, group_ids=("new",))
    async with coordinating(tmp_path) as broker:
        await broker.controller.decide(UpdateFeatures({"group.version": LevelChange(0, "downgrade")}))
        with pytest.raises(UnsupportedVersion, match=r"group\.version is 0"):
            groups.consumer_group_heartbeat(broker, request, CALLER, 1)
        with pytest.raises(UnsupportedVersion):
            await group_admin.consumer_group_describe(broker, describe, CALLER)
        await joined(broker, "classic")


async def test_offsets_of_a_deleted_topic_go_with_it(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        await make_topic(broker, "gone")
        await commit(broker, "g", {0: 3}, topic="gone")
        await commit(broker, "g", {0: 4})
        await broker.controller.delete_topics(["gone"])
        assert await committed(broker, "g") == {("t", 0): 4}
        await reload(broker)
        assert await committed(broker, "g") == {("t", 0): 4}


async def test_offsets_can_be_deleted(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        await commit(broker, "g", {0: 3, 1: 4})
        request = zero(
            OffsetDeleteRequest,
            group_id="g",
            topics=(
                zero(
                    OffsetDeleteRequestTopic,
                    name="t",
                    partitions=(
                        zero(OffsetDeleteRequestPartition, partition_index=0),
                        zero(OffsetDeleteRequestPartition, partition_index=9),
                    ),
                ),
            ),
        )
        response = await answer(group_offsets.offset_delete(broker, request, CALLER, 0))
        (topic,) = response.topics
        assert {part.partition_index: part.error_code for part in topic.partitions} == {
            0: ErrorCode.none,
            9: ErrorCode.unknown_topic_or_partition,
        }
        assert await committed(broker, "g") == {("t", 1): 4}


async def test_an_empty_group_id_is_for_commits_only(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        response = await answer(groups.join_group(broker, join_request(""), CALLER, 9))
        assert response.error_code is ErrorCode.invalid_group_id
        assert await commit(broker, "", {0: 3}) == {0: ErrorCode.none}


async def test_whoever_waits_is_told_when_the_broker_stops(tmp_path: Path) -> None:
    async with coordinating(tmp_path, group_initial_rebalance_delay_ms="60000") as broker:
        first = await answer(groups.join_group(broker, join_request("g"), CALLER, 9))
        waiting = groups.join_group(broker, join_request("g", first.member_id), CALLER, 9)
        assert isinstance(waiting, Later)
        told = waiting.future()
        broker.groups.runtime.resign()
        assert (await asyncio.wait_for(told, 30)).error_code is ErrorCode.not_coordinator
        again = await answer(groups.join_group(broker, join_request("g"), CALLER, 9))
        assert again.error_code is ErrorCode.not_coordinator


async def test_a_topic_made_anew_does_not_inherit_offsets(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        await make_topic(broker, "again")
        await commit(broker, "g", {0: 777}, topic="again")
        for shard in broker.groups.runtime.shards():
            shard.end(CoordinatorLoadInProgress("nobody hears of the deletion"))
        await broker.controller.delete_topics(["again"])
        await make_topic(broker, "again")
        await reload(broker)
        request = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id="g", topics=(OffsetFetchRequestTopics(name="again", partition_indexes=(0,)),)
                ),
            )
        )
        response = await answer(group_offsets.offset_fetch(broker, request, CALLER, 9))
        assert response.groups[0].topics[0].partitions[0].committed_offset == -1


async def test_the_topic_of_groups_cannot_be_given_more_partitions(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        request = zero(
            CreatePartitionsRequest,
            topics=(zero(CreatePartitionsTopic, name=CONSUMER_OFFSETS, count=9, assignments=None),),
        )
        (result,) = (await create_partitions(broker, request, CALLER, 3)).results
        assert result.error_code is ErrorCode.invalid_request
        topic = broker.metadata.topic(CONSUMER_OFFSETS)
        assert topic is not None
        assert len(topic.partitions) == 2


async def test_a_client_with_an_endless_name_is_a_member_like_any_other(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        caller = replace(CALLER, client_id="x" * 32_767)
        first = await answer(groups.join_group(broker, join_request("g"), caller, 9))
        second = await answer(groups.join_group(broker, join_request("g", first.member_id), caller, 9))
        assert second.error_code is ErrorCode.none
        sync = zero(
            SyncGroupRequest,
            group_id="g",
            member_id=first.member_id,
            generation_id=second.generation_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"all"),),
        )
        assert (await answer(groups.sync_group(broker, sync, caller, 5))).error_code is ErrorCode.none
