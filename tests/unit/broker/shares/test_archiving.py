"""No message of a group with dead letters is archived without its own, whatever fails, and whoever comes and goes."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.metrics.scrape import Pace
from barnabas.broker.metrics.series.coordinators import CoordinatorSeries
from barnabas.broker.replication.leader_partition import LeaderPartition
from barnabas.broker.shares import archiver
from barnabas.broker.shares.dead_letters import DeadLetterCounts
from barnabas.machines.controller.image import ALL_BROKERS, ConfigResource
from barnabas.machines.controller.requests import AlterConfigs, LevelChange, UpdateFeatures
from barnabas.machines.security.authorizer import Authorizer
from barnabas.machines.shares.coordinator import Initialization
from barnabas.machines.shares.state_batches import DeliveryState
from barnabas.model.errors import ErrorCode, StorageFailed
from barnabas.protocol.dead_letters import GivenUp
from barnabas.protocol.records.builder import build_batch
from tests.support.parts import make_topic, running_parts
from tests.support.share_letters import (
    DEAD,
    NOW,
    Letter,
    archived,
    configure,
    delete_topic,
    done_before,
    have_dead_letters,
    hosted,
    letters,
    make_dead,
    message,
    reject,
    round_over,
    stored,
    until,
)
from tests.support.share_members import (
    ACCEPT,
    FEW,
    REJECT,
    Member,
    acquired,
    begin,
    later,
    queue,
    send,
    states_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.shares.coordinator import StateUpdate
    from barnabas.model.errors import ApiError

REJECTED, USED_UP = GivenUp.REJECTED.value, GivenUp.DELIVERIES_USED_UP.value


@pytest.fixture(autouse=True)
def quick_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five attempts without pauses; then a round is over, until something changes."""
    monkeypatch.setattr(archiver, "PAUSES", (0.001,) * 4)


# Topics that cannot be written to


async def enable(broker: BrokerContext) -> None:
    settings = {"errors.deadletterqueue.group.enable": "true"}
    await broker.controller.decide(AlterConfigs({ConfigResource.topic(DEAD): settings}))


async def create_by_itself(broker: BrokerContext) -> None:
    await broker.controller.decide(
        AlterConfigs({ALL_BROKERS: {"errors.deadletterqueue.auto.create.topics.enable": "true"}})
    )


async def allow_any_prefix(broker: BrokerContext) -> None:
    await broker.controller.decide(AlterConfigs({ALL_BROKERS: {"errors.deadletterqueue.topic.name.prefix": ""}}))


@pytest.mark.parametrize(
    ("topic", "before", "mend", "reason"),
    [
        (DEAD, None, make_dead, "There is no topic dlq.jobs for dead letters"),
        (DEAD, None, create_by_itself, "There is no topic dlq.jobs for dead letters"),
        (DEAD, lambda broker: make_topic(broker, DEAD), enable, "Topic dlq.jobs does not take dead letters"),
        ("dead", lambda broker: make_dead(broker, name="dead"), allow_any_prefix, 'name.prefix is "dlq."'),
    ],
    ids=["missing", "missing, then created", "not enabled", "another prefix"],
)
async def test_messages_wait_for_their_topic_and_none_is_archived_without_its_dead_letter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str, before: Any, mend: Any, reason: str
) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        if before is not None:
            await before(broker)
        await have_dead_letters(broker, topic)
        send(broker, 3)
        anna = await reject(broker, topic_id, 0, 1)
        await round_over(broker, topic_id)
        assert (done_before(broker), letters(broker, topic)) == (0, [])
        assert [each.delivery_state for each in stored(broker).batches] == [DeliveryState.ARCHIVING]
        failures = [line for line in caplog.records if "dead letters of jobs-0" in line.getMessage()]
        assert [line.levelno for line in failures] == [logging.WARNING, logging.ERROR]
        assert reason in failures[0].getMessage()
        assert "2 messages from offset 0 on stay archiving" in failures[1].getMessage()
        assert broker.shares.dead_letters.counts["workers"].failures == 5
        assert await anna.fetch() is None, "nobody gets them meanwhile"
        await mend(broker)
        await archived(broker, 2)
        assert [each.offset for each in letters(broker, topic)] == [0, 1]


