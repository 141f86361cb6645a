"""confluent-kafka (librdkafka) in groups of both protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from tests.support.group_scenarios import Crew, EagerAndCooperative, GroupScenarios, send
from tests.support.members.confluent_kafka import ConfluentConsumerProtocolMember, ConfluentMember
from tests.support.members.member import places_of
from tests.support.members.waiting import wait_until_read, wait_until_shared
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


class TestClassic(EagerAndCooperative):
    """group.protocol=classic."""

    kind = ConfluentMember
    assignors = ("range", "roundrobin", "cooperative-sticky")

    def test_a_second_member_of_the_same_instance_fences_the_first(
        self, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        topic = new_topic(2)
        first = crew.join(topic, instance="only")
        wait_until_shared([first], places_of(topic, 2))
        second = crew.join(topic, instance="only")
        wait_until_shared([second], places_of(topic, 2))
        wait_until(lambda: first.failure, "the first member's end")
        assert isinstance(first.failure, KafkaException)
        assert first.failure.args[0].code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
        wait_until_read([second], send(bootstrap, topic, 2, 10))


class TestConsumerProtocol(GroupScenarios):
    """group.protocol=consumer (KIP-848)."""

    kind = ConfluentConsumerProtocolMember
    assignors = ("uniform", "range")

    def test_a_rebalance_moves_only_what_it_must(self, bootstrap: str, new_topic: TopicMaker, crew: Crew) -> None:
        topic = new_topic(6)
        places = places_of(topic, 6)
        first = crew.join(topic)
        wait_until_shared([first], places)
        second = crew.join(topic)
        wait_until_shared([first, second], places)
        assert len(first.taken()) == 3
        assert second.owned == first.taken()

    def test_an_instance_that_is_taken_is_refused(self, bootstrap: str, new_topic: TopicMaker, crew: Crew) -> None:
        topic = new_topic(2)
        first = crew.join(topic, instance="only")
        wait_until_shared([first], places_of(topic, 2))
        second = crew.join(topic, instance="only")
        wait_until(lambda: second.failure, "the second member's end")
        assert isinstance(second.failure, KafkaException)
        assert second.failure.args[0].code() in (KafkaError._FATAL, KafkaError.UNRELEASED_INSTANCE_ID)
        wait_until_read([first], send(bootstrap, topic, 2, 10))


def test_a_group_changes_its_protocol_while_it_runs(bootstrap: str, new_topic: TopicMaker) -> None:
    """Members of the new protocol join classic ones, replace them, and are replaced by classic ones again."""
    topic = new_topic(4)
    places = places_of(topic, 4)
    crew = Crew(ConfluentMember, bootstrap)
    try:
        old = crew.join(topic)
        wait_until_shared([old], places)
        crew.kind = ConfluentConsumerProtocolMember
        new = crew.join(topic)
        wait_until_shared([old, new], places)
        wait_until_read([old, new], send(bootstrap, topic, 4, 40, "mixed"))
        old.leave()
        wait_until_shared([new], places)
        wait_until_read([new], send(bootstrap, topic, 4, 40, "new"))
        crew.kind = ConfluentMember
        back = crew.join(topic)
        wait_until_shared([new, back], places)
        new.leave()
        wait_until_shared([back], places)
        wait_until_read([back], send(bootstrap, topic, 4, 40, "back"))
    finally:
        crew.go_home()
