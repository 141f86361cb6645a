"""The markers that end transactions: written, sent to other brokers, and tried again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest

from barnabas.broker.coordinators import markers, remote_markers, reply_deadline
from barnabas.broker.handlers.transaction_markers import write_txn_markers
from barnabas.broker.replication.leader_partition import LeaderPartition
from barnabas.broker.replication.verification_guards import Marker
from barnabas.machines.transactions.states import TransactionState
from barnabas.model.errors import ErrorCode, RequestTimedOut
from barnabas.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.support.images import CALLER, proved
from tests.support.other_broker import added, marked, move_to_other, other_broker
from tests.support.producing import lead_anew, with_follower
from tests.support.transactor import ID, NOW, Transactor, transacting
from tests.support.waiting import until
from tests.support.wire import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.broker.serving.caller import Caller
    from barnabas.model.ids import TopicPartition


async def ask_for_ends(
    transactor: Transactor, *indexes: int, caller: Caller = CALLER, coordinator_epoch: int = 0
) -> list[ErrorCode]:
    producer_id, epoch = transactor.producer
    topics = [{"name": "t", "partition_indexes": list(indexes)}]
    marker = {"producer_id": producer_id, "producer_epoch": epoch, "topics": topics}
    request = build(WriteTxnMarkersRequest, {"markers": [{**marker, "coordinator_epoch": coordinator_epoch}]})
    response = await asyncio.wait_for(write_txn_markers(transactor.broker, request, caller), 30)
    return [part.error_code for part in response.markers[0].topics[0].partitions]


async def test_a_hanging_transaction_can_be_ended_by_hand(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        assert await ask_for_ends(transactor, 0, 9) == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        assert transactor.partition.log.producers.first_unstable_offset is None


@pytest.mark.parametrize("begun", [False, True], ids=["of a producer that is to come", "in a transaction"])
async def test_a_strangers_marker_does_not_fence_the_coordinator(tmp_path: Path, begun: bool) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        if begun:
            assert await transactor.send() is ErrorCode.none
        refused = await ask_for_ends(transactor, 0, coordinator_epoch=2**31 - 1)
        assert await transactor.send() is ErrorCode.none
        assert await transactor.end() is ErrorCode.none
        assert await asyncio.wait_for(transactor.settle(), 30) is TransactionState.COMPLETE_COMMIT
        assert refused == [ErrorCode.cluster_authorization_failed]


async def test_a_coordinator_of_another_broker_brings_its_epoch(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        assert await ask_for_ends(transactor, 0, caller=proved(2), coordinator_epoch=5) == [ErrorCode.none]
        assert await ask_for_ends(transactor, 0, coordinator_epoch=5) == [ErrorCode.none], "it is in the log now"


async def test_a_partition_whose_followers_hang_does_not_hold_back_the_markers_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        assert await transactor.answer(transactor.produce((0, 1))) == [ErrorCode.none] * 2
        stuck = with_follower(transactor.broker, "t", 1)
        end = stuck.log.log_end_offset
        monkeypatch.setattr(reply_deadline, "COMMIT_SECONDS", 0.01)
        assert await ask_for_ends(transactor, 1, 0) == [ErrorCode.request_timed_out, ErrorCode.none]
        monkeypatch.setattr(reply_deadline, "COMMIT_SECONDS", 3600)
        assert await ask_for_ends(transactor, 1) == [ErrorCode.request_timed_out], "nobody waits for it once more"
        other = Transactor(transactor.broker, "other")
        await other.init()
        assert await ask_for_ends(other, 1, 0) == [ErrorCode.request_timed_out, ErrorCode.none], "nor for another one"
        end += 1
        stuck.fetched_by(7, 5, 0, end + 1, 0.0)
        assert await ask_for_ends(transactor, 1) == [ErrorCode.none]
        assert stuck.log.log_end_offset == end + 1, "it is written but once"
        again = asyncio.ensure_future(ask_for_ends(transactor, 1))  # as for the next transaction of an older producer
        while stuck.log.log_end_offset == end + 1:
            await asyncio.sleep(0)
        stuck.fetched_by(7, 5, 0, end + 2, 0.0)
        assert await again == [ErrorCode.none]


async def test_the_time_after_which_a_late_marker_is_forgotten_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next transaction of an older producer ends with the same marker, and that one is late too."""
    monkeypatch.setattr(reply_deadline, "COMMIT_SECONDS", 0.01)
    monkeypatch.setattr(remote_markers, "KEPT_SECONDS", 12345.0)  # as long as nothing else waits
    forget_the_first: list[Callable[[], None]] = []

    async with transacting(tmp_path) as transactor:
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def held(delay: float, callback: Any, *args: Any, **how: Any) -> asyncio.TimerHandle:
            if delay == remote_markers.KEPT_SECONDS:
                forget_the_first.append(partial(callback, *args))
            return call_later(delay, callback, *args, **how)

        monkeypatch.setattr(loop, "call_later", held)
        await transactor.begin()
        partition = with_follower(transactor.broker)
        end = partition.log.log_end_offset
        assert await ask_for_ends(transactor, 0) == [ErrorCode.request_timed_out]
        partition.fetched_by(7, 5, 0, end + 1, 0.0)
        assert await ask_for_ends(transactor, 0) == [ErrorCode.none]
        assert await ask_for_ends(transactor, 0) == [ErrorCode.request_timed_out]
        (forget,) = forget_the_first
        forget()
        assert await ask_for_ends(transactor, 0) == [ErrorCode.request_timed_out]
        assert partition.log.log_end_offset == end + 2, "it is known that the second one is written"


