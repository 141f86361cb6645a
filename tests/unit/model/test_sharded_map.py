"""A map in shards says what a dictionary says, whatever was changed, and is compared where it may differ."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from barnabas.model.sharded_map import FEWEST_SHARDS, ShardedMap, differing, sharded

if TYPE_CHECKING:
    from collections.abc import Mapping


def place(key: str) -> int:
    return crc32(key.encode())


def brute(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    return {key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)}


@pytest.mark.parametrize("seed", range(5))
def test_maps_say_what_dictionaries_say_and_do_not_change(seed: int) -> None:
    """Also where there are more shards than before, and where maps have many changes between them."""
    chance = random.Random(seed)
    history: list[tuple[ShardedMap[str, object], dict[str, object]]] = [(ShardedMap(place, {}), {})]
    for _ in range(100):
        map_, known = history[-1]
        changes = {
            f"k{chance.randrange(2000)}": None if chance.random() < 0.3 else object()
            for _ in range(chance.choice((0, 1, 1, 2, 70)))
        }
        kept = {key: value for key, value in known.items() if changes.get(key, value) is not None}
        history.append((map_.changed(changes), {**kept, **{key: each for key, each in changes.items() if each}}))
    assert len(history[-1][1]) > FEWEST_SHARDS**2, "it has grown"
    for map_, known in history:
        assert map_ == known
        assert len(map_) == len(known)
        assert set(map_) == set(map_.keys()) == set(known)
        assert dict(map_.items()) == known
        assert set(map_.values()) == set(known.values())
        assert all(key in map_ and map_[key] is map_.get(key) is value for key, value in known.items())
        assert "no" not in map_
        assert map_.get("no", 7) == 7
        with pytest.raises(KeyError):
            map_["no"]
    for first, second in [
        *pairwise(history),
        (history[0], history[-1]),
        (history[-1], history[3]),
    ]:
        found = differing(first[0], second[0])
        assert set(found) == brute(first[1], second[1])
        assert len(found) == len(set(found))
        assert set(differing(first[0], second[1])) == set(found), "a dictionary is compared, too"


def test_what_is_the_same_is_not_looked_at_and_a_map_is_not_made_twice() -> None:
    class Entries(dict[str, int]):
        def get(self, *_: object) -> int:
            raise AssertionError("a map was compared with itself")

    before = sharded({f"k{number}": number for number in range(1000)}, place)
    assert sharded(before, place) is before
    assert differing(before, before) == []
    plain = Entries(a=1)
    assert differing(plain, plain) == []
    after = before.changed({"k7": 8})
    shared = sum(mine is theirs for mine, theirs in zip(before._shards, after._shards, strict=True))
    assert shared == len(before._shards) - 1


def test_a_key_that_was_found_is_found_without_being_placed_again() -> None:
    placed: list[str] = []

    def note(key: str) -> int:
        placed.append(key)
        return place(key)

    made = ShardedMap(note, {"a": 1, "b": 2})
    placed.clear()
    assert [made["a"], made.get("a"), made["a"], made.get("c"), made.get("c", 3)] == [1, 1, 1, None, 3]
    assert placed == ["a", "c", "c"], "what is not there is not remembered"
    after = made.changed({"a": 5})
    assert (made["a"], after["a"]) == (1, 5)
    with pytest.raises(KeyError):
        after.changed({"a": None})["a"]


def test_a_map_is_walked_in_the_same_order_by_the_same_history() -> None:
    """And not by the hash of text, which is another one in every process; shown with the order that it has here."""
    made = ShardedMap(place, {"a": 1, "b": 1, "c": 1}).changed({"d": 1}).changed({"a": None}).changed({"a": 2})
    shards = sorted("abcd", key=lambda key: place(key) % FEWEST_SHARDS)
    assert list(made) == list(made.keys()) == shards
    assert repr(made) == f"ShardedMap({dict(made.items())!r})"
