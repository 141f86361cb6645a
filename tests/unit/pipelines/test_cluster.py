"""What is asked of a cluster in which topics go, and coordinators do not come, and of one that is not there."""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.clients.admin import PartitionInfo, TopicInfo
from barnabas.clients.errors import AddressUnknown, BrokerUnreachable, InvalidClientConfig, RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.pipelines import cluster
from barnabas.pipelines.cluster import ClusterView
from barnabas.pipelines.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Brokers:
    """Topics of one partition, of which one is deleted whenever they were listed; no group has a coordinator."""

    def __init__(self, topics: Sequence[str], deleted: Iterable[str] = ()) -> None:
        self._topics, self._deleted = list(topics), list(deleted)

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


def test_whoever_has_no_time_to_wait_for_a_coordinator_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    began, brokers = time.monotonic(), Brokers([])
    with pytest.raises(RequestRefused, match="later"):
        view(monkeypatch, brokers).commit("g", {TopicPartition("t", 0): 1}, patience=0.01)
    assert time.monotonic() - began < cluster.PATIENCE / 2
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


@pytest.mark.parametrize(("given", "patience"), [({}, 60), ({"default.api.timeout.ms": "8000"}, 8)])
def test_a_broker_that_does_not_answer_is_soon_told_of_once_while_it_is_waited_for(
    given: dict[str, str],
    patience: int,
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
    assert patience <= clock.now <= patience + 1
    assert told == caplog.messages
    assert told == [f"no broker answers at here:1 (connection refused); waiting up to {patience} s for one"]


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


@pytest.mark.parametrize("address", ["localhost:no", "no-such-host.invalid:9092"])
def test_an_address_that_leads_nowhere_is_not_waited_for(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    began = time.monotonic()
    with pytest.raises(AddressUnknown, match=f"no broker answers at {address} "):
        ClusterView({"bootstrap.servers": address})
    assert time.monotonic() - began < cluster.PATIENCE / 2


def test_a_patience_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidClientConfig, match=r"default\.api\.timeout\.ms is soon, and not milliseconds"):
        ClusterView({"bootstrap.servers": "any", "default.api.timeout.ms": "soon"})
