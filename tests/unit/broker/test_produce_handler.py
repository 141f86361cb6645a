"""Produce over real logs."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.handlers.produce import produce
from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.partition import PartitionLeader
from barnabas.model.errors import ErrorCode, NotLeaderOrFollower
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Codec
from barnabas.protocol.records.records import Record
from barnabas.storage.log import Log
from tests.support.faulty_files import BadDisk
from tests.support.images import CALLER
from tests.support.parts import make_topic, running_parts
from tests.support.produce_fetch import fetch_request, fetched, produce_request, produced
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.broker.context import Broker
    from barnabas.broker.partition import Partition
    from barnabas.machines.controller.image import TopicImage

NOW = 1_700_000_000_000
VERSIONS = [3, 7, 8, 9, 12, 13]


def batch(count: int = 3, **fields: Any) -> bytes:
    records = [Record(delta, 0, b"key", b"value" * 20) for delta in range(count)]
    return build_batch(records, base_timestamp=NOW, **fields)


def run(tmp_path: Path, story: Callable[[Broker], Awaitable[None]], **properties: str) -> None:
    async def main() -> None:
        settings = {name.replace("_", "."): text for name, text in properties.items()}
        async with running_parts(tmp_path, settings) as broker:
            await story(broker)

    asyncio.run(main())


def send(broker: Broker, version: int, records: bytes | None, index: int = 0, **request: Any) -> Answer | Parked:
    topic = broker.metadata.topic("t")
    assert topic is not None
    frame = produce_request(version, {("t", topic.topic_id, index): records}, **request)
    return produce(broker, CALLER, version, 5, frame, 0)


async def answer_of(answer: Answer | Parked) -> Answer:
    if not isinstance(answer, Parked):
        return answer
    if not answer.resolved:
        done = asyncio.Event()
        answer.notify = done.set
        await asyncio.wait_for(done.wait(), 10)
    assert not isinstance(answer.answer, Parked)
    return answer.answer


def stored(broker: Broker, index: int = 0) -> list[bytes]:
    """The batches of a partition, as a consumer gets them."""
    from barnabas.broker.handlers.fetch import fetch

    topic = broker.metadata.topic("t")
    assert topic is not None
    frame = fetch_request(12, {("t", topic.topic_id): {index: 0}}, session_epoch=-1)
    records = fetched(12, fetch(broker, CALLER, 12, 5, frame, 0)).responses[0].partitions[0].records
    batches = []
    while records:
        size = read_header(records).size
        batches.append(records[:size])
        records = records[size:]
    return batches


def now_led(broker: Broker, topic: TopicImage, **state: Any) -> None:
    """Tell the broker of another state of a topic's first partition."""
    first, *rest = topic.partitions
    broker.replicas.take_all([replace(topic, partitions=(replace(first, **state), *rest))])


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_get_offsets_and_are_stored_as_they_are(tmp_path: Path, version: int) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        sent = [batch(3), batch(2, codec=Codec.LZ4), batch(1)]
        bases = [produced(version, send(broker, version, one))[0].base_offset for one in sent]
        assert bases == [0, 3, 5]
        assert [one[16:] for one in stored(broker)] == [one[16:] for one in sent]
        assert [read_header(one).base_offset for one in stored(broker)] == bases

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("records", "request_fields", "error"),
    [
        (None, {}, ErrorCode.invalid_record),
        (b"", {}, ErrorCode.invalid_record),
        (batch()[:-1], {}, ErrorCode.invalid_record),
        (batch()[:-1] + b"?", {}, ErrorCode.corrupt_message),
        (batch(), {"acks": 2}, ErrorCode.invalid_required_acks),
        (
            batch(2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            {},
            ErrorCode.transactional_id_authorization_failed,
        ),
        (batch(control=True), {}, ErrorCode.invalid_record),
    ],
)
def test_what_is_refused_and_leaves_nothing(
    tmp_path: Path, records: bytes | None, request_fields: Any, error: ErrorCode
) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        (result,) = produced(12, send(broker, 12, records, **request_fields))
        assert result.error_code is error
        assert result.error_message
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        assert partition.log.log_end_offset == 0

    run(tmp_path, story)


