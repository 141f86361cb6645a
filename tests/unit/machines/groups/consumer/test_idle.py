"""A heartbeat that brings nothing new keeps its member's session, and no more than that is decided."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.machines.groups.consumer.rules import _idle_member
from tests.support.consumer_groups import Client, Consumer, Coordinator, request, settle


def make() -> tuple[Coordinator, list[Consumer]]:
    coordinator = Coordinator({"orders": 4})
    consumers = [Consumer(coordinator, f"m{number}", ("orders",)) for number in range(2)]
    settle(consumers)
    return coordinator, consumers


def is_idle(coordinator: Coordinator, consumer: Consumer, **fields: Any) -> bool:
    asked = request(**{"member_id": consumer.member_id, "epoch": consumer.epoch, "owned": None, **fields})
    return _idle_member(coordinator.group, asked, Client()) is not None


def test_a_heartbeat_of_a_group_at_rest_brings_nothing_new() -> None:
    coordinator, (first, second) = make()
    assert is_idle(coordinator, first)
    before, log = dict(coordinator.timers), len(coordinator.log)
    coordinator.advance(1_000)
    answer = first.beat(owned=None)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == ("m0", first.epoch, None)
    assert len(coordinator.log) == log
    changed = {key.member_id for key, at_ms in coordinator.timers.items() if before[key] != at_ms}
    assert changed == {first.member_id}
    assert second.epoch == first.epoch


@pytest.mark.parametrize(
    "fields",
    [
        {"epoch": 1},
        {"member_id": "stranger"},
        {"topics": ["orders"]},
        {"owned": {}},
        {"rebalance_timeout_ms": 5},
        {"instance_id": "i"},
        {"rack_id": "r"},
        {"server_assignor": "range"},
        {"subscribed_topic_regex": "o.*"},
    ],
    ids=str,
)
def test_anything_else_is_decided_by_all_the_rules(fields: dict[str, Any]) -> None:
    coordinator, (first, _) = make()
    assert not is_idle(coordinator, first, **fields)


def test_so_is_every_heartbeat_of_a_group_that_is_not_at_rest() -> None:
    coordinator, (first, second) = make()
    newcomer = Consumer(coordinator, "m2", ("orders",))
    newcomer.beat()
    assert not any(is_idle(coordinator, each) for each in (first, second, newcomer))
    settle([first, second, newcomer])
    assert is_idle(coordinator, first)
    coordinator.set_topics({"orders": 5})
    assert not is_idle(coordinator, first)
    assert not is_idle(coordinator.reloaded(), first)
