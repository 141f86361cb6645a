"""What is asked of a cluster in which topics go, and coordinators do not come."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.clients.admin import PartitionInfo, TopicInfo
from barnabas.clients.errors import RequestRefused
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
