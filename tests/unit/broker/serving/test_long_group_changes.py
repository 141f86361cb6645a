"""Offsets and groups that are committed and deleted by the thousand: some in a turn, and in no quadratic time."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from barnabas.broker.serving import long_answers
from barnabas.broker.serving.long_answers import DECISION, PART
from barnabas.machines.groups.coordinator import GroupCoordinator
from barnabas.machines.groups.deletion import MOST
from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import CONSUMER_OFFSETS
from barnabas.protocol.coordinator_records import CoordinatorRecord, OffsetCommitKey, OffsetCommitValue
from tests.support.group_handlers import committed, coordinating, fill_groups, reload
from tests.support.images import CALLER
from tests.support.logs import read_bytes, split
from tests.support.producing import lead_anew

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.machines.groups.share.offsets import DeleteStates

from tests.support.turns import Turns, ask

pytestmark = pytest.mark.slow

MANY = 5 * PART
OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, CREATE_TOPICS = 9, 10, 11, 15, 16, 19
OFFSET_COMMIT, DESCRIBE_TRANSACTIONS, CONSUMER_GROUP_DESCRIBE = 8, 65, 69
DELETE_GROUPS = 42
OFFSET_DELETE, INCREMENTAL_ALTER_CONFIGS, LIST_OFFSETS, DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS = 47, 44, 2, 32, 61


async def test_committing_offsets_of_one_topic_in_many_elements_takes_no_quadratic_time(tmp_path: Path) -> None:
    """The partitions of the topic were copied for each: forty thousand held the event loop for many seconds."""
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"topic_id": UUID(int=7), "partitions": [partition]} for _ in range(4_000)]
    copied = Turns()
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(long_answers, "replace", copied.counting(dataclasses.replace))
            answer = await ask(
                broker, OFFSET_COMMIT, 10, {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics}
            )
    (topic,) = answer.topics
    assert len(topic.partitions) == len(topics)
    assert copied.most == 1


async def test_deleting_offsets_of_partitions_that_are_not_there_takes_no_quadratic_time(tmp_path: Path) -> None:
    """Each was compared with each other: forty thousand took minutes."""
    indexes = range(40_000)
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        fill_groups(broker, 1)
        topics = [{"name": "t", "partitions": [{"partition_index": index} for index in indexes]}]
        async with asyncio.timeout(30):
            answer = await ask(broker, OFFSET_DELETE, 0, {"group_id": "group-0", "topics": topics})
    codes = {part.partition_index: part.error_code for part in answer.topics[0].partitions}
    assert len(codes) == len(indexes)
    assert (codes[0], codes[2]) == (ErrorCode.none, ErrorCode.unknown_topic_or_partition)


def commit_of(count: int, topics: int = 1) -> dict[str, Any]:
    partition = {"committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    partitions = [{"partition_index": number % 2, **partition} for number in range(count // topics)]
    named = [{"name": "t", "partitions": partitions} for _ in range(topics)]
    return {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": named}


@pytest.mark.parametrize("topics", [1, 7])
async def test_many_offsets_are_committed_and_deleted_some_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    """Twenty thousand were one decision, and too large for one batch: a fifth of a second, for nothing."""
    turns, count = Turns(), 5 * DECISION
    replay = GroupCoordinator.replay
    monkeypatch.setattr(GroupCoordinator, "replay", turns.counting(replay))
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        request = commit_of(count, topics)
        named = sum(len(topic["partitions"]) for topic in request["topics"])
        response = await ask(broker, OFFSET_COMMIT, 9, request)
        assert turns.most <= DECISION
        assert {part.error_code for topic in response.topics for part in topic.partitions} == {ErrorCode.none}
        assert sum(len(topic.partitions) for topic in response.topics) == named
        request["topics"] = [{"name": "t", "partitions": [{"partition_index": number % 2} for number in range(named)]}]
        deleted = await ask(broker, OFFSET_DELETE, 0, {"group_id": "g", "topics": request["topics"]})
        assert deleted.error_code is ErrorCode.none
        assert sum(len(topic.partitions) for topic in deleted.topics) == named
        assert turns.most <= DECISION
        assert await committed(broker, "g") == {}


async def test_as_many_offsets_as_fit_into_one_decision_are_one_batch(tmp_path: Path) -> None:
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        log = next(broker.groups.runtime.shards()).partition.log
        before = len(split(read_bytes(log, 0))) if log.log_end_offset else 0
        await ask(broker, OFFSET_COMMIT, 9, commit_of(DECISION))
        assert len(split(read_bytes(log, 0))) == before + 1


class TestDeletedGroups:
    async def test_a_group_with_many_offsets_goes_some_in_a_turn_and_at_once_for_clients(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A hundred thousand offsets held the event loop for two thirds of a second."""
        turns, count = Turns(), 4 * MOST
        async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
            machine = fill_groups(broker, 1)
            fill_offsets(machine, "group-0", count)
            monkeypatch.setattr(GroupCoordinator, "replay", turns.counting(GroupCoordinator.replay))
            deleting = asyncio.ensure_future(ask(broker, DELETE_GROUPS, 2, {"groups_names": ["group-0"]}))
            seen = set()
            while not deleting.done():
                asked = {"groups": [{"group_id": "group-0", "topics": None}]}
                (group,) = (await ask(broker, OFFSET_FETCH, 9, asked)).groups
                seen.add((group.error_code, sum(len(topic.partitions) for topic in group.topics)))
            assert [each.error_code for each in (await deleting).results] == [ErrorCode.none]
            assert seen <= {
                (ErrorCode.none, count),
                (ErrorCode.coordinator_load_in_progress, 0),
                (ErrorCode.none, 0),
            }
            assert turns.most <= MOST + 1
            assert machine.table.groups == {}
            assert await committed(broker, "group-0") == {}
            await reload(broker)
            again = next(broker.groups.runtime.shards()).machine
            assert again is not None
            assert again.table.groups == {}

    async def test_many_groups_with_some_offsets(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        turns = Turns()
        async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
            machine = fill_groups(broker, 100)
            for number in range(100):
                fill_offsets(machine, f"group-{number}", 40)
            monkeypatch.setattr(GroupCoordinator, "replay", turns.counting(GroupCoordinator.replay))
            names = [f"group-{number}" for number in range(100)]
            answer = await ask(broker, DELETE_GROUPS, 2, {"groups_names": [*names, "none"]})
            assert [each.error_code for each in answer.results] == [ErrorCode.none] * 100 + [
                ErrorCode.group_id_not_found
            ]
            assert turns.most <= MOST + 1
            assert machine.table.groups == {}

    async def test_who_waits_is_told_when_the_coordinator_ends(self, tmp_path: Path) -> None:
        async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
            machine = fill_groups(broker, 1)
            fill_offsets(machine, "group-0", 3 * MOST)
            asked: ErrorCode | DeleteStates | asyncio.Future[ErrorCode | DeleteStates] = broker.groups.ask(
                "group-0",
                lambda machine, call, now_ms: machine.delete_group("group-0", call, now_ms),
                CALLER,
                0,
                lambda error: error.code,
            )
            assert asyncio.isfuture(asked)
            lead_anew(broker, CONSUMER_OFFSETS)
            assert await asyncio.wait_for(asked, 30) is ErrorCode.not_coordinator


def fill_offsets(machine: GroupCoordinator, group_id: str, count: int) -> None:
    for number in range(count):
        key = OffsetCommitKey(group_id, f"topic-{number % 10}", number // 10)
        machine.replay(CoordinatorRecord(key, OffsetCommitValue(1, -1, "", 0, -1, None)))
