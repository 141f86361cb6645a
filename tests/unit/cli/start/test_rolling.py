"""When the next broker of a rolling restart is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.start import rolling
from barnabas.clients.admin.topics import PartitionInfo, TopicInfo
from barnabas.clients.errors import BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator


class FakeAdmin:
    """A cluster with one partition on brokers 1, 2 and 3, which has one ISR after the other."""

    def __init__(self, *states: tuple[int, ...] | None) -> None:
        self._states: Iterator[tuple[int, ...] | None] = iter(states)
        self.asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def topics(self) -> list[TopicInfo]:
        self.asked += 1
        isr = next(self._states)
        if isr is None:
            raise BrokerUnreachable("it has just stopped")
        leader = isr[0] if isr else None
        partition = PartitionInfo(partition=0, leader=leader, replicas=(1, 2, 3), isr=isr)
        return [TopicInfo(name="t", topic_id=None, partitions=(partition,))]


def roll(patch: pytest.MonkeyPatch, admin: FakeAdmin, **more: Any) -> list[str]:
    """What happens, in order; how often the cluster was asked comes with each restart."""
    happened: list[str] = []
    patch.setattr(rolling, "Admin", lambda *_, **__: admin)
    patch.setattr(rolling, "LOOK_SECONDS", 0)
    restart = lambda index: happened.append(f"restart {index} after {admin.asked}")  # noqa: E731
    rolling.roll(["a", "b"], restart, "", {}, say=happened.append, **more)
    return happened


WAITING = "Waiting for replicas of brokers that were just started, such as t-0, to be in sync."


def test_what_was_in_sync_is_waited_for_and_what_was_not_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin((1, 2), (2,), None, (), (2,), (2, 1), (1,), (1, 2))
    assert roll(monkeypatch, admin) == [
        "Restarting a (1 of 2).",
        "restart 0 after 1",
        "Restarting b (2 of 2).",
        "restart 1 after 6",
        "All brokers were restarted.",
    ]
    assert admin.asked == 8


def test_the_other_brokers_are_left_alone_when_one_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "IN_SYNC_SECONDS", 0)
    with pytest.raises(Failed, match="t-0 was not in sync"):
        roll(monkeypatch, FakeAdmin((1, 2, 3), (2, 3), (2, 3)))


def test_a_roll_can_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(roll(monkeypatch, FakeAdmin((1, 2, 3)), given_up=lambda: True)) == 2


def test_brokers_that_were_just_started_are_waited_for_before_the_first_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they had missed was not in sync before, so it was not waited for, and all replicas were away at once."""
    admin = FakeAdmin((3,), (3,), None, (3, 1), (3, 2), (3, 2, 1), *[(1, 2, 3)] * 3)
    assert roll(monkeypatch, admin, started={1: 0.0, 2: 5.0})[:3] == [
        WAITING,
        "Restarting a (1 of 2).",
        "restart 0 after 7",
    ]


def test_a_broker_that_was_started_long_ago_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk may have failed, and a restart may be what mends it."""
    long_ago = rolling.IN_SYNC_SECONDS + 1
    happened = roll(monkeypatch, FakeAdmin(*[(2, 3)] * 4), started={1: long_ago, 2: 0.0, 3: 0.0})
    assert happened[0] == "Restarting a (1 of 2)."


def test_nothing_is_stopped_if_brokers_that_were_just_started_do_not_come_in_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rolling, "IN_SYNC_SECONDS", 0.001)
    with pytest.raises(Failed, match="t-0 was not in sync"):
        roll(monkeypatch, FakeAdmin(*[(2, 3)] * 100_000), started={1: 0.0})


def test_replicas_of_a_partition_that_nobody_leads_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last one in sync may be on a broker that is down for days."""
    assert WAITING not in roll(monkeypatch, FakeAdmin((), (), (), ()), started={3: 1.0})
