"""ShareFetch and ShareAcknowledge on one broker: what members get, and what becomes of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.shares import fetching, hosted
from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.security.authorizer import Authorizer
from barnabas.machines.security.quota_entities import CONSUMER_BYTE_RATE, DEFAULT
from barnabas.machines.shares.coordinator import Initialization, ShareKey
from barnabas.machines.shares.unset import UNINITIALIZED
from barnabas.model.clock import ManualClock
from barnabas.model.errors import (
    ErrorCode,
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from barnabas.storage.file_pool import FileHandle
from tests.support.parts import running_parts
from tests.support.share_members import (
    ACCEPT,
    FEW,
    GROUP,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    acquired,
    begin,
    later,
    queue,
    send,
)

if TYPE_CHECKING:
    from pathlib import Path

ACCEPTED = {"acknowledge_types": [ACCEPT]}
EVERY_CLIENT = ConfigResource("clients", DEFAULT)


async def test_each_record_goes_to_one_member_until_it_is_released(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 3)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 2, 1)]
        assert acquired(await bela.fetch()) == []
        assert await anna.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)) is ErrorCode.none
        got = await bela.fetch()
        assert acquired(got) == [(1, 1, 2)]
        assert len(got.records) > 0
        assert await bela.acknowledge((0, 1, ACCEPT)) is ErrorCode.none, "what is before the start is passed over"
        assert await bela.fetch() is None


async def test_a_fetch_waits_for_records_and_for_released_ones(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        first = asyncio.create_task(anna.fetch(wait_ms=20_000))
        await asyncio.sleep(0.05)
        assert not first.done()
        send(broker)
        assert acquired(await asyncio.wait_for(first, 5)) == [(0, 0, 1)]
        second = asyncio.create_task(bela.fetch(wait_ms=20_000))
        await asyncio.sleep(0.05)
        assert not second.done()
        assert (await anna.fetch((0, 0, RELEASE), max_records=0)).acknowledge_error_code == 0
        assert acquired(await asyncio.wait_for(second, 5)) == [(0, 0, 2)]


async def test_a_fetch_of_no_records_is_answered_at_once(tmp_path: Path) -> None:
    """It brings acknowledgements, and its member waits to hear what became of them."""
    async with queue(tmp_path) as (broker, topic_id):
        send(broker)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, 1)]
        answer = await asyncio.wait_for(anna.fetch((0, 0, RELEASE), max_records=0, wait_ms=60_000), 5)
        assert answer.acknowledge_error_code == 0


async def test_fetches_that_wait_look_again_only_when_there_may_be_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"group_share_partition_max_record_locks": "100", "group_share_min_partition_max_record_locks": "100"}
    looks: list[fetching.ShareFetching] = []
    look = fetching.ShareFetching._look

    def noted(self: fetching.ShareFetching, *args: Any) -> Any:
        looks.append(self)
        return look(self, *args)

    monkeypatch.setattr(fetching.ShareFetching, "_look", noted)
    async with queue(tmp_path, **limits) as (broker, topic_id):
        send(broker, 3)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 2, 1)]
        waiting = asyncio.create_task(bela.fetch(wait_ms=20_000))
        await asyncio.sleep(0.05)
        before = len(looks)
        assert await anna.acknowledge((0, 1, ACCEPT)) is ErrorCode.none
        await asyncio.sleep(0.05)
        assert len(looks) == before, "there is room, and nothing to fill it with"
        assert await anna.acknowledge((2, 2, RELEASE)) is ErrorCode.none
        assert acquired(await asyncio.wait_for(waiting, 5)) == [(2, 2, 2)]
        for _ in range(11):
            send(broker, 10)
        assert acquired(await anna.fetch()) == [(3, 102, 1)]
        full = asyncio.create_task(Member(broker, topic_id, "carl").fetch(wait_ms=20_000))
        await asyncio.sleep(0.05)
        assert not full.done()
        assert await anna.acknowledge((3, 12, ACCEPT)) is ErrorCode.none
        assert not full.done(), "the oldest record is bela's: the start has not moved"
        assert (await bela.acknowledge((2, 2, ACCEPT))) is ErrorCode.none
        assert acquired(await asyncio.wait_for(full, 5)) == [(103, 112, 1)]


async def test_a_lock_ends_and_deliveries_run_out_after_five(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, 1)]
        for delivery in range(2, 6):
            await later(broker, 30_001)
            assert acquired(await anna.fetch()) == [(0, 0, delivery)]
        await later(broker, 30_001)
        assert await anna.fetch() is None
        assert await anna.acknowledge((0, 0, ACCEPT)) is ErrorCode.none, "it is before the start now"
        state = broker.share_coordinators.runtime.find(ShareKey(GROUP, topic_id, 0).text).machine
        assert state is not None
        (stored,) = state.states.values()
        assert (stored.start_offset, stored.batches) == (1, ())


async def test_a_lock_ends_though_the_clock_is_set_back(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        await anna.fetch(wait_ms=5000)
        assert isinstance(broker.clock, ManualClock)
        broker.clock._now_ms -= 3_600_000
        await later(broker, 30_001)
        assert acquired(await bela.fetch()) == [(0, 0, 2)]


async def test_a_renewed_lock_ends_later(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker)
        anna = Member(broker, topic_id, "anna")
        await anna.fetch(wait_ms=5000)
        await later(broker, 20_000)
        assert await anna.acknowledge((0, 0, RENEW), is_renew_ack=True) is ErrorCode.none
        assert await anna.acknowledge((0, 0, RENEW)) is ErrorCode.invalid_request
        await later(broker, 20_000)
        assert await anna.acknowledge((0, 0, ACCEPT)) is ErrorCode.none


async def test_what_a_lost_connection_had_acquired_is_delivered_again_at_once(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 2)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 1, 1)]
        waiting = asyncio.create_task(bela.fetch(wait_ms=20_000))
        await asyncio.sleep(0.05)
        anna.hang_up()
        assert acquired(await asyncio.wait_for(waiting, 5)) == [(0, 1, 2)]
        with pytest.raises(ShareSessionNotFound):
            await anna.acknowledge((0, 0, ACCEPT))


async def test_the_state_goes_on_after_a_restart_with_the_gap_delivered_again(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 5)
        anna = Member(broker, topic_id, "anna")
        await anna.fetch(wait_ms=5000)
        assert await anna.acknowledge((0, 0, ACCEPT), (3, 3, ACCEPT)) is ErrorCode.none
    async with running_parts(tmp_path, FEW) as broker:
        bela = Member(broker, topic_id, "bela")
        assert acquired(await bela.fetch(wait_ms=5000)) == [(1, 2, 1), (4, 4, 1)]


async def test_offsets_that_were_reset_hold_for_the_next_member_once_all_are_gone(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 3)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 2, 1)]
        assert await anna.acknowledge((0, 2, ACCEPT)) is ErrorCode.none
        anna.hang_up()
        await asyncio.sleep(0.05)
        assert broker.shares._hosted == {}
        await begin(broker, topic_id, Initialization(1, 1))
        bela = Member(broker, topic_id, "bela")
        assert acquired(await bela.fetch(wait_ms=5000)) == [(1, 2, 1)]


async def test_no_more_records_are_in_flight_than_allowed(tmp_path: Path) -> None:
    limits = {"group_share_partition_max_record_locks": "100", "group_share_min_partition_max_record_locks": "100"}
    async with queue(tmp_path, **limits) as (broker, topic_id):
        for _ in range(30):
            send(broker, 10)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 99, 1)]
        assert acquired(await bela.fetch()) == []
        assert await anna.acknowledge((0, 9, ACCEPT)) is ErrorCode.none
        assert acquired(await bela.fetch()) == [(100, 109, 1)]


async def test_a_strict_limit_divides_batches_and_the_usual_one_does_not(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 10)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000, max_records=4, share_acquire_mode=1)) == [(0, 3, 1)]
        assert acquired(await anna.fetch(max_records=4)) == [(4, 9, 1)]


async def test_sessions_have_epochs_and_a_limit(tmp_path: Path) -> None:
    async with queue(tmp_path, group_share_max_share_sessions="1") as (broker, topic_id):
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        with pytest.raises(InvalidShareSessionEpoch):
            await anna.acknowledge((0, 0, ACCEPT))
        with pytest.raises(InvalidRequest):
            await anna.fetch((0, 0, ACCEPT))
        await anna.fetch()
        with pytest.raises(ShareSessionLimitReached):
            await bela.fetch()
        anna.epoch = 7
        with pytest.raises(InvalidShareSessionEpoch):
            await anna.fetch()
        anna.epoch = -1
        assert await anna.fetch() is None
        await bela.fetch()
        anna.epoch = 1
        with pytest.raises(ShareSessionNotFound):
            await anna.fetch()


@pytest.mark.parametrize(
    "bad", [(3, 1, ACCEPT), (0, 2, ACCEPT, ACCEPT), (0, 0), (0, 0, 9)], ids=["backwards", "too few", "none", "unknown"]
)
async def test_acknowledgements_that_make_no_sense_are_refused(tmp_path: Path, bad: tuple[int, ...]) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 3)
        anna = Member(broker, topic_id, "anna")
        await anna.fetch(wait_ms=5000)
        assert await anna.acknowledge(bad) is ErrorCode.invalid_request
        assert await anna.acknowledge((0, 5, ACCEPT)) is ErrorCode.invalid_request
        assert await anna.acknowledge((0, 2, ACCEPT)) is ErrorCode.none


async def test_nothing_is_dropped_of_a_partition_that_is_named_twice(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 3)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        await anna.fetch(wait_ms=5000)
        once, twice = (
            {"partition_index": 0, "acknowledgement_batches": [{"first_offset": at, "last_offset": at, **ACCEPTED}]}
            for at in range(2)
        )
        topics = [{"topic_id": topic_id, "partitions": [once, twice]}]
        assert await anna.acknowledge(topics=topics) is ErrorCode.none
        anna.hang_up()
        assert acquired(await bela.fetch(wait_ms=5000)) == [(2, 2, 2)]


async def test_a_fetch_of_a_worker_that_died_takes_no_message(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        await bela.fetch()
        ghost = asyncio.create_task(anna.fetch(wait_ms=2**31 - 1))
        await asyncio.sleep(0.05)
        anna.hang_up()
        assert await asyncio.wait_for(ghost, 5) is None, "it does not wait for its time to be over"
        send(broker)
        assert acquired(await bela.fetch(wait_ms=5000)) == [(0, 0, 1)]
        assert not broker.shares._waiting


async def test_a_fetch_that_is_served_after_its_connection_ended_leaves_no_session(tmp_path: Path) -> None:
    async with queue(tmp_path, group_share_max_share_sessions="1") as (broker, topic_id):
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        anna.hang_up()
        assert await asyncio.wait_for(anna.fetch(wait_ms=60_000), 5) is None
        send(broker)
        assert acquired(await bela.fetch(wait_ms=5000)) == [(0, 0, 1)]


async def test_messages_after_a_first_fetch_are_kept_for_the_group_though_it_acknowledged_nothing(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 2)
        await begin(broker, topic_id, Initialization(1, UNINITIALIZED))
        waiting = asyncio.create_task(Member(broker, topic_id, "anna").fetch(wait_ms=20_000))
        await asyncio.sleep(0.1)
        send(broker)
        assert acquired(await asyncio.wait_for(waiting, 5)) == [(2, 2, 1)], "it begins at the end"
    async with running_parts(tmp_path, FEW) as broker:
        assert acquired(await Member(broker, topic_id, "bela").fetch(wait_ms=5000)) == [(2, 2, 1)]


async def test_groups_that_do_not_exist_leave_nothing_behind(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        members = [Member(broker, topic_id, f"m{number}") for number in range(20)]
        for number, member in enumerate(members):
            assert acquired(await member.fetch(group_id=f"nobody-{number}")) == []
        assert len(broker.shares._settings) <= 1
        await asyncio.wait_for(broker.shares._tasks.wait(), 5)
        assert broker.shares._hosted == {}, "nobody waits for them, so they are not read again and again"


async def test_a_quota_of_a_consumer_holds_in_a_share_group_and_lets_it_acknowledge(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        for _ in range(50):
            send(broker, 2)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        await bela.fetch(wait_ms=5000, max_records=2)
        await broker.controller.alter_configs({EVERY_CLIENT: {CONSUMER_BYTE_RATE: "20"}})
        got = await anna.fetch()
        assert len(got.records) <= 200, "what fits into the window of the quota"
        [(first, last, _)] = acquired(got)
        again = await anna.fetch(max_records=2)
        assert len(acquired(again)) == 1, "the window is not full yet"
        assert timedelta(0) < anna.throttled <= timedelta(seconds=15), "half of a lock at most"
        got = await anna.fetch((first, last, ACCEPT))
        assert (got.acknowledge_error_code, acquired(got)) == (0, [])
        assert anna.throttled > timedelta(0)
        assert isinstance(broker.clock, ManualClock)
        broker.clock.advance(12_000)
        assert acquired(await anna.fetch()) != []


async def test_a_session_does_not_grow_beyond_the_partitions_that_there_are(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker)
        anna = Member(broker, topic_id, "anna")
        await anna.fetch(wait_ms=5000)

        async def add(first: int) -> None:
            parts = [{"partition_index": index, "acknowledgement_batches": []} for index in range(first, first + 600)]
            await anna.fetch(topics=[{"topic_id": topic_id, "partitions": parts}])

        await add(0)
        with pytest.raises(InvalidRequest):
            await add(600)
        with pytest.raises(ShareSessionNotFound):
            await anna.fetch()


async def test_members_that_wait_beside_each_other_get_no_more_than_the_quota(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        members = [Member(broker, topic_id, f"m{number}") for number in range(8)]
        for member in members:
            await member.fetch()
        await broker.controller.alter_configs({EVERY_CLIENT: {CONSUMER_BYTE_RATE: "20"}})
        waiting = [asyncio.create_task(member.fetch(wait_ms=200, max_records=1)) for member in members]
        await asyncio.sleep(0)
        for _ in members:
            send(broker, 1)
        parts = await asyncio.gather(*waiting)
        sizes = [len(part.records) for part in parts if part is not None and part.acquired_records]
        assert 0 < sum(sizes) <= 200 + max(sizes), "what fits into the window of the quota, and the one that fills it"


async def test_a_fetch_that_waits_is_judged_by_the_rules_of_the_moment(tmp_path: Path) -> None:
    rule = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    async with queue(tmp_path, **rule, allow_everyone_if_no_acl_found="true") as (broker, topic_id):
        anna = Member(broker, topic_id, "anna")
        assert await anna.fetch() is not None
        waiting = asyncio.create_task(anna.fetch(wait_ms=5000))
        await asyncio.sleep(0)
        assert broker.permissions is not None
        broker.permissions.replace(Authorizer())
        send(broker)
        part = await waiting
        assert (part.error_code, part.acquired_records) == (ErrorCode.group_authorization_failed, ())


async def test_a_fetch_of_few_records_reads_little_of_a_long_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SMALLEST_STEP", 1000)
    monkeypatch.setattr(hosted, "FIRST_READ", 1000)
    read: list[int] = []
    async with queue(tmp_path) as (broker, topic_id):
        for _ in range(500):
            send(broker, 2)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000, max_records=10)) == [(0, 9, 1)]
        read_cached = FileHandle.read_cached

        def counted(file: FileHandle, size: int, position: int) -> bytes:
            read.append(size)
            return read_cached(file, size, position)

        monkeypatch.setattr(FileHandle, "read_cached", counted)
        got = await anna.fetch(max_records=10)
        assert acquired(got) == [(10, 19, 1)]
        assert len(got.records) < sum(read) < 5 * len(got.records)
        read.clear()
        assert acquired(await anna.fetch(max_records=980)) == [(20, 519, 1), (520, 999, 1)], "longer and longer steps"
        assert 3 < len(read) < 20
