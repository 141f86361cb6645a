from __future__ import annotations

from itertools import pairwise

import pytest

from barnabas.clients.partitioners import RoundRobin, Sticky, at_random, key_hash, murmur2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_that_of_java(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


def test_a_key_always_goes_to_the_same_partition() -> None:
    assert key_hash("t", b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert {key_hash("a", b"k", 12), key_hash("b", b"k", 12)} == {key_hash("t", b"k", 12)}


def test_records_without_a_key_go_anywhere() -> None:
    assert {key_hash("t", None, 3) for _ in range(200)} == {0, 1, 2}
    assert {at_random("t", b"same", 3) for _ in range(200)} == {0, 1, 2}


def test_round_robin_takes_turns_in_each_topic() -> None:
    choose = RoundRobin()
    assert [choose("a", b"k", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert choose("b", None, 3) == 0
    assert choose("a", None, 2) == 0


def test_sticky_stays_for_its_time_and_then_moves() -> None:
    choose = Sticky(seconds=60)
    assert len({choose("t", str(i).encode(), 8) for i in range(50)}) == 1
    restless = Sticky(seconds=0)
    chosen = [restless("t", None, 3) for _ in range(50)]
    assert all(before != after for before, after in pairwise(chosen))
    assert Sticky(seconds=0)("t", None, 1) == 0
