"""Assignors: Kafka's results, balance, and what members keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from barnabas.machines.groups.assignors import RANGE, UNIFORM, GroupSpec, MemberSpec, TopicSpec, assign
from barnabas.model.errors import UnknownTopicId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.machines.groups.assignors.spec import Assignment, Partitions

T1: Final = UUID(int=1)
T2: Final = UUID(int=2)
T3: Final = UUID(int=3)
KAFKA: Final = Path(__file__).with_name("kafka_assignments.txt")
"""Groups and how Apache Kafka 4.3.0 assigned them: `assignor;topic:count,…;member:instance:topics:assigned|… -> …`."""


def _partitions(text: str) -> Partitions:
    pairs = (pair.split("=") for pair in text.split("+") if pair)
    return {UUID(int=int(topic)): frozenset(map(int, numbers.split("."))) for topic, numbers in pairs}


def _member(instance: str, topics: str, assigned: str) -> MemberSpec:
    return MemberSpec(
        instance_id=instance or None,
        subscribed=frozenset(UUID(int=int(topic)) for topic in topics.split(",") if topic),
        assigned=_partitions(assigned),
    )


def _kafka_assignments() -> Iterator[tuple[str, GroupSpec, Assignment]]:
    for line in KAFKA.read_text().splitlines():
        given, _, expected = line.partition(" -> ")
        assignor, topics, members = given.split(";")
        counts = (topic.split(":") for topic in topics.split(","))
        fields = (member.split(":") for member in members.split("|"))
        spec = GroupSpec(
            members={name: _member(*rest) for name, *rest in fields},
            topics={UUID(int=int(n)): TopicSpec(name=f"t{n}", partition_count=int(count)) for n, count in counts},
        )
        found = (member.split(":") for member in expected.split("|"))
        yield assignor, spec, {name: _partitions(assigned) for name, assigned in found}


def _group(
    subscriptions: Mapping[str, set[UUID]],
    counts: Mapping[UUID, int],
    assigned: Assignment | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    return GroupSpec(
        members={
            name: MemberSpec(
                instance_id=(instances or {}).get(name),
                subscribed=frozenset(topics),
                assigned=(assigned or {}).get(name, {}),
            )
            for name, topics in subscriptions.items()
        },
        topics={topic: TopicSpec(name=f"t{topic.int}", partition_count=count) for topic, count in counts.items()},
    )


def _p(*partitions: int) -> frozenset[int]:
    return frozenset(partitions)


def test_groups_are_assigned_as_by_kafka() -> None:
    for assignor, spec, expected in _kafka_assignments():
        assert assign(assignor, spec) == expected


@pytest.mark.parametrize("name", [UNIFORM, RANGE])
def test_a_group_without_members_has_no_assignment(name: str) -> None:
    assert assign(name, _group({}, {T1: 3})) == {}


@pytest.mark.parametrize("name", [UNIFORM, RANGE])
def test_members_that_read_nothing_get_nothing(name: str) -> None:
    assert assign(name, _group({"a": set(), "b": set()}, {})) == {"a": {}, "b": {}}


@pytest.mark.parametrize("name", [UNIFORM, RANGE])
@pytest.mark.parametrize("others", [{T1}, {T2}])
def test_a_topic_that_does_not_exist_is_refused(name: str, others: set[UUID]) -> None:
    with pytest.raises(UnknownTopicId, match=str(T1)):
        assign(name, _group({"a": {T1}, "b": others}, {T2: 3}))


def test_range_gives_the_same_numbers_of_every_topic() -> None:
    spec = _group({"a": {T1, T2}, "b": {T1, T2}}, {T1: 3, T2: 3})
    assert assign(RANGE, spec) == {"a": {T1: _p(0, 1), T2: _p(0, 1)}, "b": {T1: _p(2), T2: _p(2)}}


def test_range_leaves_members_without_partitions_when_there_are_too_few() -> None:
    assert assign(RANGE, _group({"a": {T1}, "b": {T1}}, {T1: 1})) == {"a": {T1: _p(0)}, "b": {}}


def test_range_puts_static_members_first_by_their_instance() -> None:
    spec = _group({"a": {T1}, "z": {T1}, "y": {T1}}, {T1: 3}, instances={"z": "i1", "y": "i2"})
    assert assign(RANGE, spec) == {"z": {T1: _p(0)}, "y": {T1: _p(1)}, "a": {T1: _p(2)}}


def test_range_cuts_a_topic_for_its_own_readers() -> None:
    spec = _group({"a": {T1, T2}, "b": {T3}, "c": {T2, T3}}, {T1: 3, T2: 3, T3: 2})
    assert assign(RANGE, spec) == {
        "a": {T1: _p(0, 1, 2), T2: _p(0, 1)},
        "b": {T3: _p(0)},
        "c": {T2: _p(2), T3: _p(1)},
    }


def test_uniform_spreads_equally() -> None:
    spec = _group({"a": {T1, T2}, "b": {T1, T2}, "c": {T1, T2}}, {T1: 3, T2: 2})
    assert sorted(sum(map(len, mine.values())) for mine in assign(UNIFORM, spec).values()) == [1, 2, 2]


def test_uniform_gives_back_what_is_read_no_longer() -> None:
    spec = _group({"a": {T2}, "b": {T2}}, {T2: 2}, assigned={"a": {T1: _p(0, 1)}, "b": {T2: _p(0, 1)}})
    assert assign(UNIFORM, spec) == {"a": {T2: _p(1)}, "b": {T2: _p(0)}}


def test_uniform_takes_from_a_member_only_what_a_new_one_needs() -> None:
    before = {"a": {T1: _p(0, 1, 2)}, "b": {T1: _p(3, 4, 5)}}
    spec = _group({"a": {T1}, "b": {T1}, "c": {T1}}, {T1: 6}, assigned=before)
    assert assign(UNIFORM, spec) == {"a": {T1: _p(0, 1)}, "b": {T1: _p(3, 4)}, "c": {T1: _p(2, 5)}}


def test_uniform_leaves_a_balanced_group_alone() -> None:
    before = {"a": {T1: _p(5, 1)}, "b": {T1: _p(0), T2: _p(1)}, "c": {T2: _p(0)}}
    spec = _group({name: {T1, T2} for name in "abc"}, {T1: 6, T2: 2}, assigned=before)
    after = assign(UNIFORM, spec)
    for member, partitions in before.items():
        for topic, numbers in partitions.items():
            assert numbers <= after[member][topic]


def test_uniform_moves_the_extra_partition_only_when_it_must() -> None:
    before = {"a": {T1: _p(0)}, "b": {T1: _p(1, 2)}}
    spec = _group({"a": {T1}, "b": {T1}}, {T1: 3}, assigned=before)
    assert assign(UNIFORM, spec) == before


def test_uniform_balances_the_readers_of_one_topic_and_the_whole_group_nearly() -> None:
    spec = _group({"a": {T1}, "b": {T1, T2}, "c": {T2}}, {T1: 6, T2: 6})
    sizes = {name: sum(map(len, mine.values())) for name, mine in assign(UNIFORM, spec).items()}
    assert sizes == {"a": 3, "b": 4, "c": 5}


def test_uniform_keeps_what_a_change_of_another_subscription_leaves() -> None:
    before = {"a": {T1: _p(0, 1)}, "b": {T1: _p(2), T2: _p(0)}, "c": {T2: _p(1, 2)}}
    spec = _group({"a": {T1}, "b": {T1, T2}, "c": {T2}}, {T1: 3, T2: 3}, assigned=before)
    assert assign(UNIFORM, spec) == before
