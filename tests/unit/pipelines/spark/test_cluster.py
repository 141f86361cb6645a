"""What is asked of a cluster in which topics go, and coordinators do not come, and of one that is not there."""

from __future__ import annotations

import re
import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from barnabas.clients.admin.topics import PartitionInfo, TopicInfo
from barnabas.clients.errors import (
    AddressInvalid,
    AddressUnknown,
    BrokerSilent,
    BrokerUnreachable,
    InvalidClientConfig,
    RequestRefused,
)
from barnabas.clients.wire.addresses import connect
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.pipelines.errors import TopicMissing
from barnabas.pipelines.spark import cluster
from barnabas.pipelines.spark.cluster import ClusterView
from barnabas.pipelines.spark.read.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Brokers:
    """Topics of one partition, of which one is deleted whenever they were listed; no group has a coordinator."""

    def __init__(self, topics: Sequence[str], deleted: Iterable[str] = ()) -> None:
        self._topics, self._deleted = list(topics), list(deleted)
        self.unknown: set[int] = set()
        """Moments for which its partitions are unknown at first, as after a restart."""

    def close(self) -> None:
        """Nothing to close."""

    def topic_names(self) -> list[str]:
        names = list(self._topics)
        if self._deleted:
            self._topics.remove(self._deleted.pop())
        return names

    def describe_topics(self, names: Sequence[str]) -> list[TopicInfo]:
        if set(names) - set(self._topics):
            raise RequestRefused(ErrorCode.unknown_topic_or_partition, "there is no such topic")
        only = PartitionInfo(partition=0, leader=0, replicas=(0,), isr=(0,))
        return [TopicInfo(name=name, topic_id=None, partitions=(only,)) for name in names]

    def offsets_at(self, moment: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        self.describe_topics([partition.topic for partition in partitions])
        if moment in self.unknown:
            self.unknown.remove(moment)
            raise RequestRefused(ErrorCode.unknown_topic_or_partition, "not yet")
        return dict.fromkeys(partitions, moment)

    def commit_group_offsets(self, group: str, offsets: object, *, timeout: float) -> None:
        self.timeout = timeout
        raise RequestRefused(ErrorCode.coordinator_not_available, "later")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RETRY_SECONDS", 0.001)


def view(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> ClusterView:
    monkeypatch.setattr(cluster, "Admin", lambda *_, **__: brokers)
    return ClusterView({"bootstrap.servers": "any"})


def test_a_topic_that_is_deleted_while_a_pattern_is_looked_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = view(monkeypatch, Brokers(["a1", "a2", "b", "__consumer_offsets"], deleted=["a2"]))
    assert found.partitions(Selection(pattern=re.compile("a.|_.*"))) == [TopicPartition("a1", 0)]


def test_a_partition_that_is_unknown_for_a_moment_is_asked_again_and_one_that_is_gone_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, there = Brokers(["t"]), TopicPartition("t", 0)
    brokers.unknown = {5}
    assert view(monkeypatch, brokers).at({there: 5}) == {there: 5}
    with pytest.raises(TopicMissing, match="no topic or partition gone"):
        view(monkeypatch, brokers).at({there: 5, TopicPartition("gone", 0): 7})


@pytest.mark.parametrize("level", ["read_committed", "READ_COMMITTED", " Read_Committed", "read_uncommitted"])
def test_ends_are_those_of_the_readers_that_librdkafka_makes_of_the_same_word(
    monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """It takes it in any case: with other ends, a reader would wait for records that it never gets to see."""
    monkeypatch.setattr(cluster, "Admin", lambda *_, **__: Brokers([]))
    with ClusterView({"bootstrap.servers": "any", "isolation.level": level}) as found:
        assert found.committed_only is (level != "read_uncommitted")
    Consumer({"group.id": "g", "isolation.level": level}).close()


def test_whoever_has_no_time_to_wait_for_a_coordinator_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    began, brokers = time.monotonic(), Brokers([])
    with pytest.raises(RequestRefused, match="later"):
        view(monkeypatch, brokers).commit("g", {TopicPartition("t", 0): 1}, timeout=0.01)
    assert time.monotonic() - began < cluster.TIMEOUT_SECONDS / 2
    assert brokers.timeout == 0.01


class Clock:
    """Time that passes only for those who sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(cluster, "time", clock)
    monkeypatch.setattr(cluster, "RETRY_SECONDS", 0.25)
    return clock


@pytest.mark.parametrize(("given", "timeout"), [({}, 60), ({"default.api.timeout.ms": "8000"}, 8)])
def test_a_broker_that_does_not_answer_is_soon_told_of_once_while_it_is_waited_for(
    given: dict[str, str],
    timeout: int,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []

    def admin(*_: object, **__: object) -> None:
        if clock.now <= 3:
            told[:] = caplog.messages
        raise BrokerUnreachable("no broker answers at here:1 (connection refused)")

    monkeypatch.setattr(cluster, "Admin", admin)
    with pytest.raises(BrokerUnreachable, match="connection refused"):
        ClusterView({"bootstrap.servers": "here:1", **given})
    assert timeout <= clock.now <= timeout + 1
    assert told == caplog.messages
    assert told == [f"no broker answers at here:1 (connection refused). The request is retried for up to {timeout} s."]


def test_a_broker_that_is_back_in_a_moment_is_not_told_of(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def admin(*_: object, **__: object) -> Brokers:
        if clock.now < 1:
            raise BrokerUnreachable("away")
        return Brokers(["t"])

    monkeypatch.setattr(cluster, "Admin", admin)
    assert ClusterView({"bootstrap.servers": "any"}).partitions(Selection(topics=("t",))) == [TopicPartition("t", 0)]
    assert not caplog.messages


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has any name. An admin client is only its first connection: librdkafka would ask a real name server."""

    def resolve(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def admin(servers: str, *, timeout: float, **_: object) -> None:
        connect(servers, timeout).socket.close()

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(cluster, "Admin", admin)


@pytest.mark.usefixtures("nameless")
def test_what_is_no_address_is_not_waited_for(clock: Clock) -> None:
    with pytest.raises(AddressInvalid, match="no broker answers at localhost:no "):
        ClusterView({"bootstrap.servers": "localhost:no"})
    assert clock.now == 0


@pytest.mark.usefixtures("nameless")
@pytest.mark.parametrize(("given", "timeout"), [({}, 60), ({"name_timeout": 10.0}, 10)])
def test_a_name_that_nobody_has_yet_is_waited_for_and_told_of(
    given: dict[str, float], timeout: int, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AddressUnknown, match=r"no broker answers at kafka:9092 \(name or service not known\)"):
        ClusterView({"bootstrap.servers": "kafka:9092,other:no"}, **given)
    assert timeout <= clock.now <= timeout + 1
    (told,) = caplog.messages
    assert told.endswith(f". The request is retried for up to {timeout} s.")


def test_a_broker_that_went_away_in_the_middle_is_not_said_to_take_connections(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that was connected once only says that it got no answer."""
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"

        class Silent(Brokers):
            def topic_names(self) -> list[str]:
                clock.sleep(10)
                raise BrokerSilent(f"{address} takes connections but gave no answer within 10 s")

        monkeypatch.setattr(cluster, "Admin", lambda *_, **__: Silent([]))
        with pytest.raises(BrokerUnreachable, match="connection refused"):
            ClusterView({"bootstrap.servers": address}).partitions(Selection(pattern=re.compile("a")))
        assert caplog.messages == [
            f"no broker answers at {address} (connection refused). The request is retried for up to 60 s."
        ]
        caplog.clear()
        unused.listen()
        with pytest.raises(BrokerSilent, match="takes connections"):
            ClusterView({"bootstrap.servers": address}).partitions(Selection(pattern=re.compile("a")))


@pytest.mark.parametrize("text", ["soon", "nan", "-1"])
def test_a_timeout_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidClientConfig, match=rf"default\.api\.timeout\.ms is {text}, and not milliseconds"):
        ClusterView({"bootstrap.servers": "any", "default.api.timeout.ms": text})


def test_a_timeout_beyond_what_librdkafka_gives_a_connection_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ClusterView({"bootstrap.servers": address, "default.api.timeout.ms": "600000"}).close()
