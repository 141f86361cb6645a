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
    """A cluster with one partition on brokers 1, 2 and 3, which has one ISR after the other; or topics instead."""

    def __init__(self, *states: tuple[int, ...] | list[TopicInfo] | None) -> None:
        self._states: Iterator[tuple[int, ...] | list[TopicInfo] | None] = iter(states)
        self.asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def topics(self) -> list[TopicInfo]:
        self.asked += 1
        state = next(self._states)
        if state is None:
            raise BrokerUnreachable("it has just stopped")
        return state if isinstance(state, list) else [topic("t", state)]


def topic(name: str, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> TopicInfo:
    """A topic of one partition."""
    partition = PartitionInfo(partition=0, leader=isr[0] if isr else None, replicas=replicas, isr=isr)
    return TopicInfo(name=name, topic_id=None, partitions=(partition,))


def roll(patch: pytest.MonkeyPatch, admin: FakeAdmin, happened: list[str] | None = None, **more: Any) -> list[str]:
    """What happens, in order; how often the cluster was asked comes with each restart."""
    happened = [] if happened is None else happened
    patch.setattr(rolling, "Admin", lambda *_, **__: admin)
    patch.setattr(rolling, "LOOK_SECONDS", 0)
    restart = lambda broker: happened.append(f"restart {broker} after {admin.asked}")  # noqa: E731
    rolling.roll({1: "a", 2: "b"}, restart, "", {}, say=happened.append, **more)
    return happened


WAITING = "Waiting for replicas of brokers that were just started, such as t-0, to be in sync."


def test_what_was_in_sync_is_waited_for_and_what_another_host_has_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin((1, 2), (2,), None, (), (2,), *[(2, 1)] * 3, (1,), *[(1, 2)] * 3)
    assert roll(monkeypatch, admin) == [
        "Restarting a (1 of 2).",
        "restart 1 after 1",
        "Restarting b (2 of 2).",
        "restart 2 after 8",
        "All brokers were restarted.",
    ]
    assert admin.asked == 12


def test_replicas_of_a_topic_that_is_created_meanwhile_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was known of it, so two of its brokers were away at once."""
    new = [[topic("t", (2, 3, 1)), topic("new", isr)] for isr in ((2, 3), (2, 3, 1), (3, 1), (3, 1, 2))]
    admin = FakeAdmin((1, 2, 3), (2, 3), *[new[0]] * 3, *[new[1]] * 2, new[2], None, *[new[3]] * 3)
    happened = roll(monkeypatch, admin)
    assert [each for each in happened if each.startswith("restart")] == ["restart 1 after 1", "restart 2 after 7"]
    assert admin.asked == 12


def test_a_replica_that_moved_to_another_broker_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never came in sync again, and the other brokers were left alone after ten minutes."""
    moved = [topic("t", (2, 3), replicas=(2, 3))]
    assert roll(monkeypatch, FakeAdmin((1, 2, 3), *[moved] * 6))[-1] == "All brokers were restarted."


def test_a_broker_whose_replicas_are_not_in_sync_is_restarted_first_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may hang: the one that leads in its place was stopped, and after that the next, while this one caught up."""
    admin = FakeAdmin((1, 3), (1, 3), (1, 3), None, (1, 3), (1, 3, 2), *[(3, 2, 1)] * 4)
    assert [each for each in roll(monkeypatch, admin) if each.startswith("restart")] == [
        "restart 2 after 1",
        "restart 1 after 7",
    ]


def test_a_broker_that_alone_has_something_is_restarted_last(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [topic("t", (1,), replicas=(1, 2)), topic("u", (3,), replicas=(1, 3)), topic("one", (2,), replicas=(2,))]
    after = [topic("t", (1, 2), replicas=(1, 2)), topic("u", (3, 1), replicas=(1, 3)), before[2]]
    happened = roll(monkeypatch, FakeAdmin(before, *[before] * 3, *[after] * 6))
    assert [each for each in happened if each.startswith("restart")] == ["restart 2 after 1", "restart 1 after 6"]


def test_replicas_that_were_not_in_sync_before_either_hold_nothing_up_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk of their broker may have failed."""
    monkeypatch.setattr(rolling, "IN_SYNC_SECONDS", 0.0)
    happened = roll(monkeypatch, FakeAdmin(*[(1, 3)] * 100))
    assert happened[2] == "t-0 was not in sync 0 s after the restart, nor before it. The restart goes on."
    assert happened[-1] == "All brokers were restarted."


def test_no_broker_is_stopped_when_another_began_to_hang_while_one_was_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a disk that had failed has was waited for, and what was in sync was not looked at again."""
    monkeypatch.setattr(rolling, "IN_SYNC_SECONDS", 0.0)
    isr = [[topic("failed", (2, 3)), topic("t", isr)] for isr in ((1, 2, 3), (1, 2))]
    happened: list[str] = []
    with pytest.raises(Failed, match="t-0 was not in sync 0 s after the restart"):
        roll(monkeypatch, FakeAdmin(*[isr[0]] * 3, *[isr[1]] * 100), happened)
    assert [each for each in happened if each.startswith("restart")] == ["restart 1 after 1"]


def test_no_broker_is_stopped_while_the_cluster_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "IN_SYNC_SECONDS", 0.0)
    happened: list[str] = []
    with pytest.raises(Failed, match="the cluster, which did not answer, was not in sync"):
        roll(monkeypatch, FakeAdmin(*[(1, 2, 3)] * 2, *[None] * 100), happened)
    assert [each for each in happened if each.startswith("restart")] == ["restart 1 after 1"]


def test_the_other_brokers_are_left_alone_when_one_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "IN_SYNC_SECONDS", 0)
    with pytest.raises(Failed, match="t-0 was not in sync"):
        roll(monkeypatch, FakeAdmin((1, 2, 3), (2, 3), (2, 3)))


def test_a_roll_can_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert roll(monkeypatch, FakeAdmin((1, 2, 3)), given_up=lambda: True) == []
    answers = iter([False, True])
    assert len(roll(monkeypatch, FakeAdmin((1, 2, 3)), given_up=lambda: next(answers))) == 2


def test_brokers_that_were_just_started_are_waited_for_before_the_first_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they had missed was not in sync before, so it was not waited for, and all replicas were away at once."""
    admin = FakeAdmin((3,), (3,), None, (3, 1), (3, 2), (3, 2, 1), *[(1, 2, 3)] * 7)
    assert roll(monkeypatch, admin, started={1: 0.0, 2: 5.0})[:3] == [
        WAITING,
        "Restarting a (1 of 2).",
        "restart 1 after 7",
    ]


def test_a_broker_that_was_started_long_ago_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk may have failed, and a restart may be what mends it."""
    long_ago = rolling.IN_SYNC_SECONDS + 1
    admin = FakeAdmin(*[(2, 3)] * 3, *[(2, 3, 1)] * 6)
    happened = roll(monkeypatch, admin, started={1: long_ago, 2: 0.0, 3: 0.0})
    assert happened[0] == "Restarting a (1 of 2)."


def test_nothing_is_stopped_if_brokers_that_were_just_started_do_not_come_in_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rolling, "IN_SYNC_SECONDS", 0.001)
    with pytest.raises(Failed, match="t-0 was not in sync"):
        roll(monkeypatch, FakeAdmin(*[(2, 3)] * 100_000), started={1: 0.0})


def test_replicas_of_a_partition_that_nobody_leads_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last one in sync may be on a broker that is down for days."""
    assert WAITING not in roll(monkeypatch, FakeAdmin(*[()] * 8), started={3: 1.0})
