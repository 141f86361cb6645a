"""What a seed makes of a world: how long it lasts, who takes part, and what fails when. Plain values, to be shrunk."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, Final

from barnabas.broker.controller.broker_updaters import LARGE
from barnabas.broker.replication.fetcher import APPENDED_TOGETHER
from barnabas.broker.replication.fetcher_manager import MOST_PARTITIONS
from barnabas.broker.replication.log_changes import HANDED_OVER_TOGETHER

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

REPLACE: Final = 0.5
"""The share of worlds with a queue in which a leader of its messages loses touch with the metadata tree for so long
that it is replaced, and goes on serving its workers: nobody has told it."""

LATE_LETTERS: Final = 0.5
"""The share of worlds with a queue in which dead letters have to wait for their topic."""

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
class QueuePlan:
    """A queue to be, where there are workers."""

    lock_ms: int = 2000
    delivery_limit: int = 5
    reads_committed: bool = False
    ends_by_killing: bool = False
    """Whether workers are killed in the end, and not stopped: what they hold has to come back long before its lock."""
    updates_per_snapshot: int = 500
    has_letters: bool = False
    """Whether the group has a topic for dead letters."""
    letters_after: float = 0.0
    """Seconds after which that topic is made: until then no dead letter can be written."""


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
    workers: int = 0
    """Places for workers of a queue."""
    queue: QueuePlan = QueuePlan()
    open_files: int = 1000
    """How many files a broker keeps open."""
    small_internal: bool = False
    """Whether the internal topics have small segments."""
    scanners: int = 0
    """Readers of many partitions at once."""
    late: float = 0.0
    """The share of the brokers' work in threads, and of all messages, that comes late."""
    hasty: bool = False
    """Whether clients try again at once, and not after a while."""
    handed_over: int = HANDED_OVER_TOGETHER
    """How many partitions a broker leads or follows anew in one turn of the event loop."""
    appended: int = APPENDED_TOGETHER
    """How many batches a follower appends in one turn of the event loop."""
    fetched: int = MOST_PARTITIONS
    """How many partitions a fetcher has at most."""
    packed: int = LARGE
    """Partitions in a controller's message that is packed in a thread."""
    pipelined: bool = False
    """Whether producers and committers have several requests on their way."""
    pieces: float = 0.0
    """The share of messages that arrive in two pieces."""
    directories: int = 1
    """Log directories of each broker, on disks that fail one by one."""
    segment_bytes: int = 1 << 20
    settings: dict[str, str] = field(default_factory=dict)


def plan_of(seed: int, *, queues: bool = False) -> Plan:
    """The plan of a seed; with a queue, and less else, where one is wanted."""
    return _with_queue(seed) if queues else _without_queue(seed)


def _with_queue(seed: int) -> Plan:
    """The faults of the same seed with other clients: a queue whose topic is written in several ways."""
    chance = random.Random(f"queue {seed}")
    killed = chance.random() < 0.5
    queue = QueuePlan(
        lock_ms=60_000 if killed else chance.choice((1000, 2000, 4000)),
        delivery_limit=chance.choice((2, 5, 10, 10)),
        reads_committed=chance.random() < 0.5,
        ends_by_killing=killed,
        updates_per_snapshot=chance.choice((0, 3, 20, 500)),
        has_letters=chance.random() < 0.5,
    )
    plan = _without_queue(seed)
    faults = [fault for fault in plan.faults if fault.kind not in ("uncover", "shorten")]
    transactors, admins, workers = chance.choice((0, 0, 1)), chance.choice((0, 0, 1)), chance.randint(2, 4)
    if chance.random() < REPLACE:
        faults.append(Fault(round(chance.uniform(2.5, 5), 3), "replace", 1, round(chance.uniform(8, 12), 3)))
    if chance.random() < LATE_LETTERS:
        queue = replace(queue, letters_after=round(chance.uniform(2, 8), 3))
    return replace(
        plan,
        committers=0,
        members=0,
        classics=0,
        keyed=0,
        loose=0,
        consumers=0,
        faults=tuple(faults),
        transactors=transactors,
        admins=admins,
        workers=workers,
        queue=queue,
    )


def _without_queue(seed: int) -> Plan:
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
    plan = Plan(
        seed=seed,
        seconds=seconds,
        producers=chance.randint(1, 2),
        consumers=1,
        transactors=chance.choice((0, 0, 1, 1, 2)),
        committers=chance.choice((0, 0, 1)),
        members=chance.choice((0, 0, 2, 3)),
        admins=chance.choice((0, 1)),
        partitions=chance.randint(1, 2),
        faults=tuple(faults),
        segment_bytes=chance.choice((512, 2048, 1 << 20)),
        classics=chance.choice((0, 0, 0, 2)),
        keyed=chance.choice((0, 0, 1)),
        loose=int(loose),
        small_internal=chance.random() < 0.5,
        open_files=chance.choice((8, 16, 1000)),
        scanners=chance.choice((0, 0, 1)),
        late=chance.choice((0.0, 0.1, 0.3)),
        hasty=chance.random() < 0.5,
        handed_over=chance.choice((HANDED_OVER_TOGETHER, HANDED_OVER_TOGETHER, 1)),
        appended=chance.choice((APPENDED_TOGETHER, 1)),
        **_since_november(chance, settings),
        settings=settings,
    )
    if loose:
        shorten = Fault(
            round(chance.uniform(13, 18), 3), "shorten", chance.randint(1, 3), round(chance.uniform(1, 5), 3)
        )
        plan = replace(plan, faults=(*plan.faults, shorten))
    return plan


def _since_november(chance: random.Random, settings: dict[str, str]) -> dict[str, Any]:
    """What is drawn last, so that the rest of a plan is as it was before there was this."""
    fetchers = chance.choice((1, 1, 3))
    if fetchers > 1:
        settings["num.replica.fetchers"] = str(fetchers)
    if chance.random() < 0.3:  # a batch is larger than that: each answer has one of one partition, and none of others
        settings |= {"replica.fetch.max.bytes": "100", "replica.fetch.response.max.bytes": "100"}
    if chance.random() < 0.5:
        settings["leader.imbalance.check.interval.seconds"] = "2"
    return {
        "fetched": chance.choice((MOST_PARTITIONS, MOST_PARTITIONS, 1, 2)),
        "packed": chance.choice((LARGE, 0)),
        "pipelined": chance.random() < 0.5,
        "pieces": chance.choice((0.0, 0.3)),
        "directories": chance.choice((1, 1, 2)),
    }
