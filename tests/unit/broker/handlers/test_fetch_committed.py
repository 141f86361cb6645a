"""Fetch by readers of committed data, over logs with transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.model.errors import ErrorCode
from barnabas.net.reply import Parked
from barnabas.protocol.records.batch import PLACE, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.protocol.records.records import Record
from tests.support.fetching import NOW, ask, partition_of, partitions_in
from tests.support.logs import split
from tests.support.parts import answer_of, append, make_topic, run
from tests.support.produce_fetch import fetched

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.replication.leader_partition import LeaderPartition


async def test_committed_readers_get_a_list_of_aborted_transactions_and_others_none(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        (plain,) = partitions_in(fetched(12, ask(broker, 12, {0: 0})))
        (committed,) = partitions_in(fetched(12, ask(broker, 12, {0: 0}, isolation_level=1)))
        assert (plain.aborted_transactions, committed.aborted_transactions) == (None, ())
        assert committed.records == plain.records

    await run(tmp_path, story)


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


def replicate(partition: LeaderPartition, *batches: bytes) -> None:
    """Write batches one after another, as they would come from Kafka."""
    for each in batches:
        placed = PLACE.pack(partition.log.log_end_offset, read_header(each).batch_length, 0) + each[PLACE.size :]
        partition.log.append_replica(placed, now_ms=NOW)
    partition.leader.appended(partition.log.log_end_offset)


async def committed(broker: BrokerContext, offset: int, **fields: Any) -> Any:
    """What a reader of committed data gets of partition 0, if need be after a thread has read from disk."""
    answer = await answer_of(ask(broker, 12, {0: offset}, isolation_level=1, **fields))
    (answered,) = partitions_in(fetched(12, answer))
    assert answered.error_code is ErrorCode.none
    return answered


def end_and_batches(answered: Any) -> tuple[int, list[int], list[tuple[int, int]]]:
    """The last stable offset, the base offsets of the batches, and the aborted transactions."""
    aborted = [(one.producer_id, one.first_offset) for one in answered.aborted_transactions]
    return answered.last_stable_offset, [read_header(each).base_offset for each in split(answered.records)], aborted


async def test_committed_readers_stop_at_the_oldest_open_transaction(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        partition = partition_of(broker)
        append(partition, [NOW])
        replicate(partition, transactional(7), transactional(8), end(ControlType.COMMIT, 8))
        assert end_and_batches(await committed(broker, 0)) == (1, [0], [])
        assert end_and_batches(await committed(broker, 1)) == (1, [], [])
        (plain,) = partitions_in(fetched(12, ask(broker, 12, {0: 0})))
        assert (plain.high_watermark, plain.last_stable_offset, plain.aborted_transactions) == (6, 1, None)
        assert len(split(plain.records)) == 4
        parked = ask(broker, 12, {0: 1}, isolation_level=1, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        replicate(partition, end(ControlType.ABORT, 7))
        partition.wake_watchers()
        (answered,) = partitions_in(fetched(12, await answer_of(parked)))
        assert end_and_batches(answered) == (7, [1, 3, 5, 6], [(7, 1)])

    await run(tmp_path, story)


async def test_committed_readers_are_told_of_the_aborted_transactions_in_what_they_get(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", index_interval_bytes="0")
        partition = partition_of(broker)
        replicate(partition, transactional(7), transactional(8), end(ControlType.ABORT, 8))
        partition.log.roll(NOW)
        replicate(partition, transactional(9), end(ControlType.COMMIT, 9), end(ControlType.ABORT, 7))
        replicate(partition, transactional(8, 2), end(ControlType.ABORT, 8))
        assert end_and_batches(await committed(broker, 0)) == (12, [0, 2, 4], [(8, 2), (7, 0)])
        assert end_and_batches(await committed(broker, 5)) == (12, [5, 7, 8, 9, 11], [(7, 0), (8, 9)])
        size = len(transactional(9))
        assert end_and_batches(await committed(broker, 5, partition_max_bytes=size)) == (12, [5], [(7, 0)])
        assert end_and_batches(await committed(broker, 9))[2] == [(8, 9)]
        assert end_and_batches(await committed(broker, 12)) == (12, [], [])

    await run(tmp_path, story)


async def test_transactions_are_known_again_after_a_restart(tmp_path: Path) -> None:
    async def write(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        partition = partition_of(broker)
        replicate(partition, transactional(7), end(ControlType.ABORT, 7), transactional(8))

    async def story(broker: BrokerContext) -> None:
        assert not partition_of(broker).log.is_open
        assert end_and_batches(await committed(broker, 5)) == (3, [], [])
        assert end_and_batches(await committed(broker, 0)) == (3, [0, 2], [(7, 0)])
        partition = partition_of(broker)
        partition.log.truncate_to(2)
        assert (partition.log.producers.first_unstable_offset, end_and_batches(await committed(broker, 0))[1:]) == (
            0,
            ([], []),
        )

    await run(tmp_path, write)
    await run(tmp_path, story)
