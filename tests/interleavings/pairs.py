"""The pairs of operations that cross, each by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interleavings.world import World

    Operation = Callable[[World], None]


def _nothing(_: World) -> None:
    pass


def _make_next_file(world: World) -> None:
    world.make_next_file()


class Pair(NamedTuple):
    """Two operations that run in a thread each."""

    name: str
    first: Operation
    second: Operation
    before: Operation = _nothing
    """What was done before the two begin."""


MIDDLE: Final = 12
"""An offset in the second segment, in the middle of transactions."""

READERS: Final[dict[str, Operation]] = {
    "read": lambda world: world.read(0),
    "committed read": lambda world: world.read(0, committed=True),
    "search by time": lambda world: world.find_time(0),
}
CHANGES: Final[dict[str, Operation]] = {
    "retention": lambda world: world.expire(),
    "cleaning": lambda world: world.clean(),
    "truncation": lambda world: world.truncate(MIDDLE),
    "starting anew": lambda world: world.start_anew(100),
    "beginning within": lambda world: world.begin_within(),
    "append and roll": lambda world: world.append(),
    "next file": lambda world: world.make_next_file(),
    "flush": lambda world: world.flush(),
    "close": lambda world: world.close(),
    "delete": lambda world: world.delete(),
}
CROSSING_CHANGES: Final = (
    ("append and roll", "flush"),
    ("append and roll", "retention"),
    ("append and roll", "cleaning"),
    ("append and roll", "next file"),
    ("next file", "truncation"),
    ("next file", "starting anew"),
    ("next file", "close"),
    ("next file", "delete"),
    ("flush", "retention"),
    ("flush", "cleaning"),
    ("flush", "truncation"),
    ("flush", "starting anew"),
    ("flush", "close"),
    ("flush", "delete"),
    ("retention", "cleaning"),
    ("retention", "truncation"),
    ("retention", "starting anew"),
    ("retention", "close"),
    ("retention", "delete"),
    *((change, "beginning within") for change in ("next file", "flush", "cleaning", "delete")),
    ("cleaning", "truncation"),
    ("cleaning", "starting anew"),
    ("cleaning", "close"),
    ("cleaning", "delete"),
)
"""Appends, closing and deleting happen on the event loop and do not cross; nobody appends to a log that is cut.

But a log that begins within a batch is appended to in a thread, and may be deleted meanwhile, for a later topic of its
name. A clean stop waits for that (`ReplicaManager.settled`), and nothing of it is old enough for retention.
"""

FIRST: Final[dict[str, Operation]] = {"append and roll": lambda world: world.append(1)}
"""What comes before a pair: something to flush."""

PAIRS: Final = {
    pair.name: pair
    for pair in (
        *(
            Pair(f"{reader} x {change}", READERS[reader], CHANGES[change])
            for reader in READERS
            for change in CHANGES
            if change not in ("flush", "next file")
        ),
        *(
            Pair(f"{name} x append and roll to a file made before", work, CHANGES["append and roll"], _make_next_file)
            for name, work in (*READERS.items(), ("flush", CHANGES["flush"]))
        ),
        *(
            Pair(f"{first} x {second}", CHANGES[first], CHANGES[second], FIRST.get(first, _nothing))
            for first, second in CROSSING_CHANGES
        ),
    )
}
