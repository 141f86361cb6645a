"""Replicas are spread evenly, whatever the cluster looks like."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.machines.controller.placement import place, ring
from barnabas.model.errors import InvalidReplicationFactor

names = st.sampled_from(["a", "b", "c", "d"])
known_racks = st.dictionaries(st.integers(0, 1000), names, min_size=1, max_size=12)
racks = known_racks | st.dictionaries(st.integers(0, 1000), st.none() | names, min_size=1, max_size=12)
counts = st.integers(0, 60)
starts = st.integers(0, 10_000)


def spread(found: Counter[int], brokers: dict[int, str | None]) -> int:
    numbers = [found[broker] for broker in brokers]
    return max(numbers) - min(numbers)


@given(racks, starts, counts, st.data())
def test_every_partition_gets_different_brokers_and_leaders_are_even(
    brokers: dict[int, str | None], start: int, count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, start, range(count), factor)
    assert len(placed) == count
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= brokers.keys()
    assert spread(Counter(replicas[0] for replicas in placed), brokers) <= 1


@given(known_racks, starts, counts, st.data())
def test_a_partition_uses_as_many_racks_as_it_can_and_evenly(
    brokers: dict[int, str | None], start: int, count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    size = Counter(brokers.values())
    for replicas in place(brokers, start, range(count), factor):
        used = Counter(brokers[replica] for replica in replicas)
        assert len(used) == min(factor, len(size))
        for rack, number in used.items():
            for other in size:
                assert number <= used[other] + 1 or used[other] == size[other], (rack, other)


@given(st.integers(1, 4), st.integers(1, 4), st.booleans(), starts, st.integers(0, 4), st.data())
def test_full_rounds_over_equal_racks_are_perfectly_even(
    rack_count: int, per_rack: int, say_racks: bool, start: int, rounds: int, data: st.DataObject
) -> None:
    brokers: dict[int, str | None] = {
        number: f"rack{number % rack_count}" if say_racks else None for number in range(rack_count * per_rack)
    }
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, start, range(rounds * len(brokers)), factor)
    assert spread(Counter(broker for replicas in placed for broker in replicas), brokers) == 0


@given(racks, starts, counts, counts)
def test_adding_partitions_later_places_them_as_if_they_had_been_there(
    brokers: dict[int, str | None], start: int, present: int, added: int
) -> None:
    first = start % len(brokers)
    whole = place(brokers, first, range(present + added), 1)
    assert whole[present:] == place(brokers, first, range(present, present + added), 1)


@given(racks)
def test_the_ring_has_every_broker_once(brokers: dict[int, str | None]) -> None:
    assert sorted(ring(brokers)) == sorted(brokers)


def test_neighbours_in_the_ring_stand_in_different_racks() -> None:
    assert ring({1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}) == [1, 3, 5, 2, 4]


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactor, match=r"only 2 broker\(s\)"):
        place({1: None, 2: None}, 0, range(1), 3)
