"""Fetch over real logs."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker import lull
from barnabas.broker.handlers.fetch import fetch
from barnabas.machines.partition import PartitionLeader
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import Answer, Parked
from barnabas.protocol.records.batch import PLACE, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.protocol.records.records import Record
from barnabas.storage.log import ColdRead, Log, ReadResult
from tests.support.images import CALLER
from tests.support.logs import split
from tests.support.parts import append, make_topic, running_parts
from tests.support.produce_fetch import fetch_request, fetched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.broker.context import Broker
    from barnabas.broker.partition import Partition

NOW = 1_700_000_000_000
VERSIONS = [4, 5, 7, 11, 12, 13, 18]


def run(tmp_path: Path, story: Callable[[Broker], Awaitable[None]], **properties: str) -> None:
    async def main() -> None:
        settings = {name.replace("_", "."): text for name, text in properties.items()}
        async with running_parts(tmp_path, settings) as broker:
            await story(broker)

    asyncio.run(main())


def ask(broker: Broker, version: int, offsets: dict[int, int], **fields: Any) -> Answer | Parked:
    topic = broker.metadata.topic("t")
    assert topic is not None
    frame = fetch_request(version, {("t", topic.topic_id): offsets} if offsets else {}, **fields)
    return fetch(broker, CALLER, version, 5, frame, 0)


def partition_of(broker: Broker, index: int = 0) -> Partition:
    partition = broker.replicas.get("t", index)
    assert partition is not None
    return partition


def partitions_in(response: Any) -> list[Any]:
    return [partition for topic in response.responses for partition in topic.partitions]


async def resolved(parked: Parked) -> Answer:
    done = asyncio.Event()
    parked.notify = done.set
    if not parked.resolved:
        await asyncio.wait_for(done.wait(), 10)
    assert not isinstance(parked.answer, Parked)
    return parked.answer


@pytest.mark.parametrize("version", VERSIONS)
def test_records_come_back_in_every_version(tmp_path: Path, version: int) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW, NOW + 1])
        append(partition_of(broker), [NOW + 2])
        (answered,) = partitions_in(fetched(version, ask(broker, version, {0: 0})))
        assert (answered.error_code, answered.high_watermark) == (ErrorCode.none, 3)
        assert len(answered.records) == partition_of(broker).log.size
        (answered,) = partitions_in(fetched(version, ask(broker, version, {0: 2})))
        assert answered.records[:8] == (2).to_bytes(8, "big")

    run(tmp_path, story)


def test_a_fetch_waits_for_an_append_and_wakes_with_it(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", partitions=2)
        parked = ask(broker, 12, {0: 0, 1: 0}, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        assert not parked.overtakable
        append(partition_of(broker, 1), [NOW])
        answered = partitions_in(fetched(12, await resolved(parked)))
        assert [(one.partition_index, bool(one.records)) for one in answered] == [(0, False), (1, True)]

    run(tmp_path, story)


def test_a_fetch_gives_up_after_its_longest_wait(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        parked = ask(broker, 12, {0: 0}, max_wait_ms=20)
        assert isinstance(parked, Parked)
        (answered,) = partitions_in(fetched(12, await resolved(parked)))
        assert (answered.error_code, answered.records) == (ErrorCode.none, b"")

    run(tmp_path, story)


def test_a_fetch_waits_until_there_is_as_much_as_it_wants(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        size = partition_of(broker).log.size
        parked = ask(broker, 12, {0: 0}, max_wait_ms=60_000, min_bytes=2 * size)
        assert isinstance(parked, Parked)
        append(partition_of(broker), [NOW])
        (answered,) = partitions_in(fetched(12, await resolved(parked)))
        assert len(answered.records) == 2 * size

    run(tmp_path, story)


def test_an_abandoned_fetch_watches_nothing(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        parked = ask(broker, 12, {0: 0}, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        parked.abandon()
        assert not partition_of(broker)._watchers
        append(partition_of(broker), [NOW])
        await asyncio.sleep(0)
        assert not parked.resolved

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("offsets", "fields", "error"),
    [
        ({0: 9}, {}, ErrorCode.offset_out_of_range),
        ({0: -5}, {}, ErrorCode.offset_out_of_range),
        ({4: 0}, {}, ErrorCode.unknown_topic_or_partition),
        ({0: 0}, {"current_leader_epoch": 99}, ErrorCode.unknown_leader_epoch),
    ],
)
def test_errors_are_answered_at_once(tmp_path: Path, offsets: dict[int, int], fields: Any, error: ErrorCode) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        (answered,) = partitions_in(fetched(12, ask(broker, 12, offsets, max_wait_ms=60_000, **fields)))
        assert (answered.error_code, answered.high_watermark) == (error, -1)

    run(tmp_path, story)


def test_a_consumer_from_another_time_is_told_where_its_log_ends(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        (answered,) = partitions_in(fetched(12, ask(broker, 12, {0: 1}, last_fetched_epoch=0)))
        assert answered.diverging_epoch.end_offset == -1
        partition = partition_of(broker)
        partition.log.assign_epoch(5, 1)
        (answered,) = partitions_in(fetched(12, ask(broker, 12, {0: 1}, last_fetched_epoch=3)))
        assert (answered.diverging_epoch.epoch, answered.diverging_epoch.end_offset) == (0, 1)

    run(tmp_path, story)


def test_limits_and_the_first_batch_that_is_sent_whatever_its_size(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", partitions=3)
        for index in range(3):
            append(partition_of(broker, index), [NOW] * 10)
            append(partition_of(broker, index), [NOW])
        whole = partition_of(broker).log.size
        first = whole - 74
        answered = partitions_in(fetched(12, ask(broker, 12, {0: 0, 1: 0, 2: 0}, max_bytes=1)))
        assert len(answered[0].records) >= first // 2
        assert [len(one.records) for one in answered[1:]] == [0, 0]
        answered = partitions_in(fetched(12, ask(broker, 12, {0: 0, 1: 0, 2: 0}, max_bytes=whole + 10)))
        assert [len(one.records) for one in answered] == [whole, 10, 0]
        answered = partitions_in(fetched(12, ask(broker, 12, {0: 0}, partition_max_bytes=whole - 3)))
        assert len(answered[0].records) == whole - 3

    run(tmp_path, story)


def test_a_session_tells_only_what_changed(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", partitions=3)
        full = fetched(13, ask(broker, 13, {0: 0, 1: 0, 2: 0}, session_epoch=0))
        assert len(partitions_in(full)) == 3
        assert full.session_id > 0
        append(partition_of(broker, 2), [NOW])
        session = {"session_id": full.session_id}
        second = fetched(13, ask(broker, 13, {}, session_epoch=1, **session))
        assert [one.partition_index for one in partitions_in(second)] == [2]
        third = ask(broker, 13, {2: 1}, session_epoch=2, **session)
        assert partitions_in(fetched(13, third)) == []
        lost = fetched(13, ask(broker, 13, {}, session_epoch=9, **session))
        assert lost.error_code is ErrorCode.invalid_fetch_session_epoch

    run(tmp_path, story)


def test_committed_readers_get_a_list_of_aborted_transactions_and_others_none(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        (plain,) = partitions_in(fetched(12, ask(broker, 12, {0: 0})))
        (committed,) = partitions_in(fetched(12, ask(broker, 12, {0: 0}, isolation_level=1)))
        assert (plain.aborted_transactions, committed.aborted_transactions) == (None, ())
        assert committed.records == plain.records

    run(tmp_path, story)


def test_what_is_not_in_memory_is_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_thread: list[bool] = []
    read = Log.read

    def cold_read(self: Log, *wanted: Any, may_block: bool = True) -> ReadResult:
        in_thread.append(threading.current_thread() is not threading.main_thread())
        if not may_block and True not in in_thread:
            raise ColdRead("not in memory")
        return read(self, *wanted, may_block=may_block)

    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        parked = ask(broker, 12, {0: 0}, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        (answered,) = partitions_in(fetched(12, await resolved(parked)))
        assert (answered.error_code, len(answered.records)) == (ErrorCode.none, partition_of(broker).log.size)
        assert in_thread == [False, True, False]

    monkeypatch.setattr(Log, "read", cold_read)
    run(tmp_path, story)


def test_a_disk_that_cannot_be_read_is_told_for_its_partition_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    read = Log.read

    def cold_read(self: Log, *wanted: Any, may_block: bool = True) -> ReadResult:
        if self.tp.partition == 1:
            return read(self, *wanted, may_block=may_block)
        if not may_block:
            raise ColdRead("not in memory")
        waited.append(self.tp.partition)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", partitions=2)
        for index in range(2):
            append(partition_of(broker, index), [NOW])
        parked = ask(broker, 12, {0: 0, 1: 0}, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        bad, good = partitions_in(fetched(12, await resolved(parked)))
        assert (bad.error_code, bad.records) == (ErrorCode.kafka_storage_error, b"")
        assert (good.error_code, len(good.records)) == (ErrorCode.none, partition_of(broker, 1).log.size)
        assert waited == [0]

    monkeypatch.setattr(Log, "read", cold_read)
    run(tmp_path, story)


def transactional(producer_id: int, sequence: int = 0) -> bytes:
    """A batch of two records in a transaction."""
    records = [Record(delta, 0, None, b"value") for delta in range(2)]
    return build_batch(
        records,
        base_timestamp=NOW,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


def end(kind: ControlType, producer_id: int) -> bytes:
    """The marker that ends a transaction."""
    return build_marker(EndOfTransaction(kind, 0), timestamp=NOW, producer_id=producer_id, producer_epoch=0)


def replicate(partition: Partition, *batches: bytes) -> None:
    """Write batches one after another, as they would come from Kafka."""
    for each in batches:
        placed = PLACE.pack(partition.log.log_end_offset, read_header(each).batch_length, 0) + each[PLACE.size :]
        partition.log.append_replica(placed, now_ms=NOW)
    partition.leader.appended(partition.log.log_end_offset)


async def committed(broker: Broker, offset: int, **fields: Any) -> Any:
    """What a reader of committed data gets of partition 0, if need be after a thread has read from disk."""
    answer = ask(broker, 12, {0: offset}, isolation_level=1, **fields)
    if isinstance(answer, Parked):
        answer = await resolved(answer)
    (answered,) = partitions_in(fetched(12, answer))
    assert answered.error_code is ErrorCode.none
    return answered


def told(answered: Any) -> tuple[int, list[int], list[tuple[int, int]]]:
    """The last stable offset, the base offsets of the batches, and the aborted transactions."""
    aborted = [(one.producer_id, one.first_offset) for one in answered.aborted_transactions]
    return answered.last_stable_offset, [read_header(each).base_offset for each in split(answered.records)], aborted


def test_committed_readers_stop_at_the_oldest_open_transaction(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        partition = partition_of(broker)
        append(partition, [NOW])
        replicate(partition, transactional(7), transactional(8), end(ControlType.COMMIT, 8))
        assert told(await committed(broker, 0)) == (1, [0], [])
        assert told(await committed(broker, 1)) == (1, [], [])
        (plain,) = partitions_in(fetched(12, ask(broker, 12, {0: 0})))
        assert (plain.high_watermark, plain.last_stable_offset, plain.aborted_transactions) == (6, 1, None)
        assert len(split(plain.records)) == 4
        parked = ask(broker, 12, {0: 1}, isolation_level=1, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        replicate(partition, end(ControlType.ABORT, 7))
        partition.wake_watchers()
        (answered,) = partitions_in(fetched(12, await resolved(parked)))
        assert told(answered) == (7, [1, 3, 5, 6], [(7, 1)])

    run(tmp_path, story)


def test_committed_readers_are_told_of_the_aborted_transactions_in_what_they_get(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t", index_interval_bytes="0")
        partition = partition_of(broker)
        replicate(partition, transactional(7), transactional(8), end(ControlType.ABORT, 8))
        partition.log.roll(NOW)
        replicate(partition, transactional(9), end(ControlType.COMMIT, 9), end(ControlType.ABORT, 7))
        replicate(partition, transactional(8, 2), end(ControlType.ABORT, 8))
        assert told(await committed(broker, 0)) == (12, [0, 2, 4], [(8, 2), (7, 0)])
        assert told(await committed(broker, 5)) == (12, [5, 7, 8, 9, 11], [(7, 0), (8, 9)])
        size = len(transactional(9))
        assert told(await committed(broker, 5, partition_max_bytes=size)) == (12, [5], [(7, 0)])
        assert told(await committed(broker, 9))[2] == [(8, 9)]
        assert told(await committed(broker, 12)) == (12, [], [])

    run(tmp_path, story)


def test_transactions_are_known_again_after_a_restart(tmp_path: Path) -> None:
    async def write(broker: Broker) -> None:
        await make_topic(broker, "t")
        partition = partition_of(broker)
        replicate(partition, transactional(7), end(ControlType.ABORT, 7), transactional(8))

    async def story(broker: Broker) -> None:
        assert not partition_of(broker).log.is_open
        assert told(await committed(broker, 5)) == (3, [], [])
        assert told(await committed(broker, 0)) == (3, [0, 2], [(7, 0)])
        partition = partition_of(broker)
        partition.log.truncate_to(2)
        assert (partition.log.first_unstable_offset, told(await committed(broker, 0))[1:]) == (0, ([], []))

    run(tmp_path, write)
    run(tmp_path, story)


def followed(broker: Broker) -> Partition:
    """A partition with a follower, broker 7."""
    partition = partition_of(broker)
    end = partition.log.log_end_offset
    partition.leader = PartitionLeader(
        broker_id=0, leader_epoch=0, replicas=(0, 7), isr=(0, 7), log_end_offset=end, high_watermark=end
    )
    return partition


async def watched(partition: Partition) -> None:
    """Wait until a fetch waits for more in this partition."""
    async with asyncio.timeout(10):
        while not partition._watchers | partition._follower_watchers:
            await asyncio.sleep(0)


def test_a_follower_is_told_at_once_of_records_and_of_their_deletion(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        partition = followed(broker)
        opened = fetched(12, ask(broker, 12, {0: 0}, replica_id=7, session_epoch=0))
        (first,) = partitions_in(opened)
        assert first.records
        session = {"replica_id": 7, "session_id": opened.session_id, "max_wait_ms": 60_000}
        waiting = ask(broker, 12, {0: 1}, session_epoch=1, **session)
        assert isinstance(waiting, Parked)
        append(partition, [NOW])
        (second,) = partitions_in(fetched(12, await resolved(waiting)))
        assert read_header(second.records).base_offset == 1
        assert partition.leader.high_watermark == 1
        waiting = ask(broker, 12, {0: 2}, session_epoch=2, **session)
        assert isinstance(waiting, Parked)
        await watched(partition)
        assert partition.leader.high_watermark == 2
        partition.delete_before(1)
        (third,) = partitions_in(fetched(12, await resolved(waiting)))
        assert (third.log_start_offset, third.records) == (1, b"")

    run(tmp_path, story)


def follow(broker: Broker, offset: int, min_bytes: int = 1) -> Parked:
    """A fetch of broker 7 that can wait."""
    waiting = ask(broker, 12, {0: offset}, replica_id=7, max_wait_ms=60_000, min_bytes=min_bytes)
    assert isinstance(waiting, Parked)
    return waiting


@pytest.mark.parametrize("came", ["before", "after"])
def test_a_follower_gets_together_what_comes_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, came: str
) -> None:
    monkeypatch.setattr(lull, "LONGEST", 60)  # however busy the machine is

    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        partition = followed(broker)
        if came == "before":
            waiting = follow(broker, 1)
            await watched(partition)
            append(partition, [NOW])
        else:
            append(partition, [NOW])
            waiting = follow(broker, 1)
        await asyncio.sleep(0)
        assert not waiting.resolved
        append(partition, [NOW])
        (answered,) = partitions_in(fetched(12, await resolved(waiting)))
        assert [read_header(batch).base_offset for batch in split(answered.records)] == [1, 2]

    run(tmp_path, story)


@pytest.mark.parametrize("min_bytes", [0, 1])
def test_how_far_a_follower_is_counts_at_once_and_what_there_is_comes_in_a_lull(tmp_path: Path, min_bytes: int) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        partition = followed(broker)
        append(partition, [NOW])
        append(partition, [NOW])
        waiting = follow(broker, 1, min_bytes)
        assert (partition.leader.high_watermark, waiting.resolved) == (1, False)
        (answered,) = partitions_in(fetched(12, await resolved(waiting)))
        assert [read_header(batch).base_offset for batch in split(answered.records)] == [1]

    run(tmp_path, story)


@pytest.mark.parametrize(("longest", "turns"), [(60.0, lull.MOST_TURNS), (0.0, 1)], ids=["by turns", "by time"])
def test_a_follower_does_not_wait_for_ever_for_a_lull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: float, turns: int
) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        partition = followed(broker)
        waiting = follow(broker, 1)
        await watched(partition)
        appended = 0
        while not waiting.resolved:
            append(partition, [NOW])
            appended += 1
            await asyncio.sleep(0)
        assert appended == turns

    monkeypatch.setattr(lull, "LONGEST", longest)
    run(tmp_path, story)


@pytest.mark.parametrize("follower", [{}, {"replica_id": 7}], ids=["a consumer", "a follower"])
def test_a_fetch_goes_on_waiting_when_its_partition_has_a_new_leader_epoch(
    tmp_path: Path, follower: dict[str, int]
) -> None:
    async def story(broker: Broker) -> None:
        topic = await make_topic(broker, "t", 2)
        images = [replace(image, replicas=(1, 7), isr=(1,)) for image in topic.partitions]
        broker.replicas.take_all([replace(topic, partitions=tuple(images))])
        parked = ask(broker, 12, {0: 0, 1: 0}, max_wait_ms=60_000, **follower)
        before = partition_of(broker)
        await watched(before)
        images[0] = replace(images[0], leader_epoch=images[0].leader_epoch + 1)
        broker.replicas.take_all([replace(topic, partitions=tuple(images))])
        assert isinstance(parked, Parked)
        assert not parked.resolved
        assert partition_of(broker) is not before
        append(partition_of(broker), [NOW])
        answered = partitions_in(fetched(12, await resolved(parked)))
        assert [(one.error_code, bool(one.records)) for one in answered] == [
            (ErrorCode.none, True),
            (ErrorCode.none, False),
        ]
        assert not before._watchers | before._follower_watchers

    run(tmp_path, story)


def test_nobody_passes_for_a_replica(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        (answered,) = partitions_in(fetched(12, ask(broker, 12, {0: 0}, replica_id=7)))
        assert answered.error_code is ErrorCode.not_leader_or_follower

    run(tmp_path, story)


def test_nobody_follows_from_the_listener_of_clients(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        (answered,) = partitions_in(fetched(12, ask(broker, 12, {0: 0}, replica_id=7)))
        assert answered.error_code is ErrorCode.topic_authorization_failed
        assert len(broker.fetch_sessions) == 0

    run(
        tmp_path,
        story,
        listeners="PLAINTEXT://:9092,INTERNAL://:9093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        inter_broker_listener_name="INTERNAL",
    )


def test_a_topic_made_again_has_another_id(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        old = await make_topic(broker, "t")
        await broker.controller.delete_topics(["t"])
        await make_topic(broker, "t")
        frame = fetch_request(13, {("t", old.topic_id): {0: 0}})
        (answered,) = partitions_in(fetched(13, fetch(broker, CALLER, 13, 5, frame, 0)))
        assert answered.error_code is ErrorCode.unknown_topic_id

    run(tmp_path, story)
