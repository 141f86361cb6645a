"""Groups of brokers of which one hangs or is down: what it told before stays, and the others' are told as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.clients.admin.groups import GroupInfo
from barnabas.clients.errors import BrokerSilent, LoginFailed
from barnabas.clients.wire.connection import Node
from barnabas.console.cluster import group_lags
from barnabas.console.cluster.group_lags import CoordinatedGroups, GroupState, GroupStates, join_groups
from barnabas.console.cluster.group_looks import GroupLook, GroupLooks
from barnabas.console.cluster.snapshot import BrokerSnapshot, ClusterSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.model.base_error import BarnabasError

NODES = [Node(number, "host", 9092 + number) for number in range(3)]
SNAPSHOT = ClusterSnapshot(
    at=0.0,
    cluster_id="c",
    controller=0,
    brokers={each.id: BrokerSnapshot(each.id, each.host, each.port, None, True) for each in NODES},
    topics={},
    ends={},
    silent={},
)


def group(name: str, coordinator: int, at: float = 0.0) -> GroupState:
    return GroupState(name, "Classic", "Stable", {}, {}, coordinator, at)


def told(*groups: GroupState) -> CoordinatedGroups:
    return CoordinatedGroups({each.id: each for each in groups}, None)


BEFORE = GroupStates(0.0, {each.id: each for each in (group("a", 0), group("b", 1), group("c", 1), group("d", 2))})


def joined(
    answers: Mapping[int, CoordinatedGroups | BarnabasError],
    silent: Mapping[int, str] | None = None,
    before: GroupStates | None = BEFORE,
) -> tuple[dict[str, str], str | None]:
    found = join_groups(before, {NODES[number]: each for number, each in answers.items()}, silent or {})
    return {name: each.shown_state for name, each in found.groups.items()}, found.error


@pytest.mark.parametrize("is_asked", [True, False])
def test_groups_of_a_broker_that_hangs_stay_and_say_so(is_asked: bool) -> None:
    """Nobody said for 8 to 16 seconds that what was shown of them was old."""
    answers: dict[int, CoordinatedGroups | BarnabasError] = {0: told(group("a", 0)), 2: told(group("d", 2))}
    if is_asked:
        answers[1] = BrokerSilent("it is late")
    found, error = joined(answers, None if is_asked else {1: "it is late"})
    assert found == {"a": "Stable", "b": "No answer", "c": "No answer", "d": "Stable"}
    assert error == "broker 1 coordinates 2 groups and does not answer"


def test_groups_that_were_deleted_or_have_moved_are_not_kept() -> None:
    found, error = joined({0: told(), 1: BrokerSilent("late"), 2: told(group("b", 2))})
    assert found == {"b": "Stable", "c": "No answer"}
    assert error == "broker 1 coordinates one group and does not answer"


def test_groups_of_a_broker_that_is_down_wait_for_another_coordinator_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They vanished from the list, and came back when they had been loaded."""
    monkeypatch.setattr("time.time", lambda: 10.0)
    found, error = joined({0: told(group("a", 0)), 2: told()})
    assert found == {"a": "Stable", "b": "No answer", "c": "No answer"}
    assert error == "2 wait for another coordinator"
    monkeypatch.setattr("time.time", lambda: 10.0 + group_lags.WITHOUT_COORDINATOR_SECONDS)
    assert joined({0: told(group("a", 0)), 2: told()}) == ({"a": "Stable"}, None)


def test_a_console_that_knows_nothing_yet_says_whom_it_has_not_heard() -> None:
    assert joined({0: told(group("a", 0)), 1: BrokerSilent("late")}, before=None) == (
        {"a": "Stable"},
        "broker 1 does not answer",
    )
    with pytest.raises(LoginFailed):
        joined({0: LoginFailed("wrong password"), 1: told()})


class Answering:
    """Connections on which a coordinator answers, or does not."""

    timeout = 20.0

    def __init__(self) -> None:
        self.asked = 0
        self.failure: BarnabasError | None = None
        info = GroupInfo(group_id="b", type="Classic", state="Stable", assignor="", coordinator=NODES[1], members=())
        self.groups = self
        self._look = {"b": info}

    def open(self, address: str) -> Answering:
        assert address == "host:9093"
        return self

    def describe(self, names: list[str]) -> dict[str, GroupInfo]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self._look

    def committed(self, names: list[str]) -> dict[str, dict[Any, Any]]:
        return {each: {} for each in names}

    def __exit__(self, *_: object) -> None:
        pass


async def test_a_coordinator_that_hangs_is_told_of_and_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.console.cluster.group_looks.LOOK_SECONDS", 0.0)
    connections = Answering()
    looks = GroupLooks(cast("Any", connections))
    of = group("b", 1)
    connections.failure = BrokerSilent("host:9093 takes connections, but: reset")
    assert await looks.get(of, SNAPSHOT) == (
        None,
        "Broker 1 coordinates it and does not answer: host:9093 takes connections, but: reset.",
    )
    connections.failure = None
    look, silent = await looks.get(of, SNAPSHOT)
    assert look == GroupLook(connections._look["b"], {}) and silent is None
    asked = connections.asked
    for changed, words in (
        (replace(SNAPSHOT, silent={1: "late"}), "Broker 1 coordinates it and does not answer: late."),
        (
            replace(SNAPSHOT, brokers={1: SNAPSHOT.brokers[1]._replace(up=False)}),
            "Broker 1 coordinated it and is down. No other has taken over.",
        ),
    ):
        assert await looks.get(of, changed) == (look, words)
    assert connections.asked == asked, "nobody waits for it"
    looks.close()
