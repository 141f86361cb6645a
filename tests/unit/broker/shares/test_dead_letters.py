"""Dead letters on one broker: what they say, what has none, and how they fit into their topic."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.replication.verification_guards import Marker
from barnabas.broker.shares import archiver
from barnabas.broker.shares import letters as composing
from barnabas.broker.shares.dead_letter_topics import DeadLetterTopics
from barnabas.broker.shares.dead_letters import DeadLetterCounts, DeadLetterWriter
from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.controller.requests import AlterConfigs
from barnabas.machines.shares.state_batches import DeliveryState
from barnabas.model.errors import ErrorCode
from barnabas.protocol.dead_letters import GivenUp
from barnabas.protocol.records.compression import Codec
from tests.support.share_letters import (
    DEAD,
    NOW,
    Letter,
    archived,
    configure,
    have_dead_letters,
    letters,
    make_dead,
    message,
    produce,
    reject,
    round_over,
    stored,
    until,
)
from tests.support.share_members import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    Member,
    SteeredShares,
    acquired,
    later,
    queue,
    send,
)

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.shares.dead_letter_topics import LetterDestination


REJECTED, USED_UP = GivenUp.REJECTED.value, GivenUp.DELIVERIES_USED_UP.value


@pytest.fixture(autouse=True)
def quick_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five attempts without pauses; then a round is over, until something changes."""
    monkeypatch.setattr(archiver, "PAUSES", (0.001,) * 4)


# What a dead letter says


async def test_a_rejected_message_is_copied_with_headers_that_say_where_it_was_and_why(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        produce(broker, message(b"one", b"a", trace=b"1", none=None), message(b"two"), message(None, b"c"))
        await reject(broker, topic_id, 0, 2)
        await archived(broker, 3)
        assert letters(broker) == [
            Letter(0, 1, REJECTED, b"a", b"one", (("trace", b"1"), ("none", None))),
            Letter(1, 1, REJECTED, None, b"two", ()),
            Letter(2, 1, REJECTED, b"c", None, ()),
        ]
        assert broker.shares.dead_letters.counts == {"workers": DeadLetterCounts(records=3, produces=1)}


async def test_without_copies_a_dead_letter_has_only_headers(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker, copies=False)
        produce(broker, message(b"one", b"a", trace=b"1"))
        await reject(broker, topic_id, 0, 0)
        await archived(broker, 1)
        assert letters(broker) == [Letter(0, 1, REJECTED, None, None, ())]


@pytest.mark.parametrize("way", ["locks", "releases", "connections"])
async def test_a_message_whose_deliveries_are_used_up_has_a_dead_letter(tmp_path: Path, way: str) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        send(broker)
        for delivery in range(1, 6):
            anna = Member(broker, topic_id, f"anna-{delivery}")
            assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, delivery)]
            if way == "locks":
                await later(broker, 30_001)
            elif way == "releases":
                assert await anna.acknowledge((0, 0, RELEASE)) is ErrorCode.none
            anna.hang_up()
            await asyncio.sleep(0.02)
        await archived(broker, 1)
        assert letters(broker) == [Letter(0, 5, USED_UP, None, b"value", ())]
        await until(lambda: not broker.shares._hosted, "the share partition to go, since nobody reads it")


@pytest.mark.parametrize("codec", Codec)
async def test_messages_in_compressed_batches_are_copied_one_by_one(tmp_path: Path, codec: Codec) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker, compression_type="zstd")
        await have_dead_letters(broker)
        produce(broker, *(message(b"%d" % number * 50) for number in range(10)), codec=codec)
        anna = await reject(broker, topic_id, 3, 3)
        assert await anna.acknowledge((0, 2, ACCEPT), (4, 5, ACCEPT), (6, 7, REJECT), (8, 9, ACCEPT)) is ErrorCode.none
        await archived(broker, 10)
        assert [(each.offset, each.value) for each in letters(broker)] == [(at, b"%d" % at * 50) for at in (3, 6, 7)]