async def test_attempts_are_bounded_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archiver, "ROUND_PAUSE", 0.001)
    monkeypatch.setattr(archiver, "MOST_ROUNDS", 3)
    async with queue(tmp_path) as (broker, topic_id):
        await have_dead_letters(broker)
        send(broker, 2)
        await reject(broker, topic_id, 0, 0)
        await round_over(broker, topic_id, rounds=3)
        await asyncio.sleep(0.05)  # twenty times as long as a round
        assert broker.shares.dead_letters.counts["workers"].failures == 15
        assert "are tried again when topics, leaders or settings change" in caplog.records[-1].getMessage()
        assert (done_before(broker), letters(broker)) == (0, [])
        await make_dead(broker)
        await archived(broker, 1)
        assert [each.offset for each in letters(broker)] == [0]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__share_group_state", "jobs"])
async def test_no_group_writes_to_a_topic_that_does_not_allow_it(tmp_path: Path, name: str) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await allow_any_prefix(broker)
        await make_topic(broker, "others")
        await have_dead_letters(broker, "others" if name == "jobs" else name)
        send(broker)
        await reject(broker, topic_id, 0, 0)
        await round_over(broker, topic_id)
        assert letters(broker, "others") == []
        assert broker.shares.dead_letters.counts["workers"].produces == 0


