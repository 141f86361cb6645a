from __future__ import annotations

import socket
import sys
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.admin import admin as admin_module
from barnabas.clients.admin.admin import Admin
from barnabas.clients.admin.topics import NewTopic, PartitionInfo, TopicInfo
from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, InvalidClientConfig, LibraryMissing
from barnabas.clients.wire.addresses import split_address
from barnabas.model.ids import TopicPartition
from tests.support.processes import free_port
from tests.unit.clients.scripted_broker import ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

METADATA, ALTER_CONFIGS = 3, 44


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


def test_a_connection_that_breaks_is_no_silence() -> None:
    def hang_up(_: object) -> None:
        raise OSError

    with ScriptedBroker({METADATA: (4, 12), ALTER_CONFIGS: (0, 1)}, {ALTER_CONFIGS: hang_up}) as broker:
        broker.answers[METADATA] = lambda _: {"brokers": [broker.node()], "controller_id": 1}
        with Admin(broker.bootstrap) as client, pytest.raises(BrokerSilent) as caught:
            client.alter_topic_config("t", set_={"retention.ms": "1"})
    assert str(caught.value) == f"{broker.bootstrap}: the connection broke before the answer came"


def test_an_answer_is_not_kept_waiting_by_the_look_for_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_module, "LOOK_AROUND_SECONDS", 0.01)
    future, is_answered = Future[str](), threading.Event()

    def list_topics(timeout: float) -> None:
        future.set_result("there")
        assert is_answered.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as mute, Admin(f"127.0.0.1:{mute.getsockname()[1]}") as client:
        monkeypatch.setattr(client, "_client", SimpleNamespace(list_topics=list_topics, poll=lambda _: 0))
        assert client._result(future) == "there"
        is_answered.set()


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


@pytest.fixture
def admin() -> Iterator[Admin]:
    """One whose peer says nothing: what is refused here was asked of nobody."""
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        Admin(f"127.0.0.1:{mute.getsockname()[1]}", timeout=0.2) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda admin: admin.create_topic("t", 10**9), "partitions of t: 1000000000 is not from 1 to 100000"),
        (lambda admin: admin.create_topic("t", 2**40), "partitions of t: 1099511627776 is not from 1 to 100000"),
        (lambda admin: admin.create_topic("t", 0), "partitions of t: 0 is not from 1 to 100000"),
        (
            lambda admin: admin.create_topic(NewTopic(name="t", replication_factor=30_000)),
            "replicas of t: 30000 is not from 1 to 10000",
        ),
        (lambda admin: admin.create_topic("t", -2), "partitions of t: -2 is not from 1 to 100000"),
        (lambda admin: admin.create_partitions("t", -1), "partitions of t: -1 is not from 1 to 100000"),
        (lambda admin: admin.create_partitions("t", 10**9), "partitions of t: 1000000000 is not from 1 to 100000"),
        (lambda admin: admin.end_offsets([TopicPartition("t", -1)]), "partition of t: -1 is not from 0 to 2147483647"),
        (
            lambda admin: admin.delete_records({TopicPartition("t", 0): 2**63}),
            "offset of t-0: 9223372036854775808 is not from -1 to 9223372036854775807",
        ),
        (
            lambda admin: admin.commit_group_offsets("g", {TopicPartition("t", 0): -1}),
            "offset of t-0: -1 is not from 0 to 9223372036854775807",
        ),
        (
            lambda admin: admin.offsets_at(-7, [TopicPartition("t", 0)]),
            "milliseconds since 1970: -7 is not from 0 to 9223372036854775807",
        ),
        (lambda admin: admin.group_offsets(""), "the name of a group is empty"),
    ],
)
def test_numbers_that_no_broker_could_take_are_refused_with_their_range(
    admin: Admin, ask: Callable[[Admin], object], told: str
) -> None:
    with pytest.raises(InvalidClientConfig) as caught:
        ask(admin)
    assert str(caught.value) == told


@pytest.mark.parametrize("number", [None, -1])
def test_the_brokers_defaults_can_be_asked_for_by_kafkas_number(
    admin: Admin, number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def create_topics(topics: list[Any], **_: float) -> dict[str, Future[None]]:
        asked.extend((topic.num_partitions, topic.replication_factor) for topic in topics)
        done = Future[None]()
        done.set_result(None)
        return {topic.topic: done for topic in topics}

    monkeypatch.setattr(admin, "_client", SimpleNamespace(create_topics=create_topics, poll=int))
    admin.create_topic(NewTopic(name="t", partitions=number, replication_factor=number))
    assert asked == [(-1, -1)]


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_no_time_at_all_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidClientConfig, match="it has to be more than 0 seconds"):
        Admin("127.0.0.1:1", timeout=timeout)
