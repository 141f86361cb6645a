"""aiokafka's admin client on groups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient

from tests.support.group_scenarios import Crew, send
from tests.support.members.aiokafka import AioKafkaMember
from tests.support.members.member import places_of
from tests.support.members.waiting import wait_until_read, wait_until_shared

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


def test_groups_are_listed_described_and_their_offsets_told(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(2)
    sent = send(bootstrap, topic, 2, 20)
    crew = Crew(AioKafkaMember, bootstrap)

    async def look() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            assert crew.group in str(await admin.list_consumer_groups())
            described = str(await admin.describe_consumer_groups([crew.group]))
            assert "Stable" in described
            found = await admin.list_consumer_group_offsets(crew.group)
            assert {place: offset.offset for place, offset in found.items()} == {
                aiokafka.TopicPartition(topic, number): 10 for number in (0, 1)
            }
        finally:
            await admin.close()

    try:
        member = crew.join(topic)
        wait_until_shared([member], places_of(topic, 2))
        wait_until_read([member], sent)
        member.commit()
        asyncio.run(look())
    finally:
        crew.go_home()
