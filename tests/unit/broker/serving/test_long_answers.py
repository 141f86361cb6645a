"""Long requests and answers: how much is done in one turn of the event loop, counted in items and not in seconds."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from barnabas.broker.controller.local_controller import LocalController
from barnabas.broker.coordinators.runtime import Runtime
from barnabas.broker.handlers import groups
from barnabas.broker.handlers.configs import describe_configs
from barnabas.broker.replication.replicas import ReplicaManager
from barnabas.broker.serving import long_answers
from barnabas.broker.serving.answers import LONG_ANSWER
from barnabas.broker.serving.config_entries import Describer
from barnabas.broker.serving.dispatch import LARGE_FRAME, Dispatcher
from barnabas.broker.serving.long_answers import PART, LongAnswers
from barnabas.machines.groups.coordinator import GroupCoordinator
from barnabas.machines.groups.offsets.rules import GroupOffsets
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import HANG_UP, Parked
from barnabas.protocol.coordinator_records import CoordinatorRecord, OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.conversion import zero
from barnabas.storage.log.producers import LogProducers
from tests.support.group_handlers import coordinating, fill_groups
from tests.support.images import ClusterOf, telling_broker
from tests.support.parts import answer_of, append, make_topic, running_parts
from tests.support.producing import NOW
from tests.support.served_connection import served_connection
from tests.support.wire import request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


from tests.support.turns import Turns, ask

pytestmark = pytest.mark.slow

MANY = 5 * PART
OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, CREATE_TOPICS = 9, 10, 11, 15, 16, 19
OFFSET_COMMIT, DESCRIBE_TRANSACTIONS, CONSUMER_GROUP_DESCRIBE = 8, 65, 69
DELETE_GROUPS = 42
OFFSET_DELETE, INCREMENTAL_ALTER_CONFIGS, LIST_OFFSETS, DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS = 47, 44, 2, 32, 61


class TestEach:
    async def test_items_keep_their_order_and_some_are_done_in_a_turn(self) -> None:
        turns = Turns()
        assert await LongAnswers().each(range(MANY), turns.counting(lambda item: -item)) == [-i for i in range(MANY)]
        assert turns.most == PART

    async def test_heavy_items_are_fewer(self) -> None:
        turns = Turns()
        await LongAnswers().each(range(50), turns.counting(lambda item: item), lambda _: PART // 2)
        assert turns.most == 2

    async def test_many_answers_together_have_no_longer_turns_than_one(self) -> None:
        turns, answers, together = Turns(), LongAnswers(), 10
        await asyncio.gather(*(answers.each(range(MANY), turns.counting(lambda item: item)) for _ in range(together)))
        assert turns.turns == 1 + together * (MANY // PART - 1)  # all begin in the first

    async def test_one_that_fails_does_not_hold_up_the_others(self) -> None:
        answers = LongAnswers()
        with pytest.raises(ZeroDivisionError):
            await answers.each(range(3), lambda item: 1 // item)
        assert await asyncio.wait_for(answers.each("ab", str), 30) == ["a", "b"]


class TestThreads:
    """Large requests are read, and long answers written, in a thread; small ones are not."""

    @pytest.fixture
    def threads(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
        """Whether the event loop's thread did it."""
        seen: dict[str, bool] = {}
        own = threading.get_ident()

        def watched(name: str, make: Callable[..., Callable[..., Any]]) -> Callable[..., Callable[..., Any]]:
            def make_watched(*version: Any) -> Callable[..., Any]:
                function = make(*version)

                def call(*arguments: Any) -> Any:
                    seen[name] = threading.get_ident() == own
                    return function(*arguments)

                return call

            return make_watched

        monkeypatch.setattr(codec, "decoder", watched("decode", codec.decoder))
        monkeypatch.setattr(codec, "encoder", watched("encode", codec.encoder))
        return seen

    @pytest.mark.parametrize("many", [False, True])
    async def test_by_size(self, tmp_path: Path, threads: dict[str, bool], many: bool) -> None:
        groups = [f"group-{number}" for number in range(LARGE_FRAME // 8 if many else 3)]
        async with coordinating(tmp_path) as broker:
            answer = await ask(broker, DESCRIBE_GROUPS, 6, {"groups": groups})
        assert [group.group_id for group in answer.groups] == groups
        assert threads == {"decode": not many, "encode": not many}

    async def test_a_short_question_with_a_long_answer(self, tmp_path: Path, threads: dict[str, bool]) -> None:
        async with coordinating(tmp_path) as broker:
            fill_groups(broker, LONG_ANSWER + 1)
            answer = await ask(broker, LIST_GROUPS, 5, {})
        assert len(answer.groups) == LONG_ANSWER + 1
        assert threads == {"decode": True, "encode": False}

    async def test_what_cannot_be_read_ends_the_connection(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        frame = bytearray(request(DESCRIBE_GROUPS, 6, 1, {"groups": ["x" * 30] * 500}))
        frame[20:24] = b"\xff\xff\xff\x7f"
        connection = served_connection()
        async with running_parts(tmp_path) as broker:
            for _ in range(3):
                parked = Dispatcher(broker).serve(connection, memoryview(frame))
                assert await answer_of(parked) is HANG_UP
        assert caplog.text.count("Closed the connection of 127.0.0.1:1") == 1, "who comes again is not told of again"

    async def test_the_broker_waits_for_a_large_request_that_was_read_while_it_stops(self, tmp_path: Path) -> None:
        groups = [f"group-{number}" for number in range(LARGE_FRAME // 8)]
        connection = served_connection()
        async with coordinating(tmp_path) as broker:
            dispatcher = Dispatcher(broker)
            parked: Any = dispatcher.serve(connection, memoryview(request(DESCRIBE_GROUPS, 6, 1, {"groups": groups})))
            await dispatcher.finish(30)
        assert parked.resolved

    @pytest.mark.parametrize("topics", [0, LARGE_FRAME // 8])
    @pytest.mark.parametrize("at_once", [True, False])
    async def test_a_client_that_leaves_lets_go_of_what_its_request_waits_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int, at_once: bool
    ) -> None:
        """A member that ends while it joins: its connection, and what it sent after, must not wait for the group."""
        waiting = asyncio.get_running_loop().create_future()
        asked = asyncio.Event()

        def join_group(*_: object) -> Any:
            asked.set()
            return waiting

        monkeypatch.setattr(groups, "join_group", join_group)
        protocols = [{"name": f"range-{number}", "metadata": b""} for number in range(topics)]
        connection = served_connection()
        async with running_parts(tmp_path) as broker:
            dispatcher = Dispatcher(broker)
            frame = request(JOIN_GROUP, 9, 1, {"group_id": "g", "protocols": protocols})
            parked = dispatcher.serve(connection, memoryview(frame))
            assert isinstance(parked, Parked)
            if at_once:
                parked.abandon()
            async with asyncio.timeout(30):
                await asked.wait()
                parked.abandon()
                await dispatcher.finish(30)
            assert waiting.cancelled()

    async def test_a_long_answer_is_not_finished_for_a_client_that_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turns, begun, describe = Turns(), asyncio.Event(), GroupCoordinator.describe_classic

        def counted(*arguments: Any) -> Any:
            begun.set()
            turns.count()
            return describe(*arguments)

        monkeypatch.setattr(GroupCoordinator, "describe_classic", counted)
        connection = served_connection()
        frame = request(DESCRIBE_GROUPS, 6, 1, {"groups": [f"group-{number}" for number in range(MANY)]})
        async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
            dispatcher = Dispatcher(broker)
            parked = dispatcher.serve(connection, memoryview(frame))
            assert isinstance(parked, Parked)
            async with asyncio.timeout(30):
                await begun.wait()
                parked.abandon()
                await dispatcher.finish(30)
        assert turns.turns < MANY // PART

    def test_long_is_what_has_many_elements_at_any_depth(self) -> None:
        topic = zero(ListOffsetsTopicResponse, partitions=(zero(ListOffsetsPartitionResponse),) * 4)
        answer = zero(ListOffsetsResponse, topics=(topic, topic))
        assert [codec.is_longer(answer, elements) for elements in (1, 9, 10)] == [True, True, False]


async def test_groups_are_listed_some_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, list_groups = Turns(), GroupCoordinator.list_groups

    def counted(machine: GroupCoordinator, ids: Any, *rest: Any) -> Any:
        turns.count(len(ids))
        return list_groups(machine, ids, *rest)

    monkeypatch.setattr(GroupCoordinator, "list_groups", counted)
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        fill_groups(broker, MANY)
        answer = await ask(broker, LIST_GROUPS, 5, {})
    assert len({group.group_id for group in answer.groups}) == MANY
    assert turns.most == PART


async def test_groups_are_described_some_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    monkeypatch.setattr(GroupCoordinator, "describe_classic", turns.counting(GroupCoordinator.describe_classic))
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        fill_groups(broker, MANY)
        answer = await ask(broker, DESCRIBE_GROUPS, 6, {"groups": [f"group-{number}" for number in range(MANY)]})
    assert {group.error_code for group in answer.groups} == {ErrorCode.none}
    assert turns.most == PART


@pytest.mark.parametrize("named", [True, False])
async def test_offsets_are_told_some_in_a_turn_and_as_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    turns, topic_response = Turns(), GroupOffsets.topic_response
    machine: Any = None

    def counted(offsets: GroupOffsets, topic: Any) -> Any:
        turns.count()
        put_offsets(2)  # a commit that comes between: nothing of it may be told
        return topic_response(offsets, topic)

    def put_offsets(offset: int) -> None:
        for number in range(MANY) if offset == 1 else (MANY - 1,):
            value = OffsetCommitValue(offset, -1, "", 0, -1, None)
            machine.replay(CoordinatorRecord(OffsetCommitKey("group-0", f"topic-{number}", 0), value))

    monkeypatch.setattr(GroupOffsets, "topic_response", counted)
    async with coordinating(tmp_path, offsets_topic_num_partitions="1") as broker:
        machine = fill_groups(broker, 1)
        put_offsets(1)
        topics = [{"name": f"topic-{number}", "partition_indexes": [0]} for number in range(MANY)]
        group = {"group_id": "group-0", "topics": topics if named else None}
        answer = await ask(broker, OFFSET_FETCH, 9, {"groups": [group]})
    found = [part.committed_offset for topic in answer.groups[0].topics for part in topic.partitions]
    assert found == [1] * MANY
    assert turns.most <= PART


async def test_producers_are_described_some_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, describe = Turns(), LogProducers.describe

    def counted(producers: LogProducers, ids: Any) -> Any:
        turns.count(len(ids))
        return describe(producers, ids)

    monkeypatch.setattr(LogProducers, "describe", counted)
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, "t")
        for number in range(MANY):
            append(broker.replicas.find("t", 0), [NOW], producer_id=number, producer_epoch=0, base_sequence=0)
        answer = await ask(broker, DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "t", "partition_indexes": [0, 7]}]})
    found, missing = answer.topics[0].partitions
    assert [producer.producer_id for producer in found.active_producers] == list(range(MANY))
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    assert turns.most == PART


async def test_coordinators_are_named_some_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"group-{number}" for number in range(MANY)]
    turns = Turns()
    monkeypatch.setattr(Runtime, "partition_for", turns.counting(lambda runtime, key: 0))
    async with coordinating(tmp_path) as broker:
        answer = await ask(broker, FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": keys})
    assert [each.key for each in answer.coordinators] == keys
    assert turns.most == PART


async def test_offsets_of_logs_are_looked_up_some_in_a_turn(tmp_path: Path) -> None:
    turns = Turns()

    class CountedReplicas(ReplicaManager):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            self.find = turns.counting(self.find)

    async with running_parts(tmp_path, make_replicas=CountedReplicas) as broker:
        await make_topic(broker, "t", 2)
        partitions = [{"partition_index": index, "timestamp": -1, "current_leader_epoch": -1} for index in range(MANY)]
        answer = await ask(
            broker, LIST_OFFSETS, 7, {"replica_id": -1, "topics": [{"name": "t", "partitions": partitions}]}
        )
    codes = [part.error_code for part in answer.topics[0].partitions]
    assert codes == [ErrorCode.none] * 2 + [ErrorCode.unknown_topic_or_partition] * (MANY - 2)
    assert turns.most == PART


async def test_configurations_are_described_few_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    broker = telling_broker(ClusterOf(leaders={"t": (1,)}))
    monkeypatch.setattr(Describer, "entries", turns.counting(Describer.entries))
    resources = tuple(
        zero(
            DescribeConfigsResource,
            resource_type=2,
            resource_name="t",
            configuration_keys=("retention.ms", f"other-{number}"),
        )
        for number in range(100)
    )
    caller: Any = None
    answer = await describe_configs(broker, zero(DescribeConfigsRequest, resources=resources), caller)
    assert [len(result.configs) for result in answer.results] == [1] * 100
    assert turns.most < 10


@pytest.mark.parametrize(
    ("key", "version", "many", "found"),
    [
        (DESCRIBE_GROUPS, 6, {"groups": ["g"] * MANY}, "groups"),
        (CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"] * MANY}, "groups"),
        (OFFSET_FETCH, 9, {"groups": [{"group_id": "g", "topics": None}] * MANY}, "groups"),
        (DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["x"] * MANY}, "transaction_states"),
        (
            DESCRIBE_CONFIGS,
            4,
            {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}] * MANY},
            "results",
        ),
        (DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "t", "partition_indexes": [0] * PART}] * PART}, "topics"),
    ],
)
async def test_what_is_named_many_times_is_described_once(
    tmp_path: Path, key: int, version: int, many: dict[str, Any], found: str
) -> None:
    """A request of some kilobytes would otherwise have an answer of gigabytes."""
    async with coordinating(tmp_path) as broker:
        answer = await ask(broker, key, version, many)
    (one,) = getattr(answer, found)
    if key == DESCRIBE_PRODUCERS:
        assert [part.partition_index for part in one.partitions] == [0]


