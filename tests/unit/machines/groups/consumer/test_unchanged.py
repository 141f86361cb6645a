"""A heartbeat that says nothing new of its member only keeps its session and takes its next step.

What such a heartbeat comes to is compared with the decision of all the rules by `Coordinator.heartbeat`, each time.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.machines.groups.consumer import rules
from barnabas.machines.groups.consumer.rules import unchanged_member
from barnabas.machines.groups.table import PackedRecord
from barnabas.protocol.coordinator_records import ConsumerGroupCurrentMemberAssignmentKey
from tests.support.consumer_groups import GROUP, Client, Consumer, Coordinator, request, settle


def make(partitions: int = 4) -> tuple[Coordinator, list[Consumer]]:
    coordinator = Coordinator({"orders": partitions})
    consumers = [Consumer(coordinator, f"m{number}", ("orders",)) for number in range(2)]
    settle(consumers)
    return coordinator, consumers


def is_unchanged(coordinator: Coordinator, consumer: Consumer, **fields: Any) -> bool:
    asked = request(**{"member_id": consumer.member_id, "epoch": consumer.epoch, "owned": None, **fields})
    return unchanged_member(coordinator.group, asked, Client()) is not None


def test_a_heartbeat_of_a_group_at_rest_changes_nothing() -> None:
    coordinator, (first, second) = make()
    assert is_unchanged(coordinator, first)
    before, log = dict(coordinator.timers), len(coordinator.log)
    coordinator.advance(1_000)
    answer = first.beat(owned=None)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == ("m0", first.epoch, None)
    assert len(coordinator.log) == log
    changed = {key.member_id for key, at_ms in coordinator.timers.items() if before[key] != at_ms}
    assert changed == {first.member_id}
    assert second.epoch == first.epoch


def test_a_heartbeat_that_only_learns_of_a_new_epoch_writes_one_record_and_keeps_what_its_member_has() -> None:
    coordinator, (first, _) = make(2)
    newcomer = Consumer(coordinator, "m2", ("orders",))
    newcomer.beat()
    member, log = coordinator.group.members["m0"], len(coordinator.log)
    assert is_unchanged(coordinator, first)
    answer = first.beat(owned=None)
    assert (answer.member_epoch, answer.assignment) == (newcomer.epoch, None)
    (record,) = coordinator.log[log:]
    assert record.key == ConsumerGroupCurrentMemberAssignmentKey(GROUP, "m0")
    after = coordinator.group.members["m0"]
    assert after.assigned is member.assigned
    assert (after.epoch, after.previous_epoch) == (member.epoch + 1, member.epoch)
    assert coordinator.reloaded().group.members["m0"] == after


def test_such_a_record_keeps_what_has_changed_of_its_member_since_it_was_decided() -> None:
    coordinator, (first, _) = make(2)
    Consumer(coordinator, "m2", ("orders",)).beat()
    asked = request(member_id="m0", epoch=first.epoch, owned=None)
    outcome = coordinator.rules.consumer_group_heartbeat(asked, Client(), coordinator.now_ms)
    (record,) = outcome.changes
    assert isinstance(record, PackedRecord)
    members = coordinator.group.members
    changed = members["m0"] = members["m0"]._replace(client_host="/elsewhere")
    coordinator.rules.replay(record)
    assert members["m0"] == changed._replace(epoch=first.epoch + 1, previous_epoch=first.epoch)


def test_a_member_gives_partitions_back_and_gets_others_by_such_heartbeats() -> None:
    coordinator, (first, second) = make()
    newcomer = Consumer(coordinator, "m2", ("orders",))
    newcomer.beat()
    for consumer in (first, second, newcomer):
        assert is_unchanged(coordinator, consumer)
        assert is_unchanged(coordinator, consumer, owned=consumer.owned)
    settle([first, second, newcomer])
    assert sorted(len(consumer.partitions()) for consumer in (first, second, newcomer)) == [1, 1, 2]
    assert first.epoch == second.epoch == newcomer.epoch


@pytest.mark.parametrize(
    "fields",
    [
        {"epoch": 1},
        {"member_id": "stranger"},
        {"topics": ["orders"]},
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
    assert not is_unchanged(coordinator, first, **fields)


def test_so_is_every_heartbeat_of_a_group_whose_topics_have_changed() -> None:
    coordinator, (first, _) = make()
    coordinator.set_topics({"orders": 5})
    assert not is_unchanged(coordinator, first)
    assert not is_unchanged(coordinator.reloaded(), first)


def test_a_long_id_of_a_member_is_not_remembered() -> None:
    coordinator = Coordinator({"orders": 1})
    consumer = Consumer(coordinator, "m" * 10_000, ("orders",))
    settle([consumer])
    before = rules._still_there.cache_info().currsize
    for _ in range(2):
        consumer.beat(owned=None)
    assert rules._still_there.cache_info().currsize == before
