"""What a seed makes of a world: how long it lasts, who takes part, and what fails when. Plain values, to be shrunk."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

FAULTS: Final = (
    "kill",
    "power",
    "crash",
    "stop",
    "restart",
    "cut",
    "oneway",
    "alone",
    "isolate",
    "reset",
    "expire",
    "lost",
    "slow",
    "full",
    "eio",
    "emfile",
    "clock",
    "freeze",
    "lag",
    "clients",
    "hiccup",
    "strand",
)

DEATHS: Final = ("kill", "strand", "power")
"""Every world has them. Of the other faults it has some: so few kinds meet each other more often."""

LOOSE: Final = 0.12
"""The share of worlds that have a topic which may lose records; they last longer, and less else fails in them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that fails, at a time, for a while."""

    at: float
    kind: str
    machine: int
    seconds: float
    other: int = 0
    """A second machine, or any number that the fault needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A world to be."""

    seed: int
    seconds: float
    producers: int
    consumers: int
    transactors: int
    committers: int
    members: int
    admins: int
    partitions: int
    luck: int = 0
    """Another number, other chance in the same world."""
    classics: int = 0
    """Members of a classic group."""
    keyed: int = 0
    """Producers of a compacted topic, which is cleaned then."""
    faults: tuple[Fault, ...]
    loose: int = 0
    """Producers of a topic whose records may be lost in unclean elections."""
    open_files: int = 1000
    """How many files a broker keeps open."""
    small_internal: bool = False
    """Whether the internal topics have small segments."""
    segment_bytes: int = 1 << 20
    settings: dict[str, str] = field(default_factory=dict)


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(f"plan {seed}")
    loose = chance.random() < LOOSE
    seconds = chance.uniform(20, 26) if loose else chance.uniform(9, 18)
    synced = chance.random() < 0.25
    settings: dict[str, str] = {}
    if synced:
        settings["log.flush.interval.messages"] = "1"
    at = 3.0
    faults: list[Fault] = []
    if loose:
        machine = chance.randint(1, 3)
        faults.append(Fault(round(chance.uniform(2.5, 5), 3), "uncover", machine, round(chance.uniform(1, 5), 3)))
    kinds = [*chance.sample(FAULTS, chance.randint(2, 8)), *DEATHS]
    while (at := at + chance.expovariate(0.2 if loose else 0.6)) < seconds:
        kind = chance.choice(kinds)
        machine = chance.randint(1, 3)
        other = chance.choice([number for number in (1, 2, 3) if number != machine])
        faults.append(Fault(round(at, 3), kind, machine, round(chance.uniform(0.2, 8), 3), other))
    return Plan(
        seed=seed,
        seconds=seconds,
        producers=chance.randint(1, 2),
        consumers=1,
        transactors=chance.choice((0, 0, 1, 1, 2)),
        committers=chance.choice((0, 0, 1)),
        members=chance.choice((0, 0, 2, 3)),
        admins=chance.choice((0, 0, 1)),
        partitions=chance.randint(1, 2),
        faults=tuple(faults),
        segment_bytes=chance.choice((512, 2048, 1 << 20)),
        classics=chance.choice((0, 0, 0, 2)),
        keyed=chance.choice((0, 0, 1)),
        loose=int(loose),
        small_internal=chance.random() < 0.5,
        open_files=chance.choice((8, 16, 1000)),
        settings=settings,
    )
