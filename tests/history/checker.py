"""The rules of a history: what clients of a log may see, whatever happens to its brokers.

They are those of Jepsen's Kafka workload. Every value is sent once, so a value names its send. A history has three
parts: what producers sent and were told, what consumers were given while things failed, and one read of everything
when all is well again. For each partition that last read is the log: whatever anybody was told before has to fit it.

The checker is pure and knows no broker: it is handed a history and gives the violations it finds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Fate(Enum):
    """What a producer was told of a record."""

    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"
    """It may be in the log or not: the producer gave up waiting."""
    REFUSED = "refused"
    """It is not in the log, and never will be."""


class Send(NamedTuple):
    """One record on its way; a producer's sends are listed in the order in which it made them."""

    producer: str
    partition: int
    value: str
    fate: Fate
    offset: int = -1
    """Where it was acknowledged; -1 if it was not."""
    transaction: str = ""
    """The transaction that it is part of, if any."""
    is_repeatable: bool = False
    """Whether its client may have sent it twice, in a way that no broker can tell (`tests/history/expiry`)."""


class Record(NamedTuple):
    """One record as a consumer was given it."""

    partition: int
    offset: int
    value: str


class Poll(NamedTuple):
    """What one poll gave to a consumer, in this order."""

    consumer: str
    records: tuple[Record, ...]
    group: str = ""
    """The group on whose behalf it polls, if any."""


class Placed(NamedTuple):
    """A consumer was given (new) positions: where it goes on has nothing to do with where it was."""

    consumer: str


class Reset(NamedTuple):
    """A consumer was told that its position does not exist."""

    consumer: str
    reason: str


class Kind(Enum):
    """The ways to break the promises of a log."""

    LOST = "lost write"
    VANISHED = "vanished read"
    DUPLICATE = "duplicate"
    INCONSISTENT = "two values at one offset"
    ABORTED = "read of a refused write"
    TORN = "part of a transaction"
    INVENTED = "read of what nobody sent"
    SEND_ORDER = "sends out of order"
    POLL_ORDER = "polls out of order"
    POLL_SKIP = "poll that skips"
    GROUP_SKIP = "group that skips"
    RESET = "position that is gone"


class Violation(NamedTuple):
    """One broken rule, with its evidence."""

    kind: Kind
    evidence: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.evidence}"


@dataclass(frozen=True, slots=True)
class History:
    """What clients did and saw."""

    sends: Sequence[Send]
    reads: Sequence[Poll | Placed | Reset]
    """In order for each consumer; how those of different consumers are mixed says nothing."""
    final: Sequence[Record]
    """Everything, read from the start to the end when all faults were healed."""


def check(history: History) -> list[Violation]:
    """All violations in a history; none if the log kept its promises."""
    sends: dict[str, Send] = {}
    for send in history.sends:
        if send.value in sends:
            raise ValueError(f"{send.value} was sent twice: this history proves nothing")
        sends[send.value] = send
    places: dict[tuple[int, str], set[int]] = defaultdict(set)
    values: dict[tuple[int, int], set[str]] = defaultdict(set)
    for partition, offset, value in _known_places(history):
        places[partition, value].add(offset)
        values[partition, offset].add(value)
    return [
        *_lost(history),
        *_vanished(history),
        *_duplicates(places, sends),
        *_inconsistent(values),
        *_unfounded(history, sends),
        *_torn(history),
        *_send_order(history.sends, places),
        *_polls(history.reads, values),
        *_group_skips(history.reads, values),
        *(Violation(Kind.RESET, f"{e.consumer}: {e.reason}") for e in history.reads if isinstance(e, Reset)),
    ]


def _polled(reads: Iterable[Poll | Placed | Reset]) -> Iterator[Record]:
    for event in reads:
        if isinstance(event, Poll):
            yield from event.records


def _known_places(history: History) -> Iterator[Record]:
    """Everything that anybody was told about where a value is."""
    yield from history.final
    yield from _polled(history.reads)
    for send in history.sends:
        if send.fate is Fate.ACKNOWLEDGED and send.offset >= 0:
            yield Record(send.partition, send.offset, send.value)


def _lost(history: History) -> Iterator[Violation]:
    """What was acknowledged is in the log."""
    found = {(record.partition, record.value) for record in history.final}
    for send in history.sends:
        if send.fate is Fate.ACKNOWLEDGED and (send.partition, send.value) not in found:
            yield Violation(Kind.LOST, f"{send.value} was acknowledged at {send.partition}@{send.offset}")


