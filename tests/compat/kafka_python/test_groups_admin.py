"""kafka-python's admin client on groups."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import kafka
from kafka import KafkaAdminClient, OffsetAndMetadata

from tests.support.group_scenarios import Crew, send
from tests.support.members.kafka_python import KafkaPythonMember
from tests.support.members.member import places_of
from tests.support.members.waiting import wait_until_read, wait_until_shared

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


def test_groups_are_listed_described_moved_and_deleted(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(2)
    places = [kafka.TopicPartition(topic, number) for number in (0, 1)]
    sent = send(bootstrap, topic, 2, 20)
    crew = Crew(KafkaPythonMember, bootstrap)
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        try:
            member = crew.join(topic)
            wait_until_shared([member], places_of(topic, 2))
            wait_until_read([member], sent)
            member.commit()
            assert crew.group in str(admin.list_groups())
            described = str(admin.describe_groups([crew.group]))
            assert "Stable" in described
            assert topic in described
        finally:
            crew.go_home()
        found = admin.list_group_offsets({crew.group: places})[crew.group]
        assert {place: offset.offset for place, offset in found.items()} == dict.fromkeys(places, 10)
        admin.alter_group_offsets(crew.group, {places[0]: OffsetAndMetadata(3, "three", 0)})
        moved = admin.list_group_offsets({crew.group: places})[crew.group]
        assert (moved[places[0]].offset, moved[places[0]].metadata) == (3, "three")
        admin.delete_group_offsets(crew.group, [places[1]])
        left = admin.list_group_offsets({crew.group: places})[crew.group]
        assert left.get(places[1]) is None or left[places[1]].offset == -1
        admin.delete_groups([crew.group])
        assert crew.group not in str(admin.list_groups())
