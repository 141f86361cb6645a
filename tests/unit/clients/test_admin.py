from __future__ import annotations

import socket
import sys

import pytest

from barnabas.clients.addresses import split_address
from barnabas.clients.admin import Admin, PartitionInfo, TopicInfo
from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, InvalidClientConfig, LibraryMissing
from tests.support.processes import free_port


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("broker:19092", ("broker", 19092)),
        ("broker", ("broker", 9092)),
        ("[::1]:19092", ("::1", 19092)),
        ("[::1]", ("::1", 9092)),
        ("SASL_SSL://broker:1", ("broker", 1)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["broker:http", "broker:0", "broker:70000"])
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(BrokerUnreachable, match=rf"no broker answers at {address} \(not an address"):
        Admin(address)


def test_every_address_that_was_tried_is_named() -> None:
    first, second = free_port(), free_port()
    with pytest.raises(BrokerUnreachable) as caught:
        Admin(f"127.0.0.1:{first}, 127.0.0.1:{second}")
    assert str(caught.value) == (
        f"no broker answers at 127.0.0.1:{first} (connection refused), 127.0.0.1:{second} (connection refused)"
    )


def test_a_peer_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with Admin(f"127.0.0.1:{port}", timeout=0.2) as client, pytest.raises(BrokerSilent) as caught:
            client.topic_names()
    assert str(caught.value) == f"127.0.0.1:{port} takes connections but gave no answer within 0.2 s"


def test_properties_that_librdkafka_does_not_take_are_named() -> None:
    with pytest.raises(InvalidClientConfig, match=r"no\.such\.thing"):
        Admin("127.0.0.1:1", config={"no.such.thing": "1"})


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    with pytest.raises(LibraryMissing, match=r"pip install '\.\[clients\]'"):
        Admin("127.0.0.1:1")


def test_replicas_are_counted_on_the_first_partition() -> None:
    partition = PartitionInfo(partition=0, leader=1, replicas=(1, 2), isr=(1,))
    assert TopicInfo(name="t", topic_id=None, partitions=(partition,)).replication_factor == 2
    assert TopicInfo(name="t", topic_id=None, partitions=()).replication_factor == 0


def test_internal_topics_are_known_by_name() -> None:
    assert TopicInfo(name="__consumer_offsets", topic_id=None, partitions=()).internal
    assert not TopicInfo(name="orders", topic_id=None, partitions=()).internal
