"""Share partitions when the leader epoch of their partition rises: whose locks outlive that, and whose do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.errors import ErrorCode
from tests.support.producing import lead_anew, now_led
from tests.support.share_members import ACCEPT, Member, acquired, queue, send

if TYPE_CHECKING:
    from pathlib import Path


async def test_locks_outlive_a_new_leader_epoch_of_the_same_leader(tmp_path: Path) -> None:
    """As after the death of a follower. Otherwise two members could both be told that their word counts."""
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 2)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 1, 1)]
        lead_anew(broker, "jobs")
        lead_anew(broker, "jobs")
        send(broker, 1)
        assert acquired(await bela.fetch(wait_ms=5000)) == [(2, 2, 1)]
        assert await bela.acknowledge((0, 0, ACCEPT)) is ErrorCode.invalid_record_state
        assert await anna.acknowledge((0, 1, ACCEPT)) is ErrorCode.none
        assert await bela.acknowledge((2, 2, ACCEPT)) is ErrorCode.none


async def test_a_state_is_read_anew_if_another_broker_may_have_led_meanwhile(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 2)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 1, 1)]
        topic = broker.metadata.topic("jobs")
        assert topic is not None
        now_led(broker, topic, leader_epoch=broker.replicas.find("jobs", 0).leader.leader_epoch + 2)
        assert acquired(await bela.fetch(wait_ms=5000)) == [(0, 1, 1)]
        assert await anna.acknowledge((0, 0, ACCEPT)) is ErrorCode.invalid_record_state
        assert await bela.acknowledge((0, 1, ACCEPT)) is ErrorCode.none
