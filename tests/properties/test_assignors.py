"""Whatever the group: every partition that is read has one owner, loads are equal, and nothing moves without need."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from barnabas.machines.groups.assignors import RANGE, UNIFORM, GroupSpec, MemberSpec, TopicSpec, assign

if TYPE_CHECKING:
    from barnabas.machines.groups.assignors.spec import Assignment

TOPICS: Final = [UUID(int=number) for number in range(1, 5)]
NAMES: Final = [f"m{number}" for number in range(8)]
Owners = dict[tuple[UUID, int], str]


@st.composite
def _groups(draw: st.DrawFn, equal: bool = False, same_counts: bool = False) -> GroupSpec:
    """A group whose members have some partitions from before, among them such as nobody reads any more."""
    same = draw(st.integers(0, 12)) if same_counts else None
    counts = {topic: draw(st.integers(0, 12)) if same is None else same for topic in TOPICS}
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    sets = st.frozensets(st.sampled_from(TOPICS))
    subscriptions = [draw(sets)] * len(names) if equal else [draw(sets) for _ in names]
    assigned: dict[str, dict[UUID, frozenset[int]]] = {name: {} for name in names}
    owner = st.sampled_from([*names, None])
    for topic, count in counts.items():
        for partition, name in enumerate(draw(st.lists(owner, min_size=count, max_size=count))):
            if name is not None:
                assigned[name][topic] = assigned[name].get(topic, frozenset()) | {partition}
    return GroupSpec(
        members={
            name: MemberSpec(subscribed=subscribed, assigned=assigned[name])
            for name, subscribed in zip(names, subscriptions, strict=True)
        },
        topics={topic: TopicSpec(name=f"t{topic.int}", partition_count=count) for topic, count in counts.items()},
    )


def _owners(assignment: Assignment) -> Owners:
    owners: Owners = {}
    for name, mine in assignment.items():
        for topic, partitions in mine.items():
            assert partitions
            for partition in partitions:
                assert (topic, partition) not in owners
                owners[topic, partition] = name
    return owners


def _before(spec: GroupSpec) -> Owners:
    return _owners({name: member.assigned for name, member in spec.members.items()})


def _sizes(spec: GroupSpec, owners: Owners) -> Counter[str]:
    sizes = Counter(dict.fromkeys(spec.members, 0))
    sizes.update(owners.values())
    return sizes


def _with(spec: GroupSpec, assignment: Assignment, without: str | None = None, new: str | None = None) -> GroupSpec:
    """The group after the assignment took hold and members came and went; all read the same topics."""
    members = {
        name: MemberSpec(subscribed=member.subscribed, assigned=assignment[name])
        for name, member in spec.members.items()
        if name != without
    }
    if new is not None:
        members[new] = MemberSpec(subscribed=next(iter(spec.members.values())).subscribed)
    return GroupSpec(members=members, topics=spec.topics)


@given(_groups(), st.sampled_from([UNIFORM, RANGE]))
def test_every_partition_that_is_read_has_one_owner_who_reads_it(spec: GroupSpec, name: str) -> None:
    assignment = assign(name, spec)
    assert set(assignment) == set(spec.members)
    owners = _owners(assignment)
    read = {topic for member in spec.members.values() for topic in member.subscribed}
    assert owners.keys() == {(topic, p) for topic in read for p in range(spec.topics[topic].partition_count)}
    for (topic, _), owner in owners.items():
        assert topic in spec.members[owner].subscribed


@given(_groups(equal=True))
def test_uniform_balances_within_one_and_keeps_as_much_as_that_allows(spec: GroupSpec) -> None:
    owners = _owners(assign(UNIFORM, spec))
    sizes = _sizes(spec, owners)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    before = {partition: name for partition, name in _before(spec).items() if partition in owners}
    kept = sum(owners[partition] == name for partition, name in before.items())
    quota, extras = divmod(len(owners), len(spec.members))
    had = _sizes(spec, before).values()
    assert kept == sum(min(size, quota) for size in had) + min(extras, sum(size > quota for size in had))


@given(_groups(equal=True), st.sampled_from(NAMES))
def test_only_partitions_of_a_member_that_leaves_move(spec: GroupSpec, leaver: str) -> None:
    first = assign(UNIFORM, spec)
    without = _with(spec, first, without=leaver)
    second = _owners(assign(UNIFORM, without))
    if without.members:
        for partition, owner in _owners(first).items():
            assert second[partition] == owner or owner == leaver


@given(_groups(equal=True))
def test_partitions_move_only_to_a_member_that_joins(spec: GroupSpec) -> None:
    first = assign(UNIFORM, spec)
    second = _owners(assign(UNIFORM, _with(spec, first, new="new")))
    for partition, owner in _owners(first).items():
        assert second[partition] in (owner, "new")


@given(_groups())
def test_uniform_balances_the_readers_of_each_topic(spec: GroupSpec) -> None:
    owners = _owners(assign(UNIFORM, spec))
    sizes = _sizes(spec, owners)
    for (topic, _), owner in owners.items():
        others = [sizes[name] for name, member in spec.members.items() if topic in member.subscribed]
        assert sizes[owner] - min(others) <= 1


@given(_groups())
def test_uniform_changes_nothing_that_is_balanced(spec: GroupSpec) -> None:
    first = assign(UNIFORM, spec)
    assert assign(UNIFORM, _with(spec, first)) == first


@given(_groups(equal=True, same_counts=True))
def test_range_gives_the_same_numbers_of_topics_with_equally_many_partitions(spec: GroupSpec) -> None:
    for mine in assign(RANGE, spec).values():
        assert len(set(mine.values())) <= 1


@given(_groups())
def test_range_gives_consecutive_partitions_equally_many_of_each_topic(spec: GroupSpec) -> None:
    assignment = assign(RANGE, spec)
    for mine in assignment.values():
        for partitions in mine.values():
            assert max(partitions) - min(partitions) == len(partitions) - 1
    for topic in spec.topics:
        readers = [name for name, member in spec.members.items() if topic in member.subscribed]
        sizes = [len(assignment[name].get(topic, ())) for name in readers]
        assert not sizes or max(sizes) - min(sizes) <= 1
