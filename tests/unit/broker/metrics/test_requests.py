"""Request times: what is counted where, what is slow, and quantiles from buckets."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.broker.metrics import requests
from barnabas.broker.metrics.requests import (
    BOUNDS,
    LOGGED_PER_WINDOW,
    WINDOWS,
    RequestTimes,
    Times,
    add_up,
    quantiles,
    seconds,
)
from barnabas.broker.serving.caller import Caller, Session
from barnabas.net.reply import Answer, Parked

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.net.connection import Connection

PRODUCE, FETCH, METADATA = (bytes((0, key, 0, 9)) for key in (0, 1, 3))


def a_connection(broker_id: int | None = None) -> Connection:
    session = Session(broker_id=broker_id)
    caller = Caller(listener="PLAINTEXT", address=("10.0.0.1", 5), client_id="app", session=session)
    return cast("Connection", SimpleNamespace(state=SimpleNamespace(caller=caller), address=("10.0.0.1", 5)))


def watched(serve: Callable[[], Answer | Parked], slow: float | None = 1.0) -> RequestTimes:
    return RequestTimes(lambda connection, frame: serve(), lambda: 77, slow)


def serve(times: RequestTimes, frame: bytes = PRODUCE, connection: Any = None) -> Answer | Parked:
    return times.serve(connection or a_connection(), memoryview(frame))


def of(times: RequestTimes, name: str) -> Times:
    return next(each for each in times.times() if each.name == name)


def test_an_answer_at_once_is_one_increment_of_its_kind() -> None:
    times = watched(lambda: b"answer")
    assert serve(times) == b"answer"
    serve(times, METADATA)
    serve(times, METADATA)
    assert {each.name: each.count for each in times.times()} == {"Produce": 1, "Metadata": 2}


def test_a_parked_request_counts_when_it_is_answered() -> None:
    parked = Parked()
    times = watched(lambda: parked)
    assert serve(times) is parked
    assert list(times.times()) == []
    assert parked.when_answered is not None
    parked.when_answered()
    produce = of(times, "Produce")
    assert produce.count == 1
    assert sum(produce.begun) == sum(produce.later) == 1


def test_fetches_of_followers_and_consumers_are_told_apart() -> None:
    made: list[Parked] = []

    def park() -> Parked:
        made.append(Parked())
        return made[-1]

    times = watched(park)
    for connection in (a_connection(), a_connection(broker_id=2), a_connection(broker_id=2)):
        serve(times, FETCH, connection)
    for parked in made:
        assert parked.when_answered is not None
        parked.when_answered()
    assert {each.name: each.count for each in times.times()} == {"FetchConsumer": 1, "FetchFollower": 2}


def test_a_request_that_holds_the_loop_is_slow(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> bytes:
        time.sleep(0.02)
        return b""

    times = watched(work, slow=0.01)
    with caplog.at_level(logging.WARNING, "barnabas.slow"):
        serve(times)
    (slow,) = times.slow
    assert (slow.kind, slow.client_id, slow.address, slow.at_ms) == ("Produce", "app", "10.0.0.1:5", 77)
    assert slow.seconds >= slow.in_loop >= 0.02
    assert times.slow_count == of(times, "Produce").count == 1
    assert "Produce of client app at 10.0.0.1:5 took" in caplog.text


@pytest.mark.parametrize("turns", [0, 1])
def test_a_request_that_holds_the_loop_waits_for_nothing(turns: int) -> None:
    """All of its time was told as waiting, beside being told as work: remotetimems is what replicas take."""
    times = watched(lambda: time.sleep(0.02), slow=0.01)
    serve(times)
    produce = of(times, "Produce")
    for _ in range(turns):
        produce.turn()
        serve(times)
    for local, remote, total in (produce.recent(), produce.ever()):
        assert local == total
        assert seconds(total) >= 0.015
        assert (sum(remote), remote[0]) == (sum(total), sum(total))
    assert produce.count == 1 + turns


@pytest.mark.parametrize("frame", [bytes((0, 255, 0, 0)), FETCH])
def test_a_slow_request_of_nobody_or_of_an_unknown_kind_is_counted_too(frame: bytes) -> None:
    """Its connection ended with an error of the broker's own."""
    times = watched(lambda: time.sleep(0.02), slow=0.01)
    serve(times, frame, cast("Connection", SimpleNamespace(state=object(), address=("10.0.0.1", 5))))
    assert times.slow_count == 1


def test_waiting_for_records_is_not_slow_but_waiting_for_replicas_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(requests, "monotonic", lambda: now)
    for frame, expected in ((FETCH, 0), (PRODUCE, 1)):
        parked = Parked()
        times = watched(lambda parked=parked: parked, slow=0.005)  # type: ignore[misc]
        serve(times, frame)
        now += 0.02
        assert parked.when_answered is not None
        parked.when_answered()
        assert times.slow_count == expected


def test_no_request_is_slow_where_that_is_switched_off() -> None:
    times = watched(lambda: time.sleep(0.01), slow=None)
    serve(times)
    assert times.slow_count == 0
    assert of(times, "Produce").count == 1


def test_slow_requests_are_logged_only_so_often(caplog: pytest.LogCaptureFixture) -> None:
    times = watched(lambda: b"", slow=0.0)
    with caplog.at_level(logging.WARNING, "barnabas.slow"):
        for _ in range(LOGGED_PER_WINDOW + 20):
            serve(times)
        assert len(caplog.records) == LOGGED_PER_WINDOW
        times.turn()
        serve(times)
    assert len(caplog.records) == LOGGED_PER_WINDOW + 1
    assert times.slow_count == LOGGED_PER_WINDOW + 21


def test_quantiles_are_those_of_the_last_windows() -> None:
    times = Times("Produce", len(BOUNDS))
    times.at_once[40] = 100
    for _ in range(WINDOWS):
        times.turn()
    times.at_once[10] = 5
    _, _, total = times.recent()
    assert sum(total) == 5
    assert sum(times.ever()[2]) == 105


def test_quantiles_lie_within_their_buckets() -> None:
    buckets = [0] * (len(BOUNDS) + 1)
    buckets[20], buckets[50] = 90, 10
    half, most = quantiles(buckets, (0.5, 0.99))
    assert BOUNDS[19] <= half <= BOUNDS[20]
    assert BOUNDS[49] <= most <= BOUNDS[50]
    assert seconds(buckets) == pytest.approx(90 * (BOUNDS[19] + BOUNDS[20]) / 2 + 10 * (BOUNDS[49] + BOUNDS[50]) / 2)


def test_without_requests_there_are_no_quantiles() -> None:
    assert all(value != value for value in quantiles([0] * (len(BOUNDS) + 1), (0.5, 0.99)))
    assert add_up(([1, 2], [3, 4])) == [4, 6]
