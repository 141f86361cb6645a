"""Whoever follows notes sees each of them, or knows that it may have missed some."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.metadata.notes import Notes


def notes(*numbers: int, czxid: int = 1) -> Notes:
    return Notes("/notes", czxid, {f"n{number:010d}": number for number in sorted(numbers)})


def test_new_notes_are_told_apart_by_their_names() -> None:
    assert notes(0).new_since(notes()) == ["/notes/n0000000000"]
    assert notes(1, 2, 3).new_since(notes(0, 1, 2)) == ["/notes/n0000000003"]
    assert notes(2, 4, 2**31 - 1).new_since(notes(1, 2, 2**31 - 1)) == ["/notes/n0000000004"]
    assert notes(1, 2).new_since(notes(1, 2)) == []
    assert notes(2).new_since(notes(1, 2)) == []


def test_whoever_may_have_missed_a_note_is_told() -> None:
    assert notes(0, 1).new_since(None) is None
    assert notes(1).new_since(notes()) is None
    assert notes(3, 4).new_since(notes(0, 1)) is None
    assert notes().new_since(notes(0)) is None
    assert notes(4, 2**31 - 1).new_since(notes(1, 2, 2**31 - 1)) is None
    assert notes(0, czxid=2).new_since(notes(0)) is None


@given(st.lists(st.sampled_from(["write", "trim", "look", "odd"]), max_size=40), st.integers(1, 4))
def test_no_note_is_missed_in_any_order_of_things(steps: list[str], kept: int) -> None:
    """Between two looks, every note that was written is named, or whoever looks is told to read everything."""
    there: set[int] = {2**31 - 1}
    written: set[int] = set()
    before, next_number = notes(*there), 0
    for step in [*steps, "look"]:
        if step == "write":
            there.add(next_number)
            written.add(next_number)
            next_number += 1
        elif step == "odd":
            next_number += 2
        elif step == "trim":
            there = set(sorted(there)[-kept - 1 :])
        else:
            now = notes(*there)
            new = now.new_since(before)
            assert new is None or set(new) == {f"/notes/n{number:010d}" for number in written}
            before, written = now, set()
