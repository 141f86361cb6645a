"""The topic of metrics: when its producer is opened, and what happens where it cannot be."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.model.base_error import BarnabasError
from barnabas.model.internal_topics import PIPELINE_METRICS
from barnabas.pipelines.metrics_topic import MetricsTopic
from barnabas.pipelines.runner.metrics import BatchMetrics

if TYPE_CHECKING:
    import pytest

METRICS = BatchMetrics(
    query="load-orders",
    batch=1,
    at="2026-01-31T12:00:00Z",
    seconds=1.0,
    rows=2,
    rows_per_second=2.0,
    lag=0,
    state_rows=0,
    state_bytes=0,
    watermark=None,
)


class Topic(MetricsTopic):
    """A topic whose producer notes what it sends, or is refused."""

    def __init__(self, topic: str | None, *refusals: bool) -> None:
        super().__init__({"bootstrap.servers": "localhost:1"}, topic)
        self.steps: list[str] = []
        self._refusals = iter(refusals)

    def _open(self, topic: str) -> Any:
        refused = next(self._refusals, False)
        self.steps.append(f"{topic} refused" if refused else f"{topic} opened")
        if refused:
            raise BarnabasError("the broker does not let us in")
        return SimpleNamespace(send=lambda topic, value, key: self.steps.append(f"sent to {topic}"))


def test_a_producer_that_was_opened_for_the_first_batch_sends_its_metrics() -> None:
    topic = Topic("reports")
    topic.open()
    topic.open()
    assert topic.steps == ["reports opened"]
    topic.send(METRICS)
    assert topic.steps == ["reports opened", "sent to reports"]


def test_metrics_open_the_producer_where_nothing_else_has() -> None:
    topic = Topic("reports")
    topic.send(METRICS)
    assert topic.steps == ["reports opened", "sent to reports"]


def test_the_topic_that_nobody_has_named_is_given_up_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    topic = Topic(PIPELINE_METRICS, True)
    with caplog.at_level(logging.WARNING):
        topic.open()
        topic.send(METRICS)
    assert topic.steps == [f"{PIPELINE_METRICS} refused"]
    assert [each.getMessage() for each in caplog.records] == [
        f"The next metrics cannot be sent to the topic {PIPELINE_METRICS}: the broker does not let us in"
    ]


def test_a_topic_that_was_named_is_tried_again_with_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    topic = Topic("reports", True)
    with caplog.at_level(logging.WARNING):
        topic.open()
        topic.send(METRICS)
    assert topic.steps == ["reports refused", "reports opened", "sent to reports"]
    assert len(caplog.records) == 1


def test_the_same_reason_is_told_once_until_something_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    topic = Topic("reports", True, True, True, False, True)
    with caplog.at_level(logging.WARNING):
        topic.open()
        topic.send(METRICS)
        topic.send(METRICS)
        assert len(caplog.records) == 1
        topic.send(METRICS)
        topic._producer = None
        topic.send(METRICS)
    assert [each.getMessage().partition(" cannot")[0] for each in caplog.records] == [
        "The next metrics",
        "The metrics of batch 1",
    ]


def test_nothing_is_opened_where_no_topic_is_wanted() -> None:
    topic = Topic(None)
    topic.open()
    topic.send(METRICS)
    assert not topic.steps