def _vanished(history: History) -> Iterator[Violation]:
    """What was read stays: only committed records are given to consumers."""
    found = set(history.final)
    for record in set(_polled(history.reads)) - found:
        yield Violation(Kind.VANISHED, f"{record.value} was read at {record.partition}@{record.offset}")


def _duplicates(places: dict[tuple[int, str], set[int]], sends: dict[str, Send]) -> Iterator[Violation]:
    """A value has one place, unless its client repeated it."""
    partitions: dict[str, set[int]] = defaultdict(set)
    for (partition, value), offsets in places.items():
        partitions[value].add(partition)
        if len(offsets) > 1 and not (value in sends and sends[value].is_repeatable):
            yield Violation(Kind.DUPLICATE, f"{value} is at {partition}@{sorted(offsets)}")
    for value, found in partitions.items():
        if len(found) > 1:
            yield Violation(Kind.DUPLICATE, f"{value} is in partitions {sorted(found)}")


def _inconsistent(values: dict[tuple[int, int], set[str]]) -> Iterator[Violation]:
    """A place has one value."""
    for (partition, offset), found in values.items():
        if len(found) > 1:
            yield Violation(Kind.INCONSISTENT, f"{partition}@{offset} has {sorted(found)}")


def _unfounded(history: History, sends: dict[str, Send]) -> Iterator[Violation]:
    """Only what was sent, and not refused, is read."""
    for record in {*history.final, *_polled(history.reads)}:
        send = sends.get(record.value)
        if send is None or send.partition != record.partition:
            yield Violation(Kind.INVENTED, f"{record.value} was read at {record.partition}@{record.offset}")
        elif send.fate is Fate.REFUSED:
            yield Violation(Kind.ABORTED, f"{record.value} was refused, and read at {record.partition}@{record.offset}")


def _torn(history: History) -> Iterator[Violation]:
    """A transaction is in the log as a whole or not at all, whatever its producer was told."""
    found = {(record.partition, record.value) for record in history.final}
    transactions: dict[str, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.transaction:
            transactions[send.transaction].append(send)
    for name, sends in transactions.items():
        there = [send.value for send in sends if (send.partition, send.value) in found]
        if there and len(there) < len(sends):
            missing = [send.value for send in sends if send.value not in there]
            yield Violation(Kind.TORN, f"of {name} {there} were read, and {missing} never")


def _send_order(sends: Sequence[Send], places: dict[tuple[int, str], set[int]]) -> Iterator[Violation]:
    """The records of one producer are in a partition in the order in which it sent them."""
    last: dict[tuple[str, int], tuple[int, str]] = {}
    for send in sends:
        offset = min(places.get((send.partition, send.value), ()), default=None)
        if offset is None:
            continue
        before, value = last.get((send.producer, send.partition), (-1, ""))
        if offset < before:
            evidence = f"{send.producer} sent {value} before {send.value}, but {send.partition}@{before} > {offset}"
            yield Violation(Kind.SEND_ORDER, evidence)
        last[send.producer, send.partition] = max((before, value), (offset, send.value))


def _polls(reads: Iterable[Poll | Placed | Reset], values: dict[tuple[int, int], set[str]]) -> Iterator[Violation]:
    """A consumer goes forward, and past no record; where it was placed it starts anew."""
    positions: dict[str, dict[int, int]] = defaultdict(dict)
    for event in reads:
        if not isinstance(event, Poll):
            positions.pop(event.consumer, None)
            continue
        at = positions[event.consumer]
        for partition, offset, _ in event.records:
            before = at.get(partition)
            if before is not None and offset <= before:
                yield Violation(Kind.POLL_ORDER, f"{event.consumer} read {partition}@{offset} after {before}")
            elif before is not None:
                for skipped in range(before + 1, offset):
                    if (partition, skipped) in values:
                        evidence = f"{event.consumer} read {partition}@{offset} after {before}, not {skipped}"
                        yield Violation(Kind.POLL_SKIP, evidence)
            at[partition] = offset


def _group_skips(
    reads: Iterable[Poll | Placed | Reset], values: dict[tuple[int, int], set[str]]
) -> Iterator[Violation]:
    """The members of a group, who go on where others committed, together miss nothing below the furthest of them."""
    seen: dict[tuple[str, int], set[int]] = defaultdict(set)
    for event in reads:
        if isinstance(event, Poll) and event.group:
            for record in event.records:
                seen[event.group, record.partition].add(record.offset)
    for (group, partition), offsets in seen.items():
        for offset in range(max(offsets)):
            if offset not in offsets and (partition, offset) in values:
                evidence = f"{group} read up to {partition}@{max(offsets)}, but never {offset}"
                yield Violation(Kind.GROUP_SKIP, evidence)