async def test_a_created_topic_says_that_it_is_for_dead_letters(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await create_by_itself(broker)
        await have_dead_letters(broker)
        send(broker)
        await reject(broker, topic_id, 0, 0)
        await archived(broker, 1)
        assert broker.metadata.topic_config(DEAD) == {
            "errors.deadletterqueue.group.enable": "true",
            "message.timestamp.type": "CreateTime",
        }
        await delete_topic(broker)
        send(broker)
        bela = Member(broker, topic_id, "bela")
        assert acquired(await bela.fetch(wait_ms=5000)) == [(1, 1, 1)]
        assert await bela.acknowledge((1, 1, REJECT)) is ErrorCode.none
        await archived(broker, 2)
        assert [each.offset for each in letters(broker)] == [1], "it was deleted, and is created again"


async def test_dead_letters_wait_for_a_disk_that_takes_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        send(broker)
        append, left = LeaderPartition.append, [3]

        def failing(partition: LeaderPartition, *args: Any, **named: Any) -> Any:
            if partition.tp.topic == DEAD and left[0]:
                left[0] -= 1
                raise StorageFailed("no space left on device")
            return append(partition, *args, **named)

        monkeypatch.setattr(LeaderPartition, "append", failing)
        await reject(broker, topic_id, 0, 0)
        await archived(broker, 1)
        assert [each.offset for each in letters(broker)] == [0]
        assert broker.shares.dead_letters.counts["workers"] == DeadLetterCounts(records=1, produces=4, failures=3)
        series = {line for family in await CoordinatorSeries(broker, 10).collect(Pace()) for line in family.lines}
        assert series >= {
            'barnabas_sharegroup_dead_letters_total{group="workers"} 1\n',
            'barnabas_sharegroup_dead_letter_batches_total{group="workers"} 4\n',
            'barnabas_sharegroup_dead_letter_failures_total{group="workers"} 3\n',
            'barnabas_sharegroup_dead_letters_missing_total{group="workers"} 0\n',
        }


async def test_dead_letters_wait_for_as_many_replicas_as_the_topic_needs(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker, min_insync_replicas="2")
        await have_dead_letters(broker)
        send(broker)
        await reject(broker, topic_id, 0, 0)
        await round_over(broker, topic_id)
        assert (done_before(broker), letters(broker)) == (0, [])
        await enable(broker)
        await archived(broker, 1)


# Groups without dead letters


async def test_a_group_without_dead_letters_archives_at_once(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        send(broker)
        await reject(broker, topic_id, 0, 0)
        assert stored(broker).batches[0].delivery_state == DeliveryState.ARCHIVED
        assert letters(broker) == []


async def test_what_waits_is_archived_when_the_group_wants_no_dead_letters_any_more(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await have_dead_letters(broker)
        send(broker)
        await reject(broker, topic_id, 0, 0)
        await round_over(broker, topic_id)
        await configure(broker)
        await archived(broker, 1)


async def test_there_are_no_dead_letters_before_share_version_2(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        await broker.controller.decide(UpdateFeatures({"share.version": LevelChange(1, "downgrade")}))
        send(broker, 2)
        anna = await reject(broker, topic_id, 0, 0)
        assert letters(broker) == []
        await broker.controller.decide(UpdateFeatures({"share.version": LevelChange(2, "upgrade")}))
        assert await anna.acknowledge((1, 1, REJECT)) is ErrorCode.none
        await archived(broker, 2)
        assert [each.offset for each in letters(broker)] == [1]


async def test_a_group_that_reads_its_own_dead_letters_adds_none(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, _):
        dead = await make_dead(broker)
        await begin(broker, dead.topic_id, Initialization(0, 0))
        await have_dead_letters(broker)
        partition = broker.replicas.find(DEAD, 0)
        data = build_batch([message(b"once")], base_timestamp=NOW)
        partition.append(data, partition.check(data, NOW, 13), NOW)
        await reject(broker, dead.topic_id, 0, 0)
        machine = hosted(broker, dead.topic_id).machine
        assert machine is not None
        await until(lambda: machine.start_offset == 1, "the message to be archived")
        assert partition.log.log_end_offset == 1


async def test_a_group_whose_dead_letters_are_to_go_into_its_own_topic_waits_until_that_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await have_dead_letters(broker, "jobs")
        send(broker)
        await reject(broker, topic_id, 0, 0)
        await round_over(broker, topic_id)
        assert (done_before(broker), [each.delivery_state for each in stored(broker).batches]) == (
            0,
            [DeliveryState.ARCHIVING],
        )
        assert "Topic jobs does not take dead letters" in caplog.text
        await make_dead(broker)
        await have_dead_letters(broker)
        await archived(broker, 1)
        assert [each.offset for each in letters(broker)] == [0]


async def test_a_worker_that_may_not_write_to_the_topic_has_dead_letters_all_the_same(tmp_path: Path) -> None:
    async with queue(tmp_path, authorizer_class_name="kafka.security.authorizer.AclAuthorizer") as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        assert broker.permissions is not None
        anna = Member(broker, topic_id, "anna")
        anna.caller = replace(anna.caller, session=replace(anna.caller.session, principal="User:anna"))
        broker.permissions.replace(Authorizer(super_users=frozenset({"User:anna"})))
        send(broker)
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, 1)]
        assert await anna.acknowledge((0, 0, REJECT)) is ErrorCode.none
        broker.permissions.replace(Authorizer())
        await archived(broker, 1)
        assert [each.offset for each in letters(broker)] == [0]


# Crashes, and members that come and go


def failing_writes(broker: BrokerContext, state: DeliveryState) -> list[int]:
    """Let the share coordinator refuse to store a state, while the list that is returned has something in it."""
    left = [1]

    async def refuse(update: StateUpdate) -> ApiError | None:
        is_refused = left and any(each.delivery_state == state for each in update.batches)
        return StorageFailed("the share coordinator cannot store anything") if is_refused else None

    states_of(broker).on_write = refuse
    return left


async def test_a_crash_between_dead_letter_and_archiving_may_write_it_twice_and_never_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        send(broker, 2)
        left = failing_writes(broker, DeliveryState.ARCHIVED)
        anna = await reject(broker, topic_id, 0, 0)
        await round_over(broker, topic_id)
        assert [each.offset for each in letters(broker)] == [0], "it is not written again while this broker lives"
        left.clear()
        hosted(broker, topic_id).archiver.retry()
        await archived(broker, 1)
        failing_writes(broker, DeliveryState.ARCHIVED)
        assert await anna.acknowledge((1, 1, REJECT)) is ErrorCode.none
        await round_over(broker, topic_id)
    async with running_parts(tmp_path, FEW) as broker:
        bela = Member(broker, topic_id, "bela")
        assert acquired(await bela.fetch(wait_ms=300)) == [], "what is archiving is not delivered again"
        await archived(broker, 2)
        assert [(each.offset, each.reason) for each in letters(broker)] == [(0, REJECTED), (1, REJECTED), (1, REJECTED)]


async def test_that_deliveries_are_used_up_is_stored_before_the_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        send(broker)
        left: list[int] = []
        for delivery in range(1, 6):
            anna = Member(broker, topic_id, "anna")
            assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, delivery)]
            if delivery == 5:
                left = failing_writes(broker, DeliveryState.ARCHIVING)
            await later(broker, 30_001)
        await round_over(broker, topic_id)
        assert letters(broker) == []
        left.clear()
        hosted(broker, topic_id).archiver.retry()
        await archived(broker, 1)
        assert letters(broker) == [Letter(0, 5, USED_UP, None, b"value", ())]


