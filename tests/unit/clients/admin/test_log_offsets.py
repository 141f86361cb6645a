"""Topics that may not be seen, beside others that may: each caller learns what it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.admin.log_offsets import LogOffsets
from barnabas.clients.admin.transactions import Transactions
from barnabas.clients.consumer.unreadable import find_unreadable
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import WireClient
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.list_offsets import LATEST
from tests.unit.clients.scripted_broker import ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

FETCH, LIST_OFFSETS, METADATA, DELETE_RECORDS = 1, 2, 3, 21
OPEN, SECRET = TopicPartition("open", 0), TopicPartition("secret", 0)
FORBIDDEN = ErrorCode.topic_authorization_failed
REFUSAL = r"no permission to describe topic secret \(Describe on topic secret\)"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker with the two topics, of which one may not be described."""
    with ScriptedBroker({FETCH: (4, 12), LIST_OFFSETS: (1, 6), METADATA: (4, 8), DELETE_RECORDS: (0, 2)}, {}) as broker:

        def describe(name: str) -> dict[str, Any]:
            if name == SECRET.topic:
                return {"name": name, "error_code": FORBIDDEN}
            return {"name": name, "partitions": [{"partition_index": 0, "leader_id": 1}]}

        broker.answers[METADATA] = lambda request: {
            "brokers": [broker.node()],
            "topics": [describe(topic.name) for topic in request.topics],
        }
        broker.answers[LIST_OFFSETS] = lambda _: {
            "topics": [{"name": "open", "partitions": [{"partition_index": 0, "offset": 9}]}]
        }
        broker.answers[DELETE_RECORDS] = lambda _: {
            "topics": [{"name": "open", "partitions": [{"partition_index": 0, "low_watermark": 4}]}]
        }
        yield broker


def test_records_of_the_others_are_deleted(broker: ScriptedBroker) -> None:
    with WireClient(broker.bootstrap) as wire:
        results = LogOffsets(wire).delete_before({SECRET: 4, OPEN: 4})
    assert results[OPEN] == 4
    refusal = results[SECRET]
    assert isinstance(refusal, RequestRefused)
    assert refusal.code == FORBIDDEN
    assert refusal.remedy is not None
    assert refusal.remedy.subject == "Describe topic secret"


def test_offsets_of_the_others_are_known(broker: ScriptedBroker) -> None:
    with WireClient(broker.bootstrap) as wire:
        known, forbidden = LogOffsets(wire).visible([SECRET, OPEN], LATEST)
    assert known == {OPEN: 9}
    assert forbidden.keys() == {"secret"}


def test_a_topic_that_is_forbidden_in_between_hides_no_others(broker: ScriptedBroker) -> None:
    """When its offsets are asked for, but not when its leader was."""
    broker.answers[LIST_OFFSETS] = lambda _: {
        "topics": [
            {"name": "late", "partitions": [{"partition_index": 0, "error_code": FORBIDDEN}]},
            {"name": "open", "partitions": [{"partition_index": 0, "offset": 9}]},
        ]
    }
    with WireClient(broker.bootstrap) as wire:
        known, forbidden = LogOffsets(wire).visible([TopicPartition("late", 0), OPEN], LATEST)
    assert known == {OPEN: 9}
    assert forbidden.keys() == {"late"}


def test_batches_of_the_others_are_looked_at(broker: ScriptedBroker) -> None:
    fetched: list[str] = []

    def fetch(request: Any) -> dict[str, Any]:
        fetched.extend(topic.topic for topic in request.topics)
        return {}

    broker.answers[FETCH] = fetch
    with WireClient(broker.bootstrap) as wire:
        assert find_unreadable(wire, {SECRET: 0, OPEN: 0}) is None
    assert fetched == ["open"]


def test_who_needs_all_of_them_is_refused(broker: ScriptedBroker) -> None:
    with WireClient(broker.bootstrap) as wire:
        offsets = LogOffsets(wire)
        with pytest.raises(RequestRefused, match=REFUSAL):
            offsets.leaders(["open", "secret"])
        with pytest.raises(RequestRefused, match=REFUSAL):
            offsets.at([OPEN, SECRET], LATEST)
        with pytest.raises(RequestRefused, match=REFUSAL):
            Transactions(wire).producers([OPEN, SECRET])
