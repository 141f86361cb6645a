"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords against real logs, with Apache Kafka's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from kio.schema.delete_records.v2 import request as deleting
from kio.schema.list_offsets.v11 import request as listing
from kio.schema.offset_for_leader_epoch.v4 import request as epochs

from barnabas.broker.handlers.offsets import delete_records, list_offsets, offset_for_leader_epoch
from barnabas.model.errors import ErrorCode
from barnabas.protocol.wire.conversion import zero
from tests.support.images import CALLER, proved
from tests.support.parts import append, make_topic, running_parts
from tests.support.producing import now_led, with_follower

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.broker.context import BrokerContext

T = TypeVar("T")

NOTHING = (ErrorCode.none, -1, -1, -1)


async def on_broker(directory: Path, use: Callable[[BrokerContext], Awaitable[T]]) -> T:
    async def run() -> T:
        async with running_parts(directory) as broker:
            return await use(broker)

    return await run()


async def with_records(broker: BrokerContext) -> None:
    """Topic `a`: offsets 0 to 5 in two batches in partition 0, nothing in partition 1."""
    await make_topic(broker, "a", 2)
    append(broker.replicas.find("a", 0), [1000, 3000, 2000])
    append(broker.replicas.find("a", 0), [5000, 5000, 4000])


async def find(
    broker: BrokerContext,
    *wanted: tuple[str, int, int],
    epoch: int = -1,
    replica_id: int = -1,
    is_proved: bool = True,
    isolation_level: int = 0,
) -> list[tuple[ErrorCode, int, int, int]]:
    """Error, timestamp, offset and leader epoch for each topic, partition and timestamp."""
    topics: dict[str, list[Any]] = {}
    for topic, index, timestamp in wanted:
        part = zero(
            listing.ListOffsetsPartition, partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
        )
        topics.setdefault(topic, []).append(part)
    request = zero(
        listing.ListOffsetsRequest,
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=tuple(zero(listing.ListOffsetsTopic, name=name, partitions=tuple(p)) for name, p in topics.items()),
    )
    caller = proved(replica_id) if is_proved and replica_id >= 0 else CALLER
    response = await list_offsets(broker, request, caller)
    return [
        (part.error_code, part.timestamp, part.offset, part.leader_epoch)
        for topic in response.topics
        for part in topic.partitions
    ]