async def test_what_became_of_a_late_marker_is_not_told_in_another_leadership(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between them another leader may have written it, and the next transaction may have begun."""
    monkeypatch.setattr(reply_deadline, "COMMIT_SECONDS", 0.01)

    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        former = with_follower(transactor.broker)
        end = former.log.log_end_offset
        assert await ask_for_ends(transactor, 0) == [ErrorCode.request_timed_out]
        former.fetched_by(7, 5, 0, end + 1, 0.0)
        lead_anew(transactor.broker)
        monkeypatch.setattr(reply_deadline, "COMMIT_SECONDS", 3600)
        assert await ask_for_ends(transactor, 0) == [ErrorCode.none]
        assert former.log.log_end_offset == end + 2


async def test_a_coordinator_asks_again_later_for_a_marker_that_was_not_committed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_SLOWLY", 0.01)
    monkeypatch.setattr(markers, "RETRY", 3600)

    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        late = [RequestTimedOut("its followers hang")] * 2
        write = markers.MarkerWriter.write

        def late_twice(writer: markers.MarkerWriter, tp: TopicPartition, marker: Marker, done: Any) -> None:
            if late:
                done(late.pop())
            else:
                write(writer, tp, marker, done)

        monkeypatch.setattr(markers.MarkerWriter, "write", late_twice)
        await transactor.commit()
        assert not late


async def test_a_partition_that_knows_a_later_epoch_needs_no_marker(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        producer_id, epoch = transactor.producer
        transactor.partition.end_transaction(Marker(producer_id, epoch + 5, 0, commit=False, bumped=True), NOW)
        await transactor.commit()
        assert await transactor.init() is ErrorCode.none


async def test_a_marker_that_a_later_coordinator_forestalled_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until this broker knows that it was replaced, or that it is the later coordinator itself."""
    monkeypatch.setattr(markers, "RETRY_SLOWLY", 0.01)

    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        later = Marker(*transactor.producer, 1, commit=True, bumped=False)
        transactor.partition.end_transaction(later, NOW)
        assert await transactor.end() is ErrorCode.none
        async with asyncio.timeout(30):
            while caplog.text.count("was refused in t-0") < 2:
                await asyncio.sleep(0.01)
        assert await transactor.init() is ErrorCode.concurrent_transactions
        lead_anew(transactor.broker, TRANSACTION_STATE)
        await transactor.broker.transactions.runtime.loaded()
        assert await asyncio.wait_for(transactor.settle(), 30) is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("topic", ["t", CONSUMER_OFFSETS])
async def test_a_marker_that_cannot_be_written_for_a_reason_that_nobody_foresaw_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    monkeypatch.setattr(markers, "RETRY_SLOWLY", 0.01)

    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        await transactor.commit_offset(5)
        reasons = [ZeroDivisionError("nobody foresaw it")] * 2
        end_transaction = LeaderPartition.end_transaction

        def fails_twice(partition: LeaderPartition, marker: Marker, now_ms: int) -> int:
            if partition.tp.topic == topic and reasons:
                raise reasons.pop()
            return end_transaction(partition, marker, now_ms)

        monkeypatch.setattr(LeaderPartition, "end_transaction", fails_twice)
        await transactor.commit()
        assert transactor.partition.log.producers.first_unstable_offset is None
        assert await transactor.offset() == 5


@pytest.mark.parametrize("behind", [False, True])
async def test_a_partition_that_is_not_known_was_deleted_unless_the_broker_has_not_heard_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    monkeypatch.setattr(markers, "RETRY", 0.01)

    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        metadata, looked = transactor.broker.metadata, 0
        leaders, image = markers.MarkerWriter.leaders, metadata.image

        def counted(writer: markers.MarkerWriter, places: list[TopicPartition]) -> Any:
            nonlocal looked
            looked += 1
            return leaders(writer, places)

        monkeypatch.setattr(markers.MarkerWriter, "leaders", counted)
        metadata.is_behind = behind
        others = {name: topic for name, topic in image.topics.items() if name != "t"}
        names = {topic.topic_id: name for name, topic in others.items()}
        metadata.replace(replace(image, topics=others, topic_names=names))
        assert await transactor.end() is ErrorCode.none
        if behind:
            async with asyncio.timeout(30):
                while looked < 3:
                    await asyncio.sleep(0)
            assert await transactor.init() is ErrorCode.concurrent_transactions
            metadata.replace(image)
        assert await asyncio.wait_for(transactor.settle(), 30) is TransactionState.COMPLETE_COMMIT
        assert looked > 2 if behind else looked == 1
        if behind:
            assert transactor.partition.log.producers.first_unstable_offset is None, "the marker is written"
            assert transactor.partition.log.log_end_offset == 2


async def test_markers_that_cannot_be_sent_for_a_reason_that_nobody_foresaw_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_SLOWLY", 0.01)
    reasons = [ZeroDivisionError("nobody foresaw it")]

    async def fail_once(request: Any) -> Any:
        if reasons:
            raise reasons.pop()
        return marked(request)

    async with transacting(tmp_path, other_broker(fail_once)) as transactor:
        await transactor.begin()
        move_to_other(transactor.broker, "t")
        await transactor.commit()
        assert not reasons


async def test_transactions_that_come_up_while_another_broker_is_asked_are_added_together(tmp_path: Path) -> None:
    asked: list[int] = []

    async def add(request: Any) -> Any:
        asked.append(len(request.transactions))
        return added(request)

    async with transacting(tmp_path, other_broker(add)) as transactor:
        producers = await three_producers(transactor)
        move_to_other(transactor.broker, TRANSACTION_STATE)
        await produce_all(producers)
        assert asked == [3]


async def test_markers_that_come_up_while_another_broker_is_asked_go_to_it_together(tmp_path: Path) -> None:
    asked: list[int] = []
    may_answer = asyncio.Event()

    async def write(request: Any) -> Any:
        asked.append(len(request.markers))
        await may_answer.wait()
        return marked(request)

    async with transacting(tmp_path, other_broker(write)) as transactor:
        producers = await three_producers(transactor)
        await produce_all(producers)
        move_to_other(transactor.broker, "t")
        assert await producers[0].end() is ErrorCode.none
        await until(lambda: asked == [1])
        assert [await producer.end() for producer in producers[1:]] == [ErrorCode.none] * 2
        for _ in range(10):  # markers leave some turns after the answer
            await asyncio.sleep(0)
        may_answer.set()
        states = [await asyncio.wait_for(producer.settle(), 30) for producer in producers]
        assert states == [TransactionState.COMPLETE_COMMIT] * 3
        assert asked == [1, 2]


async def three_producers(transactor: Transactor) -> list[Transactor]:
    producers = [Transactor(transactor.broker, f"{ID}-{number}") for number in range(3)]
    for producer in producers:
        assert await producer.init() is ErrorCode.none
    return producers


async def produce_all(producers: list[Transactor]) -> None:
    """All at once, to two partitions each."""
    answers = [producer.answer(producer.produce((0, 1))) for producer in producers]
    assert await asyncio.gather(*answers) == [[ErrorCode.none] * 2] * len(producers)


async def test_a_coordinator_with_too_few_replicas_is_told_of_the_end_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_SLOWLY", 0.001)

    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        ((shard, machine),) = transactor.broker.transactions.runtime.machines()
        assert await transactor.end() is ErrorCode.none
        too_few, looked = LeaderPartition.too_few_in_sync, 0

        def looks(partition: LeaderPartition) -> Any:
            nonlocal looked
            looked += partition is shard.partition
            return too_few(partition)

        monkeypatch.setattr(LeaderPartition, "too_few_in_sync", looks)
        log = shard.partition.log
        enough = log.config
        log.update_config(replace(log.config, min_insync_replicas=2))
        async with asyncio.timeout(30):
            while looked < 3 and shard.machine is machine:
                await asyncio.sleep(0)
        assert transactor.partition.log.producers.first_unstable_offset is None
        log.update_config(enough)
        assert await asyncio.wait_for(transactor.settle(), 30) is TransactionState.COMPLETE_COMMIT
        assert shard.machine is machine
