"""The settings of a share group, each by what its members notice of it; bounds are those of `test_configs_groups`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.machines.shares.coordinator import Initialization
from barnabas.machines.shares.unset import UNINITIALIZED
from barnabas.model.clock import ManualClock
from barnabas.model.errors import ErrorCode
from tests.support.parts import append
from tests.support.share_letters import configure, done_before
from tests.support.share_members import ACCEPT, RELEASE, RENEW, Member, acquired, begin, later, queue, send

if TYPE_CHECKING:
    from pathlib import Path

HOUR_MS = 3_600_000
STRICT = 1


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("by_duration:PT3H", 1), ("by_duration:PT90M", 2), ("latest", 3), (None, 3)]
)
async def test_a_group_begins_where_it_is_told_to(tmp_path: Path, reset: str | None, first: int) -> None:
    """Records of four, two and one hours ago are there; one comes later. Three is where the log ended at first."""
    async with queue(tmp_path) as (broker, topic_id):
        assert isinstance(broker.clock, ManualClock)
        await configure(broker, **({} if reset is None else {"share_auto_offset_reset": reset}))
        await begin(broker, topic_id, Initialization(1, UNINITIALIZED))
        for hours in (4, 2, 1):
            append(broker.replicas.find("jobs", 0), [broker.clock.now_ms() - hours * HOUR_MS])
        anna = Member(broker, topic_id, "anna")
        found = await anna.fetch(wait_ms=500)
        send(broker)
        if found is None or not found.acquired_records:
            found = await anna.fetch(wait_ms=5000)
        assert acquired(found)[0][0] == first


async def test_locks_last_as_long_as_the_group_says(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await configure(broker, share_record_lock_duration_ms="50000")
        send(broker)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, 1)]
        await later(broker, 49_999)
        assert acquired(await bela.fetch()) == []
        await later(broker, 2)
        assert acquired(await bela.fetch()) == [(0, 0, 2)]


async def test_messages_are_delivered_as_often_as_the_group_says(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await configure(broker, share_delivery_count_limit="2")
        send(broker)
        anna = Member(broker, topic_id, "anna")
        for delivery in (1, 2):
            assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, delivery)]
            assert await anna.acknowledge((0, 0, RELEASE)) is ErrorCode.none
        assert await anna.fetch() is None
        assert done_before(broker) == 1


async def test_no_more_messages_are_in_flight_than_the_group_says(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await configure(broker, share_partition_max_record_locks="100")
        send(broker, 150)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000, share_acquire_mode=STRICT)) == [(0, 99, 1)]
        assert await anna.fetch(share_acquire_mode=STRICT) is None
        await configure(broker, share_partition_max_record_locks="120")
        assert acquired(await anna.fetch(share_acquire_mode=STRICT)) == [(100, 119, 1)], "a setting holds at once"


@pytest.mark.parametrize("allowed", [True, False])
async def test_locks_are_renewed_if_the_group_allows_it(tmp_path: Path, allowed: bool) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await configure(broker, share_renew_acknowledge_enable=str(allowed).lower())
        send(broker)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, 1)]
        await later(broker, 20_000)
        told = await anna.acknowledge((0, 0, RENEW), is_renew_ack=True)
        assert told is (ErrorCode.none if allowed else ErrorCode.invalid_request)
        await later(broker, 20_000)
        assert acquired(await bela.fetch()) == ([] if allowed else [(0, 0, 2)])
        if allowed:
            assert await anna.acknowledge((0, 0, ACCEPT)) is ErrorCode.none
