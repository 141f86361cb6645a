"""What the targets of a trial hold in the end, and what they have to hold: each number once, where it belongs."""

from __future__ import annotations

import collections
import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from tests.pipelines.killed_driver import LATENESS, UNPLACED_EVERY, WINDOW
from tests.pipelines.killed_numbers import field_of, is_bad, number_in
from tests.support.tables import content

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SHOWN: Final = 5


def check_once(what: str, found: Iterable[int], wanted: Iterable[int]) -> None:
    """Fail unless exactly the wanted numbers were found, each once."""
    counted, expected = collections.Counter(found), set(wanted)
    twice = sorted(number for number, count in counted.items() if count > 1)
    missing, strange = sorted(expected - counted.keys()), sorted(counted.keys() - expected)
    assert not (twice or missing or strange), (
        f"{what}: {len(twice)} more than once ({twice[:SHOWN]}), {len(missing)} missing ({missing[:SHOWN]}), "
        f"{len(strange)} that do not belong there ({strange[:SHOWN]})"
    )


def check_load(kind: str, place: Path, total: int) -> None:
    """Good numbers are in the table, with their fields; bad ones in the table beside."""
    rows = content(kind, place)
    check_once(f"rows of {place.name}", rows.column("n").to_pylist(), (n for n in range(total) if not is_bad(n)))
    for name in {field_of(number) for number in range(total)}:
        having = rows.filter(pc.is_valid(rows.column(name)))
        assert having.column(name).equals(having.column("n")), f"{name} of {place.name} has other numbers"
        check_once(
            f"{name} of {place.name}",
            having.column("n").to_pylist(),
            (n for n in range(total) if field_of(n) == name and not is_bad(n)),
        )
    letters = content(kind, place.with_name(f"{place.name}_dead"))
    check_once(
        f"dead letters of {place.name}",
        map(number_in, letters.column("value").to_pylist()),
        filter(is_bad, range(total)),
    )


def check_numbers(kind: str, place: Path, total: int) -> None:
    """Good numbers are in the table, or in the one beside if it has no place for them; others are dropped."""
    good = [number for number in range(total) if not is_bad(number)]
    found = content(kind, place).column("n").to_pylist()
    check_once(f"rows of {place.name}", found, (n for n in good if n % UNPLACED_EVERY))
    check_once(
        f"dead letters of {place.name}",
        (each["n"] for each in _letters(kind, place)),
        (n for n in good if not n % UNPLACED_EVERY),
    )


def final_windows(total: int) -> list[int]:
    """Where the windows begin that are closed once all numbers were read."""
    newest = max(number for number in range(total) if not is_bad(number))
    return list(range(0, max(0, newest - LATENESS - WINDOW + 1), WINDOW))


def windows(kind: str, place: Path) -> list[dict[str, Any]]:
    """The windows that a table has, and those that are dead letters."""
    rows: list[dict[str, Any]] = content(kind, place).to_pylist()
    return rows + _letters(kind, place)


def _letters(kind: str, place: Path) -> list[dict[str, Any]]:
    """The rows of a pipeline that its table has no place for."""
    beside = place.with_name(f"{place.name}_dead")
    if not beside.exists():
        return []
    return [json.loads(value) for value in content(kind, beside).column("value").to_pylist()]


def check_windows(kind: str, place: Path, total: int) -> None:
    """Each window is there once, with all of its good numbers counted, or a dead letter if there is no place for it."""
    found = windows(kind, place)
    assert all((each["first"] % (4 * WINDOW) == WINDOW) == (len(each["place"]) == 300) for each in found), found
    in_table = [each["first"] for each in content(kind, place).to_pylist()]
    assert not [first for first in in_table if first % (4 * WINDOW) == WINDOW], "rows that have no place are there"
    check_once(f"windows of {place.name}", (each["first"] for each in found), final_windows(total))
    for each in found:
        numbers = [number for number in range(each["first"], each["first"] + WINDOW) if not is_bad(number)]
        assert (each["count"], each["sum"]) == (len(numbers), sum(numbers)), each
