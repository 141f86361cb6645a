"""What is kept of brokers' answers and for how long, and who is asked while one of them hangs or is down."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, RequestRefused
from barnabas.clients.wire.connection import Node
from barnabas.console.cluster import cached_answer
from barnabas.console.cluster import connections as module
from barnabas.console.cluster.cached_answer import CachedAnswer, begun
from barnabas.console.cluster.connections import Connections
from barnabas.console.cluster.group_lags import GroupStates
from barnabas.console.cluster.observer import Observer, _first_answer
from barnabas.console.cluster.snapshot import ClusterSnapshot, DiskAnswer, Disks, join_disks
from barnabas.console.cluster.transactions import ListedTransactions
from barnabas.model.errors import ErrorCode

NODES = [Node(number, "host", 9092 + number) for number in range(2)]
SLOW_SECONDS = 0.05


def snapshot(**silent: str) -> ClusterSnapshot:
    hung = {int(number[1:]): why for number, why in silent.items()}
    return ClusterSnapshot(at=0.0, cluster_id="c", controller=0, brokers={}, topics={}, ends={}, silent=hung)


async def test_an_answer_without_those_that_hang_is_not_kept_for_as_long_as_they_were_waited_for() -> None:
    """A broker that hung for three seconds was missing in figures of disks for thirty, after it was back."""
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await anyio.sleep(SLOW_SECONDS)
        return asked

    cached = CachedAnswer(ask, 0.0, share_of_time=10_000, is_whole=lambda number: number > 1)
    assert await cached.get() == 1
    assert await cached.get() == 2, "it was not whole"
    assert await cached.get() == 2


@pytest.mark.parametrize(
    ("method", "cached", "whole", "not_whole"),
    [
        ("_take", "_snapshots", snapshot(), snapshot(b1="it hangs")),
        ("_look_at_disks", "_disks", Disks(0.0, {}, {}), Disks(0.0, {}, {}, is_whole=False)),
        ("_look_at_transactions", "_transactions", ListedTransactions(0, ()), ListedTransactions(0, (), (1,))),
    ],
)
async def test_what_is_not_whole_is_asked_for_again_soon(
    monkeypatch: pytest.MonkeyPatch, method: str, cached: str, whole: Any, not_whole: Any
) -> None:
    for answer, is_kept in ((whole, True), (not_whole, False)):
        kept = await kept_seconds(monkeypatch, method, cached, answer, ())
        assert (kept >= 2.0) == is_kept


@pytest.mark.parametrize(
    ("method", "cached", "answer"),
    [
        ("_look_at_retention", "_retention", {}),
        ("_look_at_moves", "_moves", {}),
        ("_look_at_reports", "_reports", {}),
        ("_look_at_groups", "_groups", GroupStates(0.0, {})),
    ],
)
async def test_what_another_broker_was_asked_for_is_asked_for_again_soon(
    monkeypatch: pytest.MonkeyPatch, method: str, cached: str, answer: Any
) -> None:
    for silent, is_kept in (((), True), (("b:2",), False)):
        kept = await kept_seconds(monkeypatch, method, cached, answer, silent)
        assert (kept >= 2.0) == is_kept


async def kept_seconds(
    patch: pytest.MonkeyPatch, method: str, cached: str, answer: Any, silent: tuple[str, ...]
) -> float:
    """For how long an answer is kept that took a second."""
    now = 100.0

    async def ask(self: Observer) -> Any:
        nonlocal now
        now += 1.0
        return answer

    patch.setattr(Observer, method, ask)
    patch.setattr(cached_answer, "time", SimpleNamespace(monotonic=lambda: now))
    observer = Observer(Connections("a:1", {}))
    observer.connections.avoid(["a:1", "b:2"], silent, [])
    kept: CachedAnswer[Any] = getattr(observer, cached)
    await kept.get()
    return kept._until - now


def test_disks_are_whole_if_all_have_answered() -> None:
    answer = DiskAnswer([], {})
    assert join_disks(dict.fromkeys(NODES, answer), {}).is_whole
    assert not join_disks({NODES[0]: answer, NODES[1]: BrokerSilent("it hangs")}, {}).is_whole
    assert not join_disks({NODES[0]: answer}, {1: "it hangs"}).is_whole


def test_a_broker_that_is_down_is_asked_last_and_hangs_only_while_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one was down, every question that took long was said to hang."""
    made = Connections("a:1,b:2,c:3", {})
    made.avoid(["b:2", "c:3"], [], ["a:1"])
    assert not made.avoids_some, "it was down before"
    assert made._bootstrap_servers == "b:2,c:3,a:1"
    made.avoid(["c:3"], [], ["a:1", "b:2"])
    assert made.avoids_some, "something may have been asked of it just before"
    assert made._bootstrap_servers == "c:3,a:1,b:2"
    monkeypatch.setattr(module, "GONE_SECONDS", 0.0)
    assert not made.avoids_some
    made.avoid(["c:3"], [], ["a:1", "b:2"])
    assert not made.avoids_some
    made.avoid(["b:2", "c:3"], ["b:2"], ["a:1"])
    assert made.avoids_some
    made.avoid(["a:1", "b:2", "c:3"], [], [])
    assert not made.avoids_some
    assert made._bootstrap_servers == "a:1,b:2,c:3"


async def test_of_two_brokers_that_were_asked_the_one_that_answers_counts() -> None:
    """The first had answered, and the page got the error of the second."""

    async def asked(seconds: float, answer: str | Exception) -> str:
        await anyio.sleep(seconds)
        if isinstance(answer, Exception):
            raise answer
        return answer

    away, refused = BrokerUnreachable("nobody is there"), RequestRefused(ErrorCode.invalid_request, "no")
    tasks = [begun(asked(0, "fine")), begun(asked(0, away))]
    await asyncio.wait(tasks)
    assert await _first_answer(*tasks) == await _first_answer(*reversed(tasks)) == "fine"
    assert await _first_answer(begun(asked(SLOW_SECONDS, "fine")), begun(asked(0, away))) == "fine"
    with pytest.raises(BrokerUnreachable):
        await _first_answer(begun(asked(0, away)), begun(asked(0, away)))
    with pytest.raises(RequestRefused):
        await _first_answer(begun(asked(3600, "too late")), begun(asked(0, refused)))
