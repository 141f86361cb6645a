"""Client telemetry: who may ask and push, and when."""

from __future__ import annotations

from uuid import UUID

from barnabas.machines.telemetry import TelemetryClients, TelemetrySubscription
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import NO_ID

SUBSCRIPTION = TelemetrySubscription(metrics=("*",), interval_ms=1000)
NEW, OTHER = UUID(int=7), UUID(int=8)


def clients(most: int = 10) -> TelemetryClients:
    return TelemetryClients(SUBSCRIPTION, lambda: NEW, most)


def push(found: TelemetryClients, now_ms: int, *, last: bool = False, subscription: int = SUBSCRIPTION.id) -> ErrorCode:
    return found.push(NEW, subscription, terminating=last, now_ms=now_ms)


def test_a_client_without_an_id_gets_one() -> None:
    assert clients().ask(NO_ID, 0) == (NEW, ErrorCode.none)
    assert clients().ask(OTHER, 0) == (OTHER, ErrorCode.none)


def test_nobody_asks_or_pushes_too_often() -> None:
    found = clients()
    assert found.ask(NEW, 0)[1] is ErrorCode.none
    assert found.ask(NEW, 999)[1] is ErrorCode.throttling_quota_exceeded
    assert push(found, 1) is ErrorCode.none  # the first after a subscription
    assert push(found, 500) is ErrorCode.throttling_quota_exceeded
    assert push(found, 1001) is ErrorCode.none
    assert found.ask(NEW, 2001)[1] is ErrorCode.none


def test_the_last_push_comes_when_it_comes_and_is_the_last() -> None:
    found = clients()
    found.ask(NEW, 0)
    assert push(found, 1) is ErrorCode.none
    assert push(found, 2, last=True) is ErrorCode.none
    assert push(found, 5000) is ErrorCode.invalid_request


def test_a_client_with_an_old_subscription_may_ask_at_once() -> None:
    found = clients()
    assert push(found, 0, subscription=1) is ErrorCode.unknown_subscription_id
    assert found.ask(NEW, 1)[1] is ErrorCode.none
    assert found.refuse_compression(NEW) is ErrorCode.unsupported_compression_type
    assert found.ask(NEW, 2)[1] is ErrorCode.none


def test_a_push_without_an_id_is_refused_and_remembered_of_nobody() -> None:
    found = clients()
    assert found.push(NO_ID, SUBSCRIPTION.id, terminating=False, now_ms=0) is ErrorCode.invalid_request
    assert len(found) == 0


def test_who_was_quiet_for_longest_is_forgotten() -> None:
    found = clients(most=3)
    for number in range(1, 100):
        found.ask(UUID(int=number), 0)
    assert len(found) == 3


def test_another_subscription_has_another_id() -> None:
    other = TelemetrySubscription(metrics=("org.apache.kafka.producer",), interval_ms=1000)
    assert other.id != SUBSCRIPTION.id
    assert 0 <= other.id < 2**31
