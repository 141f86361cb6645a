"""The producer: futures, callbacks, batches, serializers and partitioners."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.consumer.consumer import Consumer
from barnabas.clients.errors import (
    ClientClosed,
    InvalidClientConfig,
    NotDelivered,
    RequestRefused,
    SerializationFailed,
)
from barnabas.clients.partitioners import RoundRobin, at_random, key_hash
from barnabas.clients.producer.producer import Producer
from barnabas.clients.serializers import JSON, STRING
from tests.support.processes import WITHOUT_HYPOTHESIS
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from barnabas.clients.producer.delivery import Delivery


def test_a_future_says_where_the_record_went(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger=0) as producer:
        first = producer.send(topic, "a", partition=1).result(30)
        second = producer.send(topic, b"b", partition=1).result(30)
    assert (first.topic, first.partition, first.offset) == (topic, 1, 0)
    assert (second.partition, second.offset) == (1, 1)
    assert second.timestamp > 0


def test_a_callback_is_told_without_anybody_waiting(bootstrap: str, topic: str) -> None:
    told = threading.Event()
    with Producer(bootstrap, linger=0) as producer:
        producer.send(topic, "a", on_delivery=lambda _: told.set())
        assert told.wait(30)


def test_leaving_the_block_waits_for_everything(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger=900, delivery_timeout=1000) as producer:
        sent = [producer.send(topic, str(number)) for number in range(1000)]
        assert len(producer) == 1000
    assert all(delivery.done() for delivery in sent)
    with pytest.raises(ClientClosed):
        producer.send(topic, "late")
    producer.close()


@pytest.mark.parametrize("count", [1, 2])
def test_batches_end_at_their_number_of_records(bootstrap: str, topic: str, count: int) -> None:
    """With an hour to linger, only a full batch is sent before a flush."""
    with Producer(bootstrap, linger=900, batch_messages=count, delivery_timeout=1000) as producer:
        full = [producer.send(topic, "x", partition=0) for _ in range(count)]
        assert full[-1].result(30).offset == count - 1


def test_batches_end_at_their_number_of_bytes(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger=900, batch_bytes=2000, delivery_timeout=1000) as producer:
        first = producer.send(topic, "x" * 1500, partition=0)
        producer.send(topic, "x" * 1500, partition=0)
        assert first.result(30).offset == 0


def test_batches_end_at_their_age(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger=0.01) as producer:
        assert producer.send(topic, "x", partition=0).result(30).offset == 0


def test_a_full_buffer_is_waited_for(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger=0, buffer_messages=5, max_block=20) as producer:
        sent = [producer.send(topic, "x", partition=0) for _ in range(200)]
    assert [delivery.result().offset for delivery in sent] == list(range(200))


def test_serializers_are_used_and_null_stays_null(bootstrap: str, topic: str) -> None:
    with Producer[str, Any](bootstrap, key_serializer=STRING, value_serializer=JSON, linger=0) as producer:
        producer.send(topic, {"a": 1}, "k").result(30)
        producer.send(topic, None, "k").result(30)


def test_what_cannot_be_serialized_is_not_sent(bootstrap: str) -> None:
    with Producer[Any, Any](bootstrap, value_serializer=JSON) as producer:
        with pytest.raises(SerializationFailed, match=r"value of a record for t: TypeError: .*\(set was given\)"):
            producer.send("t", {1})
        assert len(producer) == 0
    with Producer[Any, Any](bootstrap) as producer, pytest.raises(SerializationFailed, match="Give key_serializer="):
        producer.send("t", 5)


def test_a_record_that_is_too_large_is_refused(bootstrap: str) -> None:
    with Producer(bootstrap, max_request_size=1000) as producer, pytest.raises(RequestRefused, match="too large"):
        producer.send("t", "x" * 2000)


def test_a_partitioner_that_counts_wrong_is_told(bootstrap: str, topic: str) -> None:
    with (
        Producer(bootstrap, partitioner=lambda topic, key, count: count) as producer,
        pytest.raises(InvalidClientConfig, match=r"the partitioner chose 4 of .*, whose last partition is 3"),
    ):
        producer.send(topic, "x")


def test_transactions_need_an_id(bootstrap: str) -> None:
    with (
        Producer(bootstrap) as producer,
        pytest.raises(InvalidClientConfig, match="give transactional_id="),
        producer.transaction(),
    ):
        raise AssertionError("the block must not begin")


def test_many_threads_may_send_at_once(bootstrap: str, topic: str) -> None:
    sent: list[Delivery] = []
    with Producer(bootstrap, linger=0.005) as producer:
        threads = [
            threading.Thread(target=lambda: sent.extend(producer.send(topic, "x", partition=0) for _ in range(500)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(delivery.result().offset for delivery in sent) == list(range(2000))


LEFT_BEHIND = """
import sys
from pathlib import Path
from barnabas import Producer
from barnabas.clients.errors import ClientClosed
from tests.support.waiting import wait_until