def test_each_partition_has_its_own_result(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t", partitions=2)
        request = {("t", topic.topic_id, 7): batch(), ("t", topic.topic_id, 1): batch(), ("x", topic.topic_id, 0): b"?"}
        results = produced(12, produce(broker, CALLER, 12, 5, produce_request(12, request), 0))
        assert [(result.index, result.error_code) for result in results] == [
            (7, ErrorCode.unknown_topic_or_partition),
            (1, ErrorCode.none),
            (0, ErrorCode.unknown_topic_or_partition),
        ]

    run(tmp_path, story)


def test_acks_of_all_need_enough_replicas_before_and_after_the_append(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", min_insync_replicas="2")
        (refused,) = produced(12, send(broker, 12, batch(), acks=-1))
        partition = broker.replicas.find("t", 0)
        assert refused.error_code is ErrorCode.not_enough_replicas
        assert partition.log.log_end_offset == 0
        partition.leader = PartitionLeader(
            broker_id=0, leader_epoch=0, replicas=(0, 1), isr=(0, 1), log_end_offset=0, high_watermark=0
        )
        waiting = send(broker, 12, batch(), acks=-1)
        assert isinstance(waiting, Parked)
        assert not waiting.resolved
        partition.commit_isr((0,), 1)
        (result,) = produced(12, await answer_of(waiting))
        assert result.error_code is ErrorCode.not_enough_replicas_after_append
        assert partition.log.log_end_offset == partition.leader.high_watermark == 3
        (alone,) = produced(12, send(broker, 12, batch(), acks=1))
        assert (alone.error_code, alone.base_offset) == (ErrorCode.none, 3)

    run(tmp_path, story)


def test_a_batch_is_out_of_order_when_a_follower_shows_that_this_broker_still_leads(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        partition = broker.replicas.find("t", 0)
        partition.leader = PartitionLeader(
            broker_id=1, leader_epoch=0, replicas=(1, 7), isr=(1, 7), log_end_offset=0, high_watermark=0
        )

        def later(**fields: Any) -> Parked:
            waiting = send(broker, 12, batch(1, producer_id=5, producer_epoch=0, **fields), acks=-1)
            assert isinstance(waiting, Parked)
            assert not waiting.resolved
            return waiting

        async def error_of(waiting: Parked) -> ErrorCode:
            (result,) = produced(12, await answer_of(waiting))
            code: ErrorCode = result.error_code
            return code

        first = later(base_sequence=0)
        gap = later(base_sequence=2)
        partition.fetched_by(7, 5, 0, 1, 0.0)
        assert [await error_of(first), await error_of(gap)] == [ErrorCode.none, ErrorCode.out_of_order_sequence_number]
        gap = later(base_sequence=3)
        partition.commit_isr((1,), 1)
        assert await error_of(gap) is ErrorCode.out_of_order_sequence_number
        partition.commit_isr((1, 7), 2)
        gap = later(base_sequence=4)
        partition.fail(NotLeaderOrFollower("another broker leads"))
        assert await error_of(gap) is ErrorCode.not_leader_or_follower

    run(tmp_path, story)


def test_an_unknown_topic_id(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t")
        await broker.controller.delete_topics(["t"])
        frame = produce_request(13, {("t", topic.topic_id, 0): batch()})
        (result,) = produced(13, produce(broker, CALLER, 13, 5, frame, 0))
        assert result.error_code is ErrorCode.unknown_topic_id

    run(tmp_path, story)


def test_acks_0_has_no_answer_and_an_error_ends_the_connection(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        assert send(broker, 12, batch(), acks=0) is None
        assert send(broker, 12, b"?" * 100, acks=0) is HANG_UP
        assert len(stored(broker)) == 1

    run(tmp_path, story)


def test_acks_all_needs_enough_replicas(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", min_insync_replicas="2")
        (result,) = produced(12, send(broker, 12, batch(), acks=-1))
        assert result.error_code is ErrorCode.not_enough_replicas
        (result,) = produced(12, send(broker, 12, batch(), acks=1))
        assert result.error_code is ErrorCode.none

    run(tmp_path, story)


def test_a_repeated_batch_is_answered_with_its_first_offset_and_a_gap_is_refused(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        first, second, gap = (batch(2, producer_id=9, producer_epoch=0, base_sequence=n) for n in (0, 2, 6))
        results = [produced(12, send(broker, 12, one))[0] for one in (first, second, first, gap)]
        assert [(result.error_code, result.base_offset) for result in results] == [
            (ErrorCode.none, 0),
            (ErrorCode.none, 2),
            (ErrorCode.none, 0),
            (ErrorCode.out_of_order_sequence_number, -1),
        ]
        assert len(stored(broker)) == 2

    run(tmp_path, story)


def test_a_topic_with_a_codec_of_its_own_recompresses(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", compression_type="zstd")
        answer = send(broker, 12, batch(50))
        assert isinstance(answer, Parked)
        assert not answer.overtakable
        (result,) = produced(12, await answer_of(answer))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        (only,) = stored(broker)
        assert read_header(only).codec == Codec.ZSTD

    run(tmp_path, story)


def test_the_first_batch_of_a_log_waits_for_its_files(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", ready=False)
        first = send(broker, 12, batch())
        assert isinstance(first, Parked)
        assert not first.overtakable
        (result,) = produced(12, await answer_of(first))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        (result,) = produced(12, send(broker, 12, batch()))
        assert result.base_offset == 3

    run(tmp_path, story)


def test_compacted_topics_need_keys(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", cleanup_policy="compact")
        keyless = build_batch([Record(0, 0, None, b"value")], base_timestamp=NOW)
        (result,) = produced(12, await answer_of(send(broker, 12, keyless)))
        assert result.error_code is ErrorCode.invalid_record
        (result,) = produced(12, await answer_of(send(broker, 12, batch())))
        assert result.error_code is ErrorCode.none

    run(tmp_path, story)


def test_with_flush_messages_1_the_answer_waits_for_the_disk(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", flush_messages="1")
        answer = send(broker, 12, batch())
        assert isinstance(answer, Parked)
        assert answer.overtakable
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        assert partition.leader.high_watermark == 0
        (result,) = produced(12, await answer_of(answer))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        assert partition.leader.high_watermark == 3
        assert partition.log.recovery_point == 3

    run(tmp_path, story)


def with_follower(partition: Partition) -> PartitionLeader:
    """Let broker 7 follow an empty partition, in sync."""
    partition.leader = PartitionLeader(
        broker_id=1, leader_epoch=0, replicas=(1, 7), isr=(1, 7), log_end_offset=0, high_watermark=0
    )
    return partition.leader


def test_with_acks_1_the_answer_waits_for_the_disk_and_not_for_followers(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", flush_messages="4")
        partition = broker.replicas.find("t", 0)
        leader = with_follower(partition)
        (result,) = produced(12, send(broker, 12, batch(3), acks=1))
        assert (result.error_code, partition.log.recovery_point) == (ErrorCode.none, 0)
        (result,) = produced(12, await answer_of(send(broker, 12, batch(1), acks=1)))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 3)
        assert (partition.log.recovery_point, leader.high_watermark) == (4, 0)

    run(tmp_path, story)


def test_with_acks_1_a_disk_that_cannot_sync_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(log: Log) -> int:
        raise log._store.fail(OSError(5, "Input/output error"), "a test")

    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", flush_messages="1")
        with_follower(broker.replicas.find("t", 0))
        monkeypatch.setattr(Log, "flush", flush)
        (result,) = produced(12, await answer_of(send(broker, 12, batch(), acks=1)))
        assert result.error_code is ErrorCode.kafka_storage_error

    run(tmp_path, story)


def test_a_sync_that_ends_after_the_next_append_leaves_that_to_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", flush_messages="4")
        partition = broker.replicas.find("t", 0)
        leader = with_follower(partition)
        synced: Future[int] = Future()
        monkeypatch.setattr(broker.logs, "flush_through", lambda log, offset: synced)
        first = send(broker, 12, batch(4), acks=-1)
        partition.log.flush()
        second = send(broker, 12, batch(1), acks=-1)
        synced.set_result(4)
        await asyncio.sleep(0)
        partition.fetched_by(7, -1, 0, 5, 0.0)
        assert leader.high_watermark == 5
        for answer in (first, second):
            assert produced(12, await answer_of(answer))[0].error_code is ErrorCode.none

    run(tmp_path, story)


def test_a_sync_that_ends_while_a_leadership_begins_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t", flush_messages="1")
        monkeypatch.setattr(broker.logs, "flush_through", lambda log, offset: Future())
        send(broker, 12, batch(), acks=0)
        monkeypatch.undo()
        due = iter((True, False))
        monkeypatch.setattr(Log, "flush_required", property(lambda log: next(due, False)))
        now_led(broker, topic, leader_epoch=1)
        leader = broker.replicas.find("t", 0).leader
        async with asyncio.timeout(10):
            while leader.high_watermark < 3:
                await asyncio.sleep(0)

    run(tmp_path, story)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("sync_is_due", [True, False])
def test_what_waits_for_the_disk_waits_on_in_a_new_leader_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int, sync_is_due: bool
) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t", flush_messages="1")
        syncs: list[Future[int]] = []

        def flush_through(log: Log, end_offset: int) -> Future[int]:
            syncs.append(Future())
            return syncs[-1]

        monkeypatch.setattr(broker.logs, "flush_through", flush_through)
        answer = send(broker, 12, batch(), acks=acks)
        if not sync_is_due:
            await broker.controller.alter_configs({ConfigResource.topic("t"): {"flush.messages": "100"}})
        now_led(broker, topic, leader_epoch=1)
        leader = broker.replicas.find("t", 0).leader
        assert (leader.leader_epoch, leader.high_watermark) == (1, 0 if sync_is_due else 3)
        assert isinstance(answer, Parked)
        assert answer.resolved == (acks == -1 and not sync_is_due)  # it is committed without a sync then
        broker.replicas.find("t", 0).log.flush()
        for sync in syncs:
            sync.set_result(3)
        (result,) = produced(12, await answer_of(answer))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        async with asyncio.timeout(10):
            while leader.high_watermark < 3:
                await asyncio.sleep(0)

    run(tmp_path, story)


def test_acks_all_waits_on_where_this_broker_leads_on(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t")
        now_led(broker, topic, leader_epoch=1, replicas=(1, 7, 8), isr=(1, 7, 8))
        first = send(broker, 12, batch(), acks=-1)
        second = send(broker, 12, batch(), acks=-1)
        broker.replicas.find("t", 0).fetched_by(7, 5, 0, 6, 0.0)
        now_led(broker, topic, leader_epoch=2, replicas=(1, 7, 8), isr=(1, 7))
        for waiting in (first, second):
            assert isinstance(waiting, Parked)
            assert not waiting.resolved  # what a follower had in the former epoch says nothing of this one
        now_led(broker, topic, leader_epoch=3, replicas=(1, 7, 8), isr=(1, 7))
        partition = broker.replicas.find("t", 0)
        partition.fetched_by(7, 5, 0, 3, 0.0)
        (result,) = produced(12, await answer_of(first))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        assert isinstance(second, Parked)
        assert not second.resolved
        partition.fetched_by(7, 5, 0, 6, 0.0)
        (result,) = produced(12, await answer_of(second))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 3)

    run(tmp_path, story)


def test_acks_all_is_told_if_too_few_are_in_sync_where_this_broker_leads_on(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t", min_insync_replicas="2")
        now_led(broker, topic, leader_epoch=1, replicas=(1, 7), isr=(1, 7))
        waiting = send(broker, 12, batch(), acks=-1)
        now_led(broker, topic, leader_epoch=2, replicas=(1, 7), isr=(1,))
        (result,) = produced(12, await answer_of(waiting))
        assert result.error_code is ErrorCode.not_enough_replicas_after_append

    run(tmp_path, story)


def test_acks_all_waits_no_longer_after_another_broker_led(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t")
        now_led(broker, topic, leader_epoch=1, replicas=(1, 7), isr=(1, 7))
        former = broker.replicas.find("t", 0)
        waiting = send(broker, 12, batch(), acks=-1)
        now_led(broker, topic, leader=7, leader_epoch=2, replicas=(1, 7), isr=(1, 7))
        (result,) = produced(12, await answer_of(waiting))
        assert result.error_code is ErrorCode.not_leader_or_follower
        former.log.truncate_to(0)
        now_led(broker, topic, leader_epoch=3, replicas=(1, 7), isr=(1,))
        produced(12, send(broker, 12, batch(), acks=-1))
        assert broker.replicas.find("t", 0).leader.high_watermark == 3
        errors: list[Any] = []
        former.when_committed(3, errors.append)  # what it waits for was cut: these are other records
        assert [error.code for error in errors] == [ErrorCode.not_leader_or_follower]

    run(tmp_path, story)


def test_what_was_stored_before_a_new_leader_epoch_is_answered_when_the_rest_of_its_request_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t", 2, ready=False)
        ready, late = (broker.replicas.find("t", index) for index in (0, 1))
        ready.log.prepare()
        now_led(broker, topic, leader_epoch=1, replicas=(1, 7), isr=(1, 7))
        prepare = Log.prepare

        def prepare_late(log: Log) -> None:
            if log is late.log:
                wait_until(lambda: broker.replicas.find("t", 0).leader.leader_epoch == 2, "the new leader epoch")
            prepare(log)

        monkeypatch.setattr(Log, "prepare", prepare_late)
        frame = produce_request(12, {("t", topic.topic_id, index): batch() for index in (0, 1)}, acks=-1)
        answer = produce(broker, CALLER, 12, 5, frame, 0)
        now_led(broker, topic, leader_epoch=2, replicas=(1, 7), isr=(1, 7))
        async with asyncio.timeout(10):
            while late.log.log_end_offset < 3:
                await asyncio.sleep(0.01)
        broker.replicas.find("t", 0).fetched_by(7, 5, 0, 3, 0.0)
        results = produced(12, await answer_of(answer))
        assert [(result.error_code, result.base_offset) for result in results] == [(ErrorCode.none, 0)] * 2

    run(tmp_path, story)


def test_what_is_committed_while_another_log_is_made_ready_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t", 2, ready=False, flush_messages="1")
        ready, late = (broker.replicas.find("t", index) for index in (0, 1))
        ready.log.prepare()
        prepare = Log.prepare

        def prepare_late(log: Log) -> None:
            if log is late.log:
                wait_until(lambda: ready.leader.high_watermark == 3, "the other batch to be committed")
            prepare(log)

        monkeypatch.setattr(Log, "prepare", prepare_late)
        frame = produce_request(12, {("t", topic.topic_id, index): batch() for index in (0, 1)})
        results = produced(12, await answer_of(produce(broker, CALLER, 12, 5, frame, 0)))
        assert [(result.error_code, result.base_offset) for result in results] == [(ErrorCode.none, 0)] * 2

    run(tmp_path, story)


def test_who_waits_on_a_partition_that_has_failed_is_told_at_once(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        partition = broker.replicas.find("t", 0)
        await broker.controller.delete_topics(["t"])
        errors: list[Any] = []
        partition.when_committed(100, errors.append)
        assert [error.code for error in errors] == [ErrorCode.unknown_topic_or_partition]

    run(tmp_path, story)


def test_a_deleted_topic_tells_those_who_wait(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        errors: list[Any] = []
        partition.when_committed(100, errors.append)
        await broker.controller.delete_topics(["t"])
        assert [error.code for error in errors] == [ErrorCode.unknown_topic_or_partition]

    run(tmp_path, story)


def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", message_timestamp_type="LogAppendTime")
        (result,) = produced(12, send(broker, 12, batch()))
        assert result.log_append_time is not None
        (only,) = stored(broker)
        assert read_header(only).max_timestamp == broker.clock.now_ms()
        assert round(result.log_append_time.timestamp() * 1000) == broker.clock.now_ms()

    run(tmp_path, story)


class TwoDisks:
    """A topic with a partition on each of two disks, one of which can fail."""

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self.disk = BadDisk(tmp_path / "bad")
        self.broker: Broker
        self.bad = self.good = -1

    def run(self, story: Callable[[], Awaitable[None]], **configs: Any) -> None:
        async def main() -> None:
            disks = {"log.dirs": f"{self._tmp_path / 'bad'},{self._tmp_path / 'good'}"}
            async with running_parts(self._tmp_path, disks, self.disk) as self.broker:
                await make_topic(self.broker, "t", partitions=2, **configs)
                names = [self.broker.replicas.find("t", index).log.log_dir.name for index in range(2)]
                self.bad, self.good = names.index("bad"), names.index("good")
                await story()

        asyncio.run(main())

    async def send(self, index: int) -> tuple[ErrorCode, int]:
        answer = await answer_of(send(self.broker, 12, batch(), index=index))
        (result,) = produced(12, answer)
        return result.error_code, result.base_offset

    def stored(self, index: int) -> list[int]:
        return [read_header(each).base_offset for each in stored(self.broker, index)]


REFUSED = (ErrorCode.kafka_storage_error, -1)


def test_a_full_disk_takes_no_more_while_the_other_goes_on(tmp_path: Path) -> None:
    disks = TwoDisks(tmp_path)

    async def story() -> None:
        assert await disks.send(disks.bad) == await disks.send(disks.good) == (ErrorCode.none, 0)
        disks.disk.full = True
        assert await disks.send(disks.bad) == REFUSED
        disks.disk.full = False
        assert await disks.send(disks.bad) == REFUSED
        assert await disks.send(disks.good) == (ErrorCode.none, 3)
        assert (disks.stored(disks.bad), disks.stored(disks.good)) == ([0], [0, 3])

    disks.run(story)


def test_what_cannot_be_synced_is_not_acknowledged_and_the_other_disk_goes_on(tmp_path: Path) -> None:
    disks = TwoDisks(tmp_path)

    async def story() -> None:
        assert await disks.send(disks.bad) == await disks.send(disks.good) == (ErrorCode.none, 0)
        disks.disk.failing_syncs = True
        assert await disks.send(disks.bad) == REFUSED
        assert await disks.send(disks.bad) == REFUSED
        assert await disks.send(disks.good) == (ErrorCode.none, 3)
        assert (disks.stored(disks.bad), disks.stored(disks.good)) == ([0], [0, 3])

    disks.run(story, flush_messages="1")


async def test_clients_do_not_write_to_the_topics_of_brokers(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        made = await make_topic(broker, "__consumer_offsets")
        frame = produce_request(13, {("__consumer_offsets", made.topic_id, 0): batch()})
        answer = await answer_of(produce(broker, CALLER, 13, 5, frame, 0))
        assert [result.error_code for result in produced(13, answer)] == [ErrorCode.invalid_topic_exception]
        assert broker.replicas.find("__consumer_offsets", 0).log.log_end_offset == 0