class TestListOffsets:
    async def test_special_offsets_and_times(self, tmp_path: Path) -> None:
        expected = {
            -1: (ErrorCode.none, -1, 6, 0),
            -2: (ErrorCode.none, -1, 0, 0),
            -3: (ErrorCode.none, 5000, 3, 0),
            -4: (ErrorCode.none, -1, 0, 0),
            -5: NOTHING,
            -6: NOTHING,
            -7: (ErrorCode.unsupported_version, -1, -1, -1),
            -(2**63): (ErrorCode.unsupported_version, -1, -1, -1),
            0: (ErrorCode.none, 1000, 0, 0),
            1001: (ErrorCode.none, 3000, 1, 0),
            4500: (ErrorCode.none, 5000, 3, 0),
            5001: NOTHING,
        }

        async def use(broker: BrokerContext) -> None:
            await with_records(broker)
            for timestamp, answer in expected.items():
                assert await find(broker, ("a", 0, timestamp)) == [answer], timestamp

        await on_broker(tmp_path, use)

    async def test_an_empty_partition_begins_and_ends_at_0(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await with_records(broker)
            for timestamp in (-1, -2, -4):
                assert await find(broker, ("a", 1, timestamp)) == [(ErrorCode.none, -1, 0, 0)]
            for timestamp in (-3, -5, 0):
                assert await find(broker, ("a", 1, timestamp)) == [NOTHING]

        await on_broker(tmp_path, use)

    async def test_one_request_for_much(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await with_records(broker)
            await make_topic(broker, "b")
            found = await find(broker, ("a", 0, 2500), ("a", 1, -1), ("b", 0, -2), ("a", 7, -1), ("nope", 0, 5))
            assert found == [
                (ErrorCode.none, 3000, 1, 0),
                (ErrorCode.none, -1, 0, 0),
                (ErrorCode.unknown_topic_or_partition, -1, -1, -1),
                (ErrorCode.none, -1, 0, 0),
                (ErrorCode.unknown_topic_or_partition, -1, -1, -1),
            ]

        await on_broker(tmp_path, use)

    async def test_a_partition_asked_for_twice_is_refused(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await with_records(broker)
            found = await find(broker, ("a", 0, -1), ("a", 0, -2), ("a", 1, -1))
            assert found == [(ErrorCode.invalid_request, -1, -1, -1), (ErrorCode.none, -1, 0, 0)]

        await on_broker(tmp_path, use)

    @pytest.mark.parametrize(("epoch", "error"), [(0, ErrorCode.none), (1, ErrorCode.unknown_leader_epoch)])
    async def test_leader_epochs_are_compared(self, tmp_path: Path, epoch: int, error: ErrorCode) -> None:
        async def use(broker: BrokerContext) -> None:
            await with_records(broker)
            assert (await find(broker, ("a", 0, -1), epoch=epoch))[0][0] is error

        await on_broker(tmp_path, use)

    async def test_how_far_each_kind_of_reader_sees(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await with_records(broker)
            partition = broker.replicas.find("a", 0)
            partition.leader.high_watermark = 4
            partition.log.producers.first_unstable_offset = 2
            assert [(await find(broker, ("a", 0, -1)))[0][2], (await find(broker, ("a", 0, 3500)))[0][2]] == [4, 3]
            assert (await find(broker, ("a", 0, -1), isolation_level=1))[0][2] == 2
            assert await find(broker, ("a", 0, 3500), isolation_level=1) == [NOTHING]
            assert await find(broker, ("a", 0, -3), isolation_level=1) == [NOTHING]
            for replica_id in (-2, 5):
                assert (await find(broker, ("a", 0, -1), replica_id=replica_id))[0][2] == 6
            (refused,) = await find(broker, ("a", 0, -1), replica_id=5, is_proved=False)
            assert refused[:3] == (ErrorCode.topic_authorization_failed, -1, -1)

        await on_broker(tmp_path, use)

    async def test_a_new_leader_that_knows_no_high_watermark_says_so(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            topic = await make_topic(broker, "a")
            append(with_follower(broker, "a"), [1000, 3000, 2000])
            now_led(broker, topic, leader_epoch=1, replicas=(1, 7), isr=(1, 7))
            assert (await find(broker, ("a", 0, -1)))[0][0] is ErrorCode.offset_not_available
            assert (await find(broker, ("a", 0, 2000)))[0][0] is ErrorCode.offset_not_available
            assert (await find(broker, ("a", 0, -2)))[0][0] is ErrorCode.none

        await on_broker(tmp_path, use)

    async def test_logs_are_loaded_again_when_they_are_first_needed(self, tmp_path: Path) -> None:
        await on_broker(tmp_path, with_records)

        async def use(broker: BrokerContext) -> None:
            assert await find(broker, ("a", 0, -2)) == [(ErrorCode.none, -1, 0, 0)]
            assert await find(broker, ("a", 0, 4500)) == [(ErrorCode.none, 5000, 3, 0)]
            assert (await find(broker, ("a", 0, -1)))[0][2] == 6

        await on_broker(tmp_path, use)


async def epoch_end(
    broker: BrokerContext, epoch: int, *, topic: str = "a", partition: int = 0, current: int = -1
) -> tuple[ErrorCode, int, int]:
    part = zero(epochs.OffsetForLeaderPartition, partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    topics = (zero(epochs.OffsetForLeaderTopic, topic=topic, partitions=(part,)),)
    response = await offset_for_leader_epoch(broker, zero(epochs.OffsetForLeaderEpochRequest, topics=topics), CALLER)
    ((end,),) = [told.partitions for told in response.topics]
    assert end.partition == partition
    return end.error_code, end.leader_epoch, end.end_offset


async def test_offset_for_leader_epoch(tmp_path: Path) -> None:
    async def use(broker: BrokerContext) -> None:
        await with_records(broker)
        assert await epoch_end(broker, 0) == (ErrorCode.none, 0, 6)
        assert await epoch_end(broker, 0, partition=1) == (ErrorCode.none, 0, 0)
        assert await epoch_end(broker, 1) == (ErrorCode.none, -1, -1)
        assert await epoch_end(broker, -1) == (ErrorCode.none, -1, -1)
        assert await epoch_end(broker, 0, current=0) == (ErrorCode.none, 0, 6)
        assert await epoch_end(broker, 0, current=3) == (ErrorCode.unknown_leader_epoch, -1, -1)
        assert await epoch_end(broker, 0, partition=9) == (ErrorCode.unknown_topic_or_partition, -1, -1)
        assert await epoch_end(broker, 0, topic="nope") == (ErrorCode.unknown_topic_or_partition, -1, -1)

    await on_broker(tmp_path, use)


async def test_an_epoch_that_a_log_never_had_ends_where_the_one_before_it_does(tmp_path: Path) -> None:
    async def use(broker: BrokerContext) -> None:
        for _ in range(2):
            await broker.controller.move_leader("a", 0)
        partition = broker.replicas.find("a", 0)
        assert partition.leader.leader_epoch == 2
        assert not partition.log.is_open
        assert await epoch_end(broker, 1) == (ErrorCode.none, 0, 6)
        assert await epoch_end(broker, 2) == (ErrorCode.none, 2, 6)
        assert await epoch_end(broker, 3) == (ErrorCode.none, -1, -1)

    await on_broker(tmp_path, with_records)
    await on_broker(tmp_path, use)


async def delete_before(
    broker: BrokerContext, offset: int, *, topic: str = "a", partition: int = 0
) -> tuple[ErrorCode, int]:
    part = zero(deleting.DeleteRecordsPartition, partition_index=partition, offset=offset)
    topics = (zero(deleting.DeleteRecordsTopic, name=topic, partitions=(part,)),)
    response = await delete_records(broker, zero(deleting.DeleteRecordsRequest, topics=topics), CALLER)
    ((result,),) = [told.partitions for told in response.topics]
    assert result.partition_index == partition
    return result.error_code, result.low_watermark


class TestDeleteRecords:
    async def test_the_start_moves_forward_only(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await with_records(broker)
            assert await delete_before(broker, 2) == (ErrorCode.none, 2)
            assert await delete_before(broker, 1) == (ErrorCode.none, 2)
            assert (await find(broker, ("a", 0, -2)))[0][2] == 2
            assert await delete_before(broker, -1) == (ErrorCode.none, 6)
            assert (await find(broker, ("a", 0, -2)))[0][2] == 6

        await on_broker(tmp_path, use)

    async def test_what_is_refused(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await with_records(broker)
            await make_topic(broker, "compacted", cleanup_policy="compact")
            await make_topic(broker, "__consumer_offsets")
            assert await delete_before(broker, 7) == (ErrorCode.offset_out_of_range, -1)
            assert await delete_before(broker, -2) == (ErrorCode.offset_out_of_range, -1)
            assert await delete_before(broker, 0, partition=9) == (ErrorCode.unknown_topic_or_partition, -1)
            assert await delete_before(broker, 0, topic="nope") == (ErrorCode.unknown_topic_or_partition, -1)
            assert await delete_before(broker, 0, topic="compacted") == (ErrorCode.policy_violation, -1)
            assert await delete_before(broker, 0, topic="__consumer_offsets") == (ErrorCode.invalid_topic_exception, -1)

        await on_broker(tmp_path, use)
