"""Ending a transaction by hand, as brokers answer that are late; the rest is tested against live ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.admin.transactions import Transactions
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import WireClient
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from tests.unit.clients.scripted_broker import ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.slow

METADATA, FIND_COORDINATOR, WRITE_TXN_MARKERS, DESCRIBE_TRANSACTIONS = 3, 10, 27, 65
EPOCH = datetime.fromtimestamp(0, UTC)


@pytest.fixture
def leader() -> Iterator[ScriptedBroker]:
    """A broker that leads the only partition of the topic t."""
    with ScriptedBroker({METADATA: (4, 12), WRITE_TXN_MARKERS: (1, 1)}, {}) as broker:
        broker.answers[METADATA] = lambda _: {
            "brokers": [broker.node()],
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "leader_id": 1}]}],
        }
        yield broker


def abort_at(leader: ScriptedBroker, codes: Iterable[ErrorCode], seconds: float = 30) -> None:
    answers = iter(codes)

    def answer(request: Any) -> dict[str, Any]:
        parts = [{"partition_index": 0, "error_code": next(answers)}]
        return {"markers": [{"producer_id": 5, "topics": [{"name": "t", "partitions": parts}]}]}

    leader.answers[WRITE_TXN_MARKERS] = answer
    with WireClient(leader.bootstrap, timeout=seconds) as wire:
        Transactions(wire).abort(TopicPartition("t", 0), 5, 0, 0)


def markers_asked_of(leader: ScriptedBroker) -> int:
    return sum(request.__api_key__ == WRITE_TXN_MARKERS for request in leader.requests)


def test_a_marker_that_is_late_is_asked_for_again(leader: ScriptedBroker) -> None:
    abort_at(leader, [ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower, ErrorCode.none])
    assert markers_asked_of(leader) == 3


def test_a_marker_is_asked_for_until_the_time_is_up(leader: ScriptedBroker) -> None:
    with pytest.raises(RequestRefused) as caught:
        abort_at(leader, iter(lambda: ErrorCode.request_timed_out, None), seconds=1)
    assert caught.value.code is ErrorCode.request_timed_out
    assert markers_asked_of(leader) > 1


def test_a_marker_that_is_refused_is_not_asked_for_again(leader: ScriptedBroker) -> None:
    with pytest.raises(RequestRefused) as caught:
        abort_at(leader, [ErrorCode.invalid_producer_epoch])
    assert caught.value.code is ErrorCode.invalid_producer_epoch


def test_an_id_without_a_transaction_is_described_beside_others() -> None:
    """Its start is -1, and nothing was told of any of them."""
    starts = {"never": -1, "open": 1_700_000_000_123}

    def described(_: Any) -> dict[str, Any]:
        return {
            "transaction_states": [
                {"transactional_id": name, "transaction_start_time": EPOCH + timedelta(milliseconds=start)}
                for name, start in starts.items()
            ]
        }

    with ScriptedBroker({FIND_COORDINATOR: (4, 6), DESCRIBE_TRANSACTIONS: (0, 0)}, {}) as broker:
        coordinators = [{"key": name, **broker.node()} for name in starts]
        broker.answers[FIND_COORDINATOR] = lambda _: {"coordinators": coordinators}
        broker.answers[DESCRIBE_TRANSACTIONS] = described
        with WireClient(broker.bootstrap) as wire:
            found = Transactions(wire).describe(starts)
    assert {name: one.started_ms for name, one in found.items()} == {"never": None, "open": 1_700_000_000_123}
