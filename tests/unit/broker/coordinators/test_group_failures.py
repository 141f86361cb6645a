"""Groups whose coordinator cannot do what it should: one that fails to decide, and decisions too large for its log."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.list_groups.v5.request import ListGroupsRequest

from barnabas.broker.coordinators.record_log import _batches
from barnabas.broker.handlers import group_admin, group_offsets, groups
from barnabas.machines.groups.coordinator import GroupCoordinator
from barnabas.model.errors import CoordinatorLoadInProgress, ErrorCode, NotCoordinator
from barnabas.model.internal_topics import CONSUMER_OFFSETS
from barnabas.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
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

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.shard import Shard

SMALL = {"offsets_topic_num_partitions": "1", "message_max_bytes": "2000"}
"""One coordinator, whose batches have at most 2,000 bytes."""


async def sync(broker: BrokerContext, group: str, member: str, generation: int, assignment: bytes) -> ErrorCode:
    request = zero(
        SyncGroupRequest,
        group_id=group,
        member_id=member,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(SyncGroupRequestAssignment(member_id=member, assignment=assignment),),
    )
    code: ErrorCode = (await answer(groups.sync_group(broker, request, CALLER, 5))).error_code
    return code


async def beat(broker: BrokerContext, *topics: str) -> Any:
    request = zero(
        ConsumerGroupHeartbeatRequest,
        group_id="new",
        member_id="m-1",
        rebalance_timeout=timedelta(seconds=30),
        subscribed_topic_names=topics,
        topic_partitions=(),
    )
    return await answer(groups.consumer_group_heartbeat(broker, request, CALLER, 1))


def only_shard(broker: BrokerContext) -> Shard[GroupCoordinator]:
    (shard,) = broker.groups.runtime.shards()
    return shard


# Lists


async def two_groups_apart(broker: BrokerContext) -> dict[str, Shard[GroupCoordinator]]:
    """Two groups, each with a coordinator of its own."""
    found: dict[int, str] = {}
    for name in ("a", "b", "c", "d"):
        found.setdefault(broker.groups.runtime.partition_for(name) or 0, name)
    assert len(found) == 2
    for name in found.values():
        await commit(broker, name, {0: 1})
    return {name: broker.groups.runtime.find(name) for name in found.values()}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CoordinatorLoadInProgress("not yet"), ErrorCode.coordinator_load_in_progress),
        (ValueError("a mistake"), ErrorCode.unknown_server_error),
    ],
)
async def test_there_is_no_list_if_a_coordinator_cannot_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: ErrorCode
) -> None:
    broken: list[object] = []
    list_groups = GroupCoordinator.list_groups

    def list_unless_broken(machine: GroupCoordinator, *words: Any, **names: Any) -> Any:
        if machine in broken:
            raise error
        return list_groups(machine, *words, **names)

    monkeypatch.setattr(GroupCoordinator, "list_groups", list_unless_broken)
    async with coordinating(tmp_path) as broker:
        shards = await two_groups_apart(broker)
        shard = list(shards.values())[-1]
        if isinstance(error, CoordinatorLoadInProgress):
            shard.end(error)
        else:
            broken.append(shard.machine)
        response = await answer(group_admin.list_groups(broker, zero(ListGroupsRequest), CALLER))
        assert (response.error_code, response.groups) == (code, ())


async def test_groups_that_went_to_another_broker_are_listed_there(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        (here, _), (_, gone) = (await two_groups_apart(broker)).items()
        gone.end(NotCoordinator("moved"))
        assert set(await listed(broker)) == {here}


async def described(broker: BrokerContext, group: str) -> ErrorCode:
    request = zero(DescribeGroupsRequest, groups=(group,))
    response = await answer(group_admin.describe_groups(broker, request, CALLER, 6))
    code: ErrorCode = response.groups[0].error_code
    return code


async def test_groups_can_be_read_while_nothing_can_be_stored(tmp_path: Path) -> None:
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        member, generation = await joined(broker, "g")
        await commit(broker, "g", {0: 5}, member=member, generation=generation)
        log = only_shard(broker).partition.log
        enough = log.config
        log.update_config(replace(log.config, min_insync_replicas=2))
        codes = await commit(broker, "g", {0: 6}, member=member, generation=generation)
        assert codes == {0: ErrorCode.coordinator_not_available}
        assert await committed(broker, "g") == {("t", 0): 5}
        assert set(await listed(broker)) == {"g"}
        assert await described(broker, "g") is ErrorCode.none
        log.update_config(enough)
        assert await heartbeat(broker, "g", member, generation) is ErrorCode.none


# A coordinator that fails


async def test_a_question_that_fails_costs_nobody_else_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        member, generation = await joined(broker, "g")
        # for the member that is there to join
        waiting = asyncio.ensure_future(answer(groups.join_group(broker, join_request("g", ""), CALLER, 3)))
        await asyncio.sleep(0)
        machine = only_shard(broker).machine
        with monkeypatch.context() as broken:
            for question in ("list_groups", "describe_classic", "copy_offsets"):
                broken.setattr(machine, question, lambda *_: 1 // 0)
            response = await answer(group_admin.list_groups(broker, zero(ListGroupsRequest), CALLER))
            assert response.error_code is ErrorCode.unknown_server_error
            assert await described(broker, "g") is ErrorCode.unknown_server_error
            request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
            response = await answer(group_offsets.offset_fetch(broker, request, CALLER, 9))
            assert response.groups[0].error_code is ErrorCode.unknown_server_error
        assert caplog.text.count("failed to answer a request") == 3
        assert only_shard(broker).machine is machine
        assert not waiting.done()
        assert await heartbeat(broker, "g", member, generation) is ErrorCode.rebalance_in_progress
        waiting.cancel()


async def test_a_coordinator_that_fails_to_decide_is_taken_from_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with coordinating(tmp_path, offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="0") as broker:
        member, generation = await joined(broker, "g")
        await commit(broker, "g", {0: 5}, member=member, generation=generation)
        other = (await answer(groups.join_group(broker, join_request("h"), CALLER, 9))).member_id
        # for the member that is there to join
        waiting = asyncio.ensure_future(answer(groups.join_group(broker, join_request("g", ""), CALLER, 3)))
        await asyncio.sleep(0)
        half_changed = only_shard(broker).machine

        def decide(machine: GroupCoordinator, *_: object) -> Any:
            machine.table.groups.clear()
            raise ValueError("planted")

        failed = broker.groups.ask("g", decide, CALLER, 9, lambda error: error.code)
        assert await answer(failed) is ErrorCode.unknown_server_error
        assert "planted" in caplog.text
        refused = await commit(broker, "g", {0: 6}, member=member, generation=generation)
        assert refused == {0: ErrorCode.coordinator_load_in_progress}
        assert (await waiting).error_code is ErrorCode.coordinator_not_available
        await broker.groups.runtime.loaded()
        assert only_shard(broker).machine is not half_changed
        assert await heartbeat(broker, "g", member, generation) is ErrorCode.none
        assert await committed(broker, "g") == {("t", 0): 5}
        again = await answer(groups.join_group(broker, join_request("h", other), CALLER, 9))
        assert again.error_code is ErrorCode.unknown_member_id  # its id was given out, and nothing else


async def test_what_was_decided_before_a_failure_is_kept(tmp_path: Path) -> None:
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        shard = only_shard(broker)
        shard._is_quiet = False  # it waits for more decisions of the turn
        first = asyncio.ensure_future(commit(broker, "g", {0: 5}))
        await asyncio.sleep(0)  # it is decided, and not stored yet
        assert shard._unwritten
        shard.decide_event(lambda machine, now_ms: 1 // 0)  # type: ignore[arg-type, return-value]
        assert await first == {0: ErrorCode.none}
        await broker.groups.runtime.loaded()
        assert await committed(broker, "g") == {("t", 0): 5}


# Decisions too large for a batch


async def test_a_commit_that_is_too_large_is_refused_and_nothing_else(tmp_path: Path) -> None:
    async with coordinating(tmp_path, **SMALL) as broker:
        machine = only_shard(broker).machine
        many = await asyncio.gather(*(commit(broker, f"g-{number}", {0: number}) for number in range(50)))
        assert many == [{0: ErrorCode.none}] * 50
        commits = [commit(broker, "g", {0: 1}), commit(broker, "g", {1: 2}, metadata="x" * 2_500)]
        commits.append(commit(broker, "h", {1: 3}))
        assert await asyncio.gather(*commits) == [
            {0: ErrorCode.none},
            {1: ErrorCode.unknown_server_error},
            {1: ErrorCode.none},
        ]
        assert only_shard(broker).machine is machine
        assert await committed(broker, "g") == {("t", 0): 1}
        await reload(broker)
        assert await committed(broker, "g") == {("t", 0): 1}
        assert await committed(broker, "h") == {("t", 1): 3}
        sizes = [header.size for header, _ in _batches(broker.replicas.find(CONSUMER_OFFSETS, 0).log, 1 << 20)]
        assert max(sizes) <= 2_000
        assert len(sizes) < 20  # several commits to a batch all the same


async def test_a_generation_that_is_too_large_begins_anew(tmp_path: Path) -> None:
    async with coordinating(tmp_path, **SMALL, group_initial_rebalance_delay_ms="0") as broker:
        machine = only_shard(broker).machine
        member = (await answer(groups.join_group(broker, join_request("g"), CALLER, 9))).member_id
        first = await answer(groups.join_group(broker, join_request("g", member), CALLER, 9))
        too_large = await sync(broker, "g", member, first.generation_id, b"x" * 3_000)
        assert too_large is ErrorCode.unknown_server_error
        assert await listed(broker) == {"g": ("classic", "PreparingRebalance")}
        assert await heartbeat(broker, "g", member, first.generation_id) is ErrorCode.rebalance_in_progress
        second = await answer(groups.join_group(broker, join_request("g", member), CALLER, 9))
        assert second.generation_id == first.generation_id + 1
        assert await sync(broker, "g", member, second.generation_id, b"x") is ErrorCode.none
        assert await listed(broker) == {"g": ("classic", "Stable")}
        assert only_shard(broker).machine is machine


async def test_a_member_of_a_consumer_group_that_is_too_large_does_not_join(tmp_path: Path) -> None:
    async with coordinating(tmp_path, **SMALL) as broker:
        machine = only_shard(broker).machine
        assert (await beat(broker, *(f"topic-{number}" for number in range(300)))).error_code is (
            ErrorCode.unknown_server_error
        )
        assert await listed(broker) == {}
        assert (await beat(broker, "t")).error_code is ErrorCode.none
        assert await listed(broker) == {"new": ("consumer", "Stable")}
        assert only_shard(broker).machine is machine
