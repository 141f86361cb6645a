"""Produce and the disk: files that are not there yet, syncs that an answer waits for, and disks that fail."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.broker.handlers.produce import produce
from barnabas.machines.controller.image import ConfigResource
from barnabas.model.clock import ManualClock
from barnabas.model.errors import ErrorCode, StorageFailed
from barnabas.net.reply import Parked
from barnabas.protocol.records.batch import read_header
from barnabas.storage.log.log import Log
from barnabas.storage.manager import LogManager
from barnabas.storage.producers.state import ProducerStates
from tests.support.faulty_files import BadDisk
from tests.support.images import CALLER
from tests.support.parts import answer_of, make_topic, run, running_parts
from tests.support.produce_fetch import produce_request, produced
from tests.support.producing import batch, now_led, send, stored, with_follower
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.net.reply import Answer


async def test_the_first_batch_of_a_log_waits_for_its_files(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", ready=False)
        first = send(broker, 12, batch())
        assert isinstance(first, Parked)
        assert not first.overtakable
        (result,) = produced(12, await answer_of(first))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        (result,) = produced(12, send(broker, 12, batch()))
        assert result.base_offset == 3

    await run(tmp_path, story)


@pytest.mark.parametrize("codec", [0, 1], ids=["plain", "opened"])
async def test_a_batch_that_a_snapshot_left_out_is_read_back_beside_the_event_loop(tmp_path: Path, codec: int) -> None:
    def sent(broker: BrokerContext, number: int) -> Answer | Parked:
        return send(broker, 12, batch(1, producer_id=7, producer_epoch=0, base_sequence=number, codec=codec))

    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", compression_type="zstd" if codec else "producer")
        for number in range(4):
            await answer_of(sent(broker, number))
        log = broker.replicas.find("t", 0).log
        log.producers.states = ProducerStates.decode(log.producers.states.encode(), log.log_end_offset)
        for number in (1, 2, 1):
            (result,) = produced(12, await answer_of(sent(broker, number)))
            assert (result.error_code, result.base_offset) == (ErrorCode.none, number)
        assert log.log_end_offset == 4
        (result,) = produced(12, await answer_of(sent(broker, 9)))
        assert result.error_code is ErrorCode.out_of_order_sequence_number

    await run(tmp_path, story)


async def test_with_flush_messages_1_the_answer_waits_for_the_disk(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
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

    await run(tmp_path, story)


async def test_with_acks_1_the_answer_waits_for_the_disk_and_not_for_followers(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", flush_messages="4")
        partition = with_follower(broker)
        leader = partition.leader
        (result,) = produced(12, send(broker, 12, batch(3), acks=1))
        assert (result.error_code, partition.log.recovery_point) == (ErrorCode.none, 0)
        (result,) = produced(12, await answer_of(send(broker, 12, batch(1), acks=1)))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 3)
        assert (partition.log.recovery_point, leader.high_watermark) == (4, 0)

    await run(tmp_path, story)


async def test_with_acks_1_a_disk_that_cannot_sync_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(log: Log) -> int:
        raise log.store.fail(OSError(5, "Input/output error"), "a test")

    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", flush_messages="1")
        with_follower(broker)
        monkeypatch.setattr(Log, "flush", flush)
        (result,) = produced(12, await answer_of(send(broker, 12, batch(), acks=1)))
        assert result.error_code is ErrorCode.kafka_storage_error

    await run(tmp_path, story)


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_sync_that_had_no_descriptor_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    monkeypatch.setattr("barnabas.broker.replication.leader_partition.SYNC_RETRY_SECONDS", 0.01)
    real, failures = Log.flush, iter([OSError(errno.EMFILE, "Too many open files")] * 3)

    def flush(log: Log) -> int:
        for error in failures:
            raise log.store.fail(error, "a test")
        return real(log)

    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", flush_messages="1")
        monkeypatch.setattr(Log, "flush", flush)
        for base_offset in (0, 3):
            (result,) = produced(12, await answer_of(send(broker, 12, batch(), acks=acks)))
            assert (result.error_code, result.base_offset) == (ErrorCode.none, base_offset)

    await run(tmp_path, story)


class HeldSyncs(LogManager):
    """Syncs what produce waits for only when a test says that it is done; the first `held` of them."""

    held = 1

    def __init__(self, *words: Any, **names: Any) -> None:
        super().__init__(*words, **names)
        self.syncs: list[Future[int]] = []

    def flush_through(self, log: Log, offset: int) -> Future[int]:
        if len(self.syncs) >= self.held:
            return super().flush_through(log, offset)
        self.syncs.append(Future())
        return self.syncs[-1]


class AllSyncsHeld(HeldSyncs):
    held = 99


def syncs_of(broker: BrokerContext) -> list[Future[int]]:
    """The syncs that are held."""
    return cast("HeldSyncs", broker.logs).syncs


async def test_a_sync_that_ends_after_the_next_append_leaves_that_to_be_committed(tmp_path: Path) -> None:
    async with running_parts(tmp_path, make_logs=AllSyncsHeld) as broker:
        await make_topic(broker, "t", flush_messages="4")
        partition = with_follower(broker)
        leader = partition.leader
        first = send(broker, 12, batch(4), acks=-1)
        partition.log.flush()
        second = send(broker, 12, batch(1), acks=-1)
        for sync in syncs_of(broker):
            sync.set_result(4)
        await asyncio.sleep(0)
        partition.fetched_by(7, -1, 0, 5, 0.0)
        assert leader.high_watermark == 5
        for answer in (first, second):
            assert produced(12, await answer_of(answer))[0].error_code is ErrorCode.none


class SyncedBeforeTold(AllSyncsHeld):
    """As a thread that is done with a sync before the event loop goes on."""

    def flush_through(self, log: Log, offset: int) -> Future[int]:
        log.flush()
        return super().flush_through(log, offset)


async def test_what_a_thread_has_synced_is_acknowledged_when_consumers_can_read_it(tmp_path: Path) -> None:
    async with running_parts(tmp_path, make_logs=SyncedBeforeTold) as broker:
        await make_topic(broker, "t", flush_messages="1")
        answer = send(broker, 12, batch(), acks=1)
        (synced,) = syncs_of(broker)
        asyncio.get_running_loop().call_soon(synced.set_result, 3)
        (result,) = produced(12, await answer_of(answer))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        assert len(stored(broker)) == 1


class FirstSyncedLate(AllSyncsHeld):
    """The first sync, of four records, is done when the second is asked for, and nobody was told of either."""

    def flush_through(self, log: Log, offset: int) -> Future[int]:
        if self.syncs:
            log.flush(4)
        return super().flush_through(log, offset)


async def test_a_sync_of_what_was_before_does_not_acknowledge_what_waits_for_the_next(tmp_path: Path) -> None:
    async with running_parts(tmp_path, make_logs=FirstSyncedLate) as broker:
        await make_topic(broker, "t", flush_messages="4")
        syncs = syncs_of(broker)
        send(broker, 12, batch(4), acks=0)
        answer = send(broker, 12, batch(1), acks=1)
        syncs[0].set_result(4)
        await asyncio.sleep(0)
        assert isinstance(answer, Parked)
        assert not answer.resolved
        syncs[1].set_result(5)
        assert produced(12, await answer_of(answer))[0].error_code is ErrorCode.none
        assert len(stored(broker)) == 2


async def test_a_sync_that_ends_after_a_leadership_was_renewed_is_counted_there(tmp_path: Path) -> None:
    async with running_parts(tmp_path, make_logs=AllSyncsHeld) as broker:
        await make_topic(broker, "t", flush_messages="1")
        former = broker.replicas.find("t", 0)
        answer = send(broker, 12, batch(), acks=-1)
        renewed = former.renewed()
        renewed.take_over(former)
        former.fail(StorageFailed("a test"))
        former.log.flush()
        for sync in syncs_of(broker):
            sync.set_result(3)
        (result,) = produced(12, await answer_of(answer))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        assert renewed.log.high_watermark == 3


async def test_a_sync_that_ends_while_a_leadership_begins_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_parts(tmp_path, make_logs=HeldSyncs) as broker:
        topic = await make_topic(broker, "t", flush_messages="1")
        send(broker, 12, batch(), acks=0)
        assert len(syncs_of(broker)) == 1
        due = iter((True, False))
        monkeypatch.setattr(Log, "flush_required", property(lambda log: next(due, False)))
        now_led(broker, topic, leader_epoch=1)
        leader = broker.replicas.find("t", 0).leader
        async with asyncio.timeout(30):
            while leader.high_watermark < 3:
                await asyncio.sleep(0)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("sync_is_due", [True, False])
async def test_what_waits_for_the_disk_waits_on_in_a_new_leader_epoch(
    tmp_path: Path, acks: int, sync_is_due: bool
) -> None:
    async with running_parts(tmp_path, make_logs=AllSyncsHeld) as broker:
        topic = await make_topic(broker, "t", flush_messages="1")
        answer = send(broker, 12, batch(), acks=acks)
        if not sync_is_due:
            await broker.controller.alter_configs({ConfigResource.topic("t"): {"flush.messages": "100"}})
        now_led(broker, topic, leader_epoch=1)
        leader = broker.replicas.find("t", 0).leader
        assert (leader.leader_epoch, leader.high_watermark) == (1, 0 if sync_is_due else 3)
        assert isinstance(answer, Parked)
        assert answer.resolved == (acks == -1 and not sync_is_due)  # it is committed without a sync then
        broker.replicas.find("t", 0).log.flush()
        for sync in syncs_of(broker):
            sync.set_result(3)
        (result,) = produced(12, await answer_of(answer))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        async with asyncio.timeout(30):
            while leader.high_watermark < 3:
                await asyncio.sleep(0)


async def test_what_is_committed_while_another_log_is_made_ready_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: BrokerContext) -> None:
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

    await run(tmp_path, story)


class TwoDisks:
    """A topic with a partition on each of two disks, one of which can fail."""

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self.disk = BadDisk(tmp_path / "bad")
        self.broker: BrokerContext
        self.bad = self.good = -1

    async def run(self, story: Callable[[], Awaitable[None]], **configs: Any) -> None:
        async def main() -> None:
            disks = {"log.dirs": f"{self._tmp_path / 'bad'},{self._tmp_path / 'good'}"}
            async with running_parts(self._tmp_path, disks, self.disk) as self.broker:
                await make_topic(self.broker, "t", partitions=2, **configs)
                names = [self.broker.replicas.find("t", index).log.log_dir.name for index in range(2)]
                self.bad, self.good = names.index("bad"), names.index("good")
                await story()

        await main()

    async def send(self, index: int) -> tuple[ErrorCode, int]:
        answer = await answer_of(send(self.broker, 12, batch(), index=index))
        (result,) = produced(12, answer)
        return result.error_code, result.base_offset

    def stored(self, index: int) -> list[int]:
        return [read_header(each).base_offset for each in stored(self.broker, index)]


REFUSED = (ErrorCode.kafka_storage_error, -1)


async def test_a_full_disk_takes_no_more_while_the_other_goes_on(tmp_path: Path) -> None:
    disks = TwoDisks(tmp_path)

    async def story() -> None:
        assert await disks.send(disks.bad) == await disks.send(disks.good) == (ErrorCode.none, 0)
        disks.disk.full = True
        assert await disks.send(disks.bad) == REFUSED
        disks.disk.full = False
        assert await disks.send(disks.bad) == REFUSED
        assert await disks.send(disks.good) == (ErrorCode.none, 3)
        assert (disks.stored(disks.bad), disks.stored(disks.good)) == ([0], [0, 3])

    await disks.run(story)


async def test_a_disk_that_has_room_again_takes_writes_without_a_restart(tmp_path: Path) -> None:
    disks = TwoDisks(tmp_path)

    async def story() -> None:
        replicas, clock = disks.broker.replicas, disks.broker.clock
        assert isinstance(clock, ManualClock)
        assert await disks.send(disks.bad) == (ErrorCode.none, 0)
        before = replicas.find("t", disks.bad)
        disks.disk.full = True
        assert await disks.send(disks.bad) == REFUSED
        clock.advance(60_000)
        await replicas.retry_failed()
        assert await disks.send(disks.bad) == REFUSED
        disks.disk.full = False
        clock.advance(60_000)
        await replicas.retry_failed()
        assert await disks.send(disks.bad) == (ErrorCode.none, 3)
        after = replicas.find("t", disks.bad)
        assert after is not before
        assert (before.present, after.leader) == (after, before.leader)
        assert disks.stored(disks.bad) == [0, 3]

    await disks.run(story, flush_messages="1")


async def test_a_log_that_could_not_be_made_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(broker: BrokerContext) -> None:
        with monkeypatch.context() as refusing:
            refusing.setattr(
                broker.logs.pool.files, "make_dir", lambda *_: (_ for _ in ()).throw(OSError(errno.EMFILE, "none left"))
            )
            with pytest.raises(StorageFailed):
                await make_topic(broker, "t")
        await broker.replicas.retry_failed()
        await broker.replicas.settled()
        assert broker.replicas.find("t", 0).log.log_end_offset == 0

    await run(tmp_path, story)


async def test_what_cannot_be_synced_is_not_acknowledged_and_the_other_disk_goes_on(tmp_path: Path) -> None:
    disks = TwoDisks(tmp_path)

    async def story() -> None:
        assert await disks.send(disks.bad) == await disks.send(disks.good) == (ErrorCode.none, 0)
        disks.disk.failing_syncs = True
        assert await disks.send(disks.bad) == REFUSED
        assert await disks.send(disks.bad) == REFUSED
        assert await disks.send(disks.good) == (ErrorCode.none, 3)
        assert (disks.stored(disks.bad), disks.stored(disks.good)) == ([0], [0, 3])

    await disks.run(story, flush_messages="1")