def threads():
    return {path.name for path in Path("/proc/self/task").iterdir()}

bootstrap, topic = sys.argv[1:]
before = threads()
producer = Producer(bootstrap)
producer.send(topic, "x").result(30)
assert len(threads() - before) > 2
producer.close()
wait_until(lambda: not threads() - before, "the end of the producer's threads")
assert len(producer) == 0
try:
    producer.partitions(topic)
except ClientClosed:
    print("closed")
"""


def test_a_closed_producer_leaves_no_thread_and_no_connection(bootstrap: str, topic: str) -> None:
    """Although it is still known: otherwise it would go on to ask for its topics, and so make deleted ones again.

    In a process of its own, where nobody else begins a thread.
    """
    program = [sys.executable, "-c", WITHOUT_HYPOTHESIS + LEFT_BEHIND, bootstrap, topic]
    told = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (told.stdout, told.returncode) == ("closed\n", 0), told.stderr


def test_a_program_that_forgets_to_close_loses_nothing(bootstrap: str, topic: str) -> None:
    program = (
        f"from barnabas import Producer\nproducer = Producer({bootstrap!r})\n"
        f"for number in range(1000): producer.send({topic!r}, str(number))"
    )
    told = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], stderr=subprocess.PIPE, timeout=60, check=True
    )
    assert b"ResourceWarning: a producer was not closed" in told.stderr
    with Consumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        assert len(list(consumer.until_end())) == 1000


def test_a_sender_that_waits_for_room_learns_of_the_end(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, linger=900, delivery_timeout=1000, buffer_messages=1)
    producer.send(topic, "fills the buffer")
    refused: list[BaseException] = []

    def waits() -> None:
        try:
            producer.send(topic, "finds no room")
        except ClientClosed as error:
            refused.append(error)

    sender = threading.Thread(target=waits)
    sender.start()
    wait_until(lambda: producer._native.poller.sends == 2, "the second send")
    with pytest.raises(NotDelivered):
        producer.close(0)
    sender.join(30)
    assert len(refused) == 1


@pytest.mark.parametrize("key", [b"", b"k", b"21", "grüße", b"x" * 1000, b"\x80\xff\x7f"])
def test_what_librdkafka_chooses_is_what_the_function_says(bootstrap: str, topic: str, key: bytes | str) -> None:
    with Producer(bootstrap, linger=0) as producer:
        sent = producer.send(topic, "v", key).result(30)
    assert sent.partition == key_hash(topic, key.encode() if isinstance(key, str) else key, 4)


def test_records_are_spread_by_the_partitioner_that_was_given(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger=0, partitioner=RoundRobin()) as producer:
        sent = [producer.send(topic, "v", "same key") for _ in range(8)]
        assert [delivery.result(30).partition for delivery in sent] == [0, 1, 2, 3] * 2
    with Producer(bootstrap, linger=0, partitioner=lambda topic, key, count: count - 1) as producer:
        assert producer.send(topic, "v").result(30).partition == 3
        assert producer.send(topic, "v", partition=1).result(30).partition == 1
    with Producer(bootstrap, linger=0, partitioner=at_random) as producer:
        spread = Counter(d.result(30).partition for d in [producer.send(topic, "v", "same key") for _ in range(200)])
    assert len(spread) == 4
