"""How far a query is, and the groups that show it."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from py4j.protocol import Py4JNetworkError

from barnabas.clients.errors import BrokerUnreachable
from barnabas.model.ids import TopicPartition
from barnabas.pipelines.spark import progress_listener
from barnabas.pipelines.spark.group_progress import read_upto
from barnabas.pipelines.spark.progress_listener import ProgressListener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.pipelines.spark.read.offsets import Offsets

ORDERS = TopicPartition("orders", 0)
RUN = SimpleNamespace(id="query", runId=UUID(int=1))
EVENT: Any = RUN


class Cluster:
    """A cluster whose groups are seen by the test; `away` makes its coordinator be away."""

    groups: dict[str, Offsets]
    away = False
    closed = 0

    def __init__(self, config: Mapping[str, object], *, timeout: float) -> None:
        pass

    def commit(self, group: str, offsets: Offsets, *, timeout: float) -> None:
        if Cluster.away:
            raise BrokerUnreachable("nobody is there")
        Cluster.groups[group] = offsets

    def close(self) -> None:
        Cluster.closed += 1


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> type[Cluster]:
    Cluster.groups, Cluster.away, Cluster.closed = {}, False, 0
    monkeypatch.setattr(progress_listener, "ClusterView", Cluster)
    return Cluster


def reading(topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "localhost:9092", "subscribe": topic, **more}


class Spark:
    """A session with these active queries, whose ids are text to PySpark, but not in events."""

    def __init__(self, *active: UUID) -> None:
        self.streams = SimpleNamespace(active=[SimpleNamespace(runId=str(run)) for run in active])
        self.sparkContext = SimpleNamespace(_jsc="a JVM")


def started(monkeypatch: pytest.MonkeyPatch, *streams: dict[str, str] | None) -> ProgressListener:
    """A listener that was told of a query of these streams."""
    monkeypatch.setattr(progress_listener, "_streams", lambda *_: iter(streams))
    spark: Any = Spark()
    listener = ProgressListener(spark)
    listener.onQueryStarted(EVENT)
    return listener


def batch(*ends: Any) -> Any:
    sources = [{"endOffset": end} for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(runId=RUN.runId, json=json.dumps({"sources": sources})))


def test_the_end_of_a_batch_is_that_of_all_its_sources_and_the_lower_one_of_a_topic_that_is_read_twice() -> None:
    sources: list[dict[str, Any]] = [
        {"endOffset": {"a": {"0": 5, "1": 2}}},
        {"endOffset": '{"a":{"0":3}}'},
        {"endOffset": None},
    ]
    assert read_upto(sources) == {TopicPartition("a", 0): 3, TopicPartition("a", 1): 2}


def test_each_group_has_the_ends_of_its_own_sources(monkeypatch: pytest.MonkeyPatch, cluster: type[Cluster]) -> None:
    one, other = reading("orders", progressGroup="one"), reading("fines", PROGRESSGROUP="other")
    listener = started(monkeypatch, None, one, reading("quiet"), other, one)
    orders, more = {"orders": {"0": 7}}, {"orders": {"0": 5}}
    listener.onQueryProgress(batch(17, orders, {"quiet": {"0": 1}}, {"fines": {"0": 2}}, more))
    assert cluster.groups == {"one": {ORDERS: 5}, "other": {TopicPartition("fines", 0): 2}}
    listener.onQueryTerminated(EVENT)
    assert cluster.closed == 2


def test_queries_that_name_no_group_are_let_be(monkeypatch: pytest.MonkeyPatch, cluster: type[Cluster]) -> None:
    listener = started(monkeypatch, None, reading("orders"))
    listener.onQueryProgress(batch(17, {"orders": {"0": 7}}))
    listener.onQueryIdle(EVENT)
    listener.onQueryTerminated(EVENT)
    assert cluster.groups == {}


@pytest.mark.parametrize("moment", ["onQueryIdle", "onQueryTerminated"])
def test_what_a_group_did_not_take_it_gets_later(
    moment: str, monkeypatch: pytest.MonkeyPatch, cluster: type[Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    listener = started(monkeypatch, reading("orders", progressGroup="g"))
    cluster.away = True
    listener.onQueryProgress(batch({"orders": {"0": 7}}))
    assert "The consumer group g does not show the progress of the query: nobody is there" in caplog.text
    cluster.away = False
    getattr(listener, moment)(EVENT)
    assert cluster.groups == {"g": {ORDERS: 7}}


def test_a_query_whose_options_are_wrong_is_left_to_tell_so(
    monkeypatch: pytest.MonkeyPatch, cluster: type[Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    listener = started(monkeypatch, reading("orders", endingOffsets="latest", progressGroup="g"))
    assert "No consumer group shows the progress of the query query: option endingOffsets is for batches" in caplog.text
    listener.onQueryProgress(batch({"orders": {"0": 7}}))
    assert cluster.groups == {}


def test_the_end_of_a_program_waits_for_the_last_batch_of_a_query_that_has_ended(
    monkeypatch: pytest.MonkeyPatch, cluster: type[Cluster]
) -> None:
    listener = started(monkeypatch, reading("orders", progressGroup="g"))
    events = [
        partial(listener.onQueryProgress, batch({"orders": {"0": 7}})),
        partial(listener.onQueryTerminated, EVENT),
    ]
    monkeypatch.setattr("time.sleep", lambda _: events.pop(0)())
    listener.wait_for_last()
    assert (cluster.groups, cluster.closed) == ({"g": {ORDERS: 7}}, 1)


@pytest.mark.parametrize(
    "change", [{"streams": Spark(RUN.runId).streams}, {"sparkContext": SimpleNamespace(_jsc=None)}]
)
def test_the_end_of_a_program_waits_neither_for_queries_that_run_nor_for_a_spark_that_was_stopped(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch, cluster: type[Cluster]
) -> None:
    listener = started(monkeypatch, reading("orders", progressGroup="g"))
    vars(listener._spark).update(change)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waited"))
    listener.wait_for_last()


def test_the_end_of_a_program_does_not_mind_a_jvm_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, cluster: type[Cluster]
) -> None:
    class Gone:
        @property
        def active(self) -> list[Any]:
            raise Py4JNetworkError("the JVM is gone")

    listener = started(monkeypatch, reading("orders", progressGroup="g"))
    vars(listener._spark)["streams"] = Gone()
    listener.wait_for_last()