async def test_a_broker_has_one_name_in_configurations(tmp_path: Path) -> None:
    resources = [{"resource_type": 4, "resource_name": name, "configuration_keys": None} for name in ("1", "01", "١")]
    async with running_parts(tmp_path) as broker:
        answer = await ask(broker, DESCRIBE_CONFIGS, 4, {"resources": resources})
    codes = [result.error_code for result in answer.results]
    assert codes == [ErrorCode.none, ErrorCode.invalid_request, ErrorCode.invalid_request]


async def test_the_controller_decides_about_some_topics_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_answers, "PORTION", 5)
    count, decided = 7, list[int]()
    topics = [{"name": f"t{number}", "num_partitions": 1, "replication_factor": 1} for number in range(count)]
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]
    resources = [{"resource_type": 2, "resource_name": f"t{number}", "configs": configs} for number in range(count)]
    decide = LocalController.decide

    async def counted(controller: LocalController, asked: Any) -> Any:
        answers = await decide(controller, asked)
        decided.append(len(answers))
        return answers

    monkeypatch.setattr(LocalController, "decide", counted)
    async with running_parts(tmp_path) as broker:
        made = await ask(broker, CREATE_TOPICS, 7, {"topics": topics, "timeout": 1000})
        assert {topic.error_code for topic in made.topics} == {ErrorCode.none}
        altered = await ask(broker, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources})
        assert [each.error_code for each in altered.responses] == [ErrorCode.none] * count
        assert len(broker.metadata.image.topics) == count
        assert broker.metadata.topic_config(f"t{count - 1}") == {"retention.ms": "1000"}
        too_many = [{"name": f"u{number}", "num_partitions": 2000, "replication_factor": 1} for number in range(count)]
        refused = await ask(broker, CREATE_TOPICS, 7, {"topics": too_many, "timeout": 1000})
        assert {topic.error_code for topic in refused.topics} == {ErrorCode.policy_violation}
    assert decided == [5, 2, 5, 2, count]
