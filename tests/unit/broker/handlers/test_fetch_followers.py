"""Fetch by followers: when they are answered, and who may be one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.fetching import fetch_batching
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import Parked
from barnabas.protocol.records.batch import read_header
from tests.support.fetching import NOW, ask, partition_of, partitions_in
from tests.support.images import CALLER, proved
from tests.support.logs import split
from tests.support.parts import answer_of, append, make_topic, run
from tests.support.produce_fetch import fetched
from tests.support.producing import with_follower

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.serving.caller import Caller


def followed(broker: BrokerContext) -> LeaderPartition:
    """A partition with a follower, broker 7."""
    return with_follower(broker)


async def watched(partition: LeaderPartition) -> None:
    """Wait until a fetch waits for more in this partition."""
    async with asyncio.timeout(30):
        while not partition._watchers | partition._follower_watchers:
            await asyncio.sleep(0)


async def test_a_follower_is_told_at_once_of_records_and_of_their_deletion(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
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
        (second,) = partitions_in(fetched(12, await answer_of(waiting)))
        assert read_header(second.records).base_offset == 1
        assert partition.leader.high_watermark == 1
        waiting = ask(broker, 12, {0: 2}, session_epoch=2, **session)
        assert isinstance(waiting, Parked)
        await watched(partition)
        assert partition.leader.high_watermark == 2
        partition.delete_before(1)
        (third,) = partitions_in(fetched(12, await answer_of(waiting)))
        assert (third.log_start_offset, third.records) == (1, b"")

    await run(tmp_path, story)


def follow(broker: BrokerContext, offset: int, min_bytes: int = 1) -> Parked:
    """A fetch of broker 7 that can wait."""
    waiting = ask(broker, 12, {0: offset}, replica_id=7, max_wait_ms=60_000, min_bytes=min_bytes)
    assert isinstance(waiting, Parked)
    return waiting


@pytest.mark.parametrize("came", ["before", "after"])
async def test_a_follower_gets_together_what_comes_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, came: str
) -> None:
    monkeypatch.setattr(fetch_batching, "MAX_SECONDS", 60)  # however busy the machine is

    async def story(broker: BrokerContext) -> None:
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
        (answered,) = partitions_in(fetched(12, await answer_of(waiting)))
        assert [read_header(batch).base_offset for batch in split(answered.records)] == [1, 2]

    await run(tmp_path, story)


@pytest.mark.parametrize("min_bytes", [0, 1])
async def test_the_offset_of_a_follower_counts_at_once_and_its_fetch_is_batched(tmp_path: Path, min_bytes: int) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        partition = followed(broker)
        append(partition, [NOW])
        append(partition, [NOW])
        waiting = follow(broker, 1, min_bytes)
        assert (partition.leader.high_watermark, waiting.resolved) == (1, False)
        (answered,) = partitions_in(fetched(12, await answer_of(waiting)))
        assert [read_header(batch).base_offset for batch in split(answered.records)] == [1]

    await run(tmp_path, story)


@pytest.mark.parametrize(
    ("longest", "turns"), [(60.0, fetch_batching.MAX_TURNS), (0.0, 1)], ids=["by turns", "by time"]
)
async def test_fetch_batching_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: float, turns: int
) -> None:
    async def story(broker: BrokerContext) -> None:
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

    monkeypatch.setattr(fetch_batching, "MAX_SECONDS", longest)
    await run(tmp_path, story)


@pytest.mark.parametrize("follower", [{}, {"replica_id": 7}], ids=["a consumer", "a follower"])
async def test_a_fetch_goes_on_waiting_when_its_partition_has_a_new_leader_epoch(
    tmp_path: Path, follower: dict[str, Any]
) -> None:
    async def story(broker: BrokerContext) -> None:
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
        answered = partitions_in(fetched(12, await answer_of(parked)))
        assert [(one.error_code, bool(one.records)) for one in answered] == [
            (ErrorCode.none, True),
            (ErrorCode.none, False),
        ]
        assert not before._watchers | before._follower_watchers

    await run(tmp_path, story)


async def test_nobody_passes_for_a_replica(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        (answered,) = partitions_in(fetched(12, ask(broker, 12, {0: 0}, replica_id=7)))
        assert answered.error_code is ErrorCode.not_leader_or_follower

    await run(tmp_path, story)


@pytest.mark.parametrize("caller", [CALLER, proved(8)], ids=["a client", "another broker"])
async def test_nobody_follows_who_has_not_proved_to_be_that_broker(tmp_path: Path, caller: Caller) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        followed(broker)
        (answered,) = partitions_in(fetched(12, ask(broker, 12, {0: 0}, caller, replica_id=7)))
        assert answered.error_code is ErrorCode.topic_authorization_failed
        assert not answered.records
        assert len(broker.fetch_sessions) == 0

    await run(tmp_path, story)


async def test_a_consumer_is_sent_to_a_replica_in_its_rack_for_what_that_one_has(tmp_path: Path) -> None:
    """Where the follower's log starts later than the leader's, what is before comes from the leader."""

    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        for _ in range(4):
            append(partition_of(broker), [NOW])
        partition = followed(broker)
        image = broker.metadata.image
        near = replace(image.brokers[broker.broker_id], broker_id=7, rack="here")
        broker.metadata.replace(replace(image, brokers={**image.brokers, 7: near}))

        def sent_to(offset: int) -> int:
            answer = fetched(12, ask(broker, 12, {0: offset}, rack_id="here", max_wait_ms=0))
            return int(partitions_in(answer)[0].preferred_read_replica)

        assert sent_to(1) == -1
        partition.fetched_by(7, -1, 2, 4, 0.0)
        assert [sent_to(offset) for offset in (0, 1, 2, 3, 4)] == [-1, -1, 7, 7, 7]

    await run(tmp_path, story, replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector")