async def test_a_rejection_that_could_not_be_stored_has_no_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        send(broker)
        anna = Member(broker, topic_id, "anna")
        await anna.fetch(wait_ms=5000)
        left = failing_writes(broker, DeliveryState.ARCHIVING)
        assert await anna.acknowledge((0, 0, REJECT)) is ErrorCode.unknown_server_error
        left.clear()
        assert await anna.acknowledge((0, 0, ACCEPT)) is ErrorCode.none
        await archived(broker, 1)
        assert letters(broker) == []


async def test_who_comes_while_dead_letters_wait_reads_the_state_anew(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await have_dead_letters(broker)
        send(broker, 3)
        anna = await reject(broker, topic_id, 0, 0)
        await round_over(broker, topic_id)
        lingering = hosted(broker, topic_id)
        anna.hang_up()
        await until(lambda: lingering.is_lingering, "the group to have no members")
        assert broker.shares._hosted, "it stays for the dead letter"
        await begin(broker, topic_id, Initialization(1, 1))
        bela = Member(broker, topic_id, "bela")
        assert acquired(await bela.fetch(wait_ms=5000)) == [(1, 2, 1)]
        assert hosted(broker, topic_id) is not lingering
        await make_dead(broker)
        await asyncio.sleep(0.05)
        assert letters(broker) == [], "the group was reset: nothing of it is given up"


async def test_a_stop_does_not_wait_for_dead_letters_that_cannot_be_written(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await have_dead_letters(broker)
        send(broker)
        await reject(broker, topic_id, 0, 0)
        await round_over(broker, topic_id)
        began = asyncio.get_running_loop().time()
        await broker.shares.stop()
        assert asyncio.get_running_loop().time() - began < 1


async def test_as_many_messages_wait_as_may_be_in_flight_and_then_nothing_more_is_delivered(tmp_path: Path) -> None:
    limits = {"group_share_partition_max_record_locks": "100", "group_share_min_partition_max_record_locks": "100"}
    async with queue(tmp_path, **limits) as (broker, topic_id):
        await have_dead_letters(broker)
        send(broker, 150)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000, share_acquire_mode=1)) == [(0, 99, 1)]
        assert await anna.acknowledge((0, 99, REJECT)) is ErrorCode.none
        assert await anna.fetch() is None
        await make_dead(broker)
        await archived(broker, 100)
        assert acquired(await anna.fetch(wait_ms=5000, share_acquire_mode=1)) == [(100, 149, 1)]
        assert [each.offset for each in letters(broker)] == list(range(100))


async def test_a_group_whose_settings_are_taken_back_leaves_nothing_behind(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        send(broker)
        await reject(broker, topic_id, 0, 0)
        await archived(broker, 1)
        assert list(broker.shares.dead_letter_counts()) == ["workers"]
        await broker.controller.decide(AlterConfigs({ConfigResource("groups", "workers"): {}}))
        assert dict(broker.shares.dead_letter_counts()) == {}
        assert "workers" not in broker.shares._settings
