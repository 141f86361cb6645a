"""Plans of moves: everything is where it shall be, evenly, and as little as possible is moved."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.cluster.reassignment import ImpossiblePlan, plan_moves
from barnabas.model.ids import TopicPartition

Replicas = dict[TopicPartition, tuple[int, ...]]


def spread(count: int, brokers: int, factor: int) -> Replicas:
    return {
        TopicPartition("t", number): tuple((number + each) % brokers for each in range(factor))
        for number in range(count)
    }


def after(replicas: Replicas, **how: object) -> Replicas:
    moves = plan_moves(replicas, list(replicas), **how)  # type: ignore[arg-type]
    return replicas | {move.partition: move.after for move in moves}


def holds(replicas: Replicas) -> Counter[int]:
    return Counter(broker for brokers in replicas.values() for broker in brokers)


def test_a_broker_is_emptied_and_nothing_else_is_copied() -> None:
    replicas = spread(30, 4, 2)
    moves = plan_moves(replicas, list(replicas), dict.fromkeys(range(3)))
    assert sum(len(move.adding) for move in moves) == holds(replicas)[3]
    assert 3 not in holds(after(replicas, racks=dict.fromkeys(range(3))))


def test_a_new_broker_gets_its_share_and_no_other_gets_anything() -> None:
    replicas = spread(30, 3, 2)
    moves = plan_moves(replicas, list(replicas), dict.fromkeys(range(4)))
    assert {broker for move in moves for broker in move.adding} == {3}
    assert set(holds(after(replicas, racks=dict.fromkeys(range(4)))).values()) == {15}


def test_what_is_even_stays() -> None:
    assert not plan_moves(spread(30, 3, 2), list(spread(30, 3, 2)), dict.fromkeys(range(3)))


def test_the_number_of_replicas_can_be_changed() -> None:
    more = after(spread(9, 3, 1), racks=dict.fromkeys(range(3)), factor=3)
    assert all(sorted(brokers) == [0, 1, 2] for brokers in more.values())
    fewer = after(more, racks=dict.fromkeys(range(3)), factor=1)
    assert set(holds(fewer).values()) == {3}


def test_preferred_leaders_are_spread() -> None:
    replicas: Replicas = {TopicPartition("t", number): (0, 1, 2) for number in range(9)}
    assert set(Counter(each[0] for each in after(replicas, racks=dict.fromkeys(range(3))).values()).values()) == {3}


def test_racks_come_before_evenness() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "a", 3: "b"}
    for brokers in after(spread(12, 4, 2), racks=racks).values():
        assert len({racks[each] for each in brokers}) == 2


def test_partitions_that_are_not_chosen_count_and_stay() -> None:
    replicas: Replicas = {TopicPartition("t", number): (0,) for number in range(4)}
    replicas |= {TopicPartition("u", number): (1,) for number in range(4)}
    chosen = [place for place in replicas if place.topic == "t"]
    assert not plan_moves(replicas, chosen, dict.fromkeys(range(2)))


@pytest.mark.parametrize("brokers", [(), (0,)])
def test_what_cannot_be_is_told(brokers: tuple[int, ...]) -> None:
    with pytest.raises(ImpossiblePlan):
        plan_moves(spread(3, 2, 2), list(spread(3, 2, 2)), dict.fromkeys(brokers))


@given(st.data())
def test_every_plan_has_the_replicas_that_were_asked_for(data: st.DataObject) -> None:
    brokers = data.draw(st.integers(1, 6))
    wanted = data.draw(st.sets(st.integers(0, 7), min_size=1))
    racks = {each: data.draw(st.sampled_from([None, "a", "b"])) for each in wanted}
    factor = data.draw(st.integers(1, len(wanted)))
    partition = st.lists(st.integers(0, brokers - 1), min_size=1, unique=True).map(tuple)
    replicas: Replicas = {
        TopicPartition("t", number): each for number, each in enumerate(data.draw(st.lists(partition, max_size=25)))
    }
    found = after(replicas, racks=racks, factor=factor)
    assert all(len(set(each)) == len(each) == factor and set(each) <= wanted for each in found.values())
    if len(set(racks.values())) == 1 and found:  # without racks to mind, brokers hold the same but for one
        counts = [holds(found)[each] for each in wanted]
        assert max(counts) - min(counts) <= 1