async def test_markers_and_aborted_messages_have_no_dead_letters(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        dead = {"errors_deadletterqueue_topic_name": DEAD, "errors_deadletterqueue_copy_record_enable": "true"}
        await configure(broker, share_isolation_level="read_committed", **dead)
        partition = broker.replicas.find("jobs", 0)
        for producer, commit in ((7, True), (8, False)):
            produce(broker, message(b"in"), producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
            partition.end_transaction(Marker(producer, 0, 0, commit, False), NOW)
        produce(broker, message(b"after"))
        for _ in range(5):
            anna = Member(broker, topic_id, "anna")
            for _ in range(4):
                await anna.fetch(wait_ms=50)
            anna.hang_up()
            await asyncio.sleep(0.02)
        await until(lambda: not broker.shares._hosted, "all messages to be given up")
        assert [(each.offset, each.value) for each in letters(broker)] == [(0, b"in"), (4, b"after")]
        assert broker.shares.dead_letters.counts["workers"].missing == 2, "the markers"


async def test_what_a_worker_calls_a_gap_has_no_dead_letter(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        send(broker, 2)
        anna = Member(broker, topic_id, "anna")
        await anna.fetch(wait_ms=5000)
        assert await anna.acknowledge((0, 0, GAP), (1, 1, REJECT)) is ErrorCode.none
        await archived(broker, 2)
        assert [each.offset for each in letters(broker)] == [1]


async def test_a_batch_that_cannot_be_read_keeps_no_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        produce(broker, message(b"broken"), message(b"too"), codec=Codec.GZIP)
        produce(broker, message(b"sound"))
        monkeypatch.setattr(composing, "MAX_UNPACKED", 3)
        await reject(broker, topic_id, 0, 2)
        await archived(broker, 3)
        found = letters(broker)
        assert [each.value for each in found] == [None, None, b"sound"]
        assert found[0].reason == found[1].reason == REJECTED + " It was not copied, since it cannot be read."


# Limits of the topic


async def test_many_dead_letters_go_in_as_many_batches_as_the_topic_needs(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker, max_message_bytes="3000")
        await have_dead_letters(broker)
        produce(broker, *(message(b"%d" % (number % 10) * 1000) for number in range(20)))
        await reject(broker, topic_id, 0, 19)
        await archived(broker, 20)
        assert [(each.offset, each.value) for each in letters(broker)] == [
            (at, b"%d" % (at % 10) * 1000) for at in range(20)
        ]
        assert broker.shares.dead_letters.counts["workers"].produces == 10


async def test_a_message_that_is_too_large_for_the_topic_goes_without_its_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker, max_message_bytes="600")
        await have_dead_letters(broker)
        produce(broker, message(b"x" * 2000, b"key"), message(b"small"))
        await reject(broker, topic_id, 0, 1)
        await archived(broker, 2)
        large, small = letters(broker)
        assert (large.key, large.value, small.value) == (None, None, b"small")
        assert large.reason.startswith(REJECTED + " It was not copied, since it has 2")
        assert "offset 0 of jobs-0 was not copied" in caplog.text


class GenerousTopics(DeadLetterTopics):
    """Says of every topic that it takes batches of a megabyte."""

    async def find(self, group_id: str, partition: int) -> LetterDestination:
        return (await super().find(group_id, partition))._replace(max_bytes=1_000_000)


class GenerousShares(SteeredShares):
    @cached_property
    def dead_letters(self) -> DeadLetterWriter:
        return DeadLetterWriter(self._broker, GenerousTopics(self._broker))


@pytest.mark.parametrize("bound", [{"max_message_bytes": "1000"}, {"internal_segment_bytes": "1000"}], ids=str)
async def test_a_leader_that_allows_less_than_is_known_here_gets_smaller_batches(
    tmp_path: Path, bound: dict[str, Any]
) -> None:
    async with queue(tmp_path, GenerousShares) as (broker, topic_id):
        await make_dead(broker, **bound)
        await have_dead_letters(broker)
        produce(broker, *(message(b"x" * 300) for _ in range(6)), message(b"x" * 2000))
        await reject(broker, topic_id, 0, 6)
        await archived(broker, 7)
        assert [each.value for each in letters(broker)] == [b"x" * 300] * 6 + [None]


async def test_a_compacted_topic_takes_dead_letters_with_keys(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker, cleanup_policy="compact")
        await have_dead_letters(broker)
        produce(broker, message(b"with", b"key"), message(b"without"))
        await reject(broker, topic_id, 0, 0)
        await until(lambda: len(letters(broker)) == 1, "the dead letter with a key")
        anna = Member(broker, topic_id, "bela")
        broker.shares.dead_letters.counts.clear()
        await later(broker, 30_001)
        assert acquired(await anna.fetch()) == [(1, 1, 2)]
        assert await anna.acknowledge((1, 1, REJECT)) is ErrorCode.none
        await round_over(broker, topic_id)
        assert stored(broker).batches[-1].delivery_state == DeliveryState.ARCHIVING
        await broker.controller.decide(
            AlterConfigs({ConfigResource.topic(DEAD): {"errors.deadletterqueue.group.enable": "true"}})
        )
        await archived(broker, 2)


async def test_the_partition_is_that_of_the_message_by_the_number_there(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, _):
        await make_dead(broker, partitions=3)
        await have_dead_letters(broker)
        found = [await broker.shares.dead_letters.topics.find("workers", partition) for partition in range(7)]
        assert [to.partition for to in found] == [0, 1, 2, 0, 1, 2, 0]
