"""What the clients of a history note of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

from confluent_kafka import KafkaError, KafkaException

from tests.history.checker import Fate
from tests.history.clients import SAFE, Reading, Sending
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from barnabas.testing import Kafka


def test_a_producer_whose_record_expires_may_repeat_what_has_no_answer_yet() -> None:
    producer = Sending("p", "127.0.0.1:1", "topic", 1, 100.0, SAFE)
    answered, expired, *_ = told = [producer._noting(index) for index in range(3)]
    for _ in told:
        producer._send()
    answered(None, Mock(offset=lambda: 0))
    expired(KafkaError(KafkaError._MSG_TIMED_OUT), Mock())
    producer._send()
    assert [send.is_repeatable for send in producer.sent] == [False, True, True, False]
    assert [send.fate for send in producer.sent] == [Fate.ACKNOWLEDGED, *[Fate.UNKNOWN] * 3]


def test_a_producer_that_is_of_no_more_use_is_replaced_also_when_it_is_told_so_by_a_send() -> None:
    producer = Sending("p", "127.0.0.1:1", "topic", 1, 100.0, SAFE)
    failed = KafkaException(KafkaError(KafkaError._FATAL, "out of order"))
    assert not failed.args[0].fatal(), "the mark that a callback's error has"
    ended = producer._producer = Mock(produce=Mock(side_effect=failed))
    producer.step()
    assert producer._producer is not ended
    assert producer.fatal == ["p/1: out of order"]
    assert [send.fate for send in producer.sent] == [Fate.UNKNOWN]


def test_a_member_whose_coordinator_moves_while_it_asks_for_offsets_goes_on(kafka: Kafka) -> None:
    topic = kafka.topic()
    with kafka.producer() as producer:
        producer.send(topic, b"value")
    with kafka.faults.fail("OFFSET_FETCH", "NOT_COORDINATOR", times=1) as fault:
        member = Reading("member", kafka.bootstrap_servers, topic, 1, "members-whose-coordinator-moves")
        member.start()
        try:
            wait_until(lambda: member.read == 1, "the record to be read")
        finally:
            member.end()
            member.join(30)
    assert fault.fired == 1
