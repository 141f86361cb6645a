"""The rules of a queue: what its workers may see, whatever happens to them and to the brokers.

docs/queues.md says what is promised; these rules hold a history (`events`) against it. They count on the order of
events only where it is certain: that of two events the first had ended before the second was asked for.

An acknowledgement that is answered without an error was stored, with one exception: of a message before the start
offset it means only that the message is done with, by whomever. So two workers may both be told that their word
counts, but only if by then everything up to this message could be done with (`_start_may_pass`).

The checker is pure and knows no broker: it is handed a history and gives the violations it finds.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.history.queues.events import ACKNOWLEDGED, ARCHIVED, ARCHIVING, NO_EPOCH, Fate, Kind, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.history.queues.events import Acknowledgement, Delivery, Observation, QueueHistory


TICK: Final = 0.001
"""Brokers count the time of locks in whole milliseconds, so one may end a part of a millisecond early."""


FETCH_SECONDS: Final = 30.0
"""How long a fetch may be on its way, or wait for messages."""


class Rule(Enum):
    """The ways to break the promises of a queue."""

    LOST = "done with, though nobody was told of it often enough and nobody said so"
    STUCK = "not done in time"
    TWICE = "acknowledged by two"
    AGAIN = "delivered after it was done"
    UNSTORED = "acknowledged, but not stored"
    SHRUNK = "went back"
    USED_UP = "delivered too often"
    SHARED = "delivered while another worker holds it"
    INVENTED = "delivered, but not in the topic"
    NO_LETTER = "given up without a dead letter"
    WRONG_LETTER = "dead letter of an accepted message"


class Violation(NamedTuple):
    """One broken rule, with its evidence."""

    rule: Rule
    evidence: str

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.evidence}"


def check(history: QueueHistory) -> list[Violation]:
    """All violations in a history; none if the queue kept its promises."""
    return [
        *_invented(history),
        *_used_up(history),
        *_stuck_or_lost(history),
        *_twice(history),
        *_again(history),
        *_unstored(history),
        *_shrunk_states(history),
        *_shrunk_counts(history),
        *_shared(history),
        *_letters(history),
    ]


# What is known of each message


def _at(place: Place) -> str:
    return f"{place.partition}@{place.offset}"


def _final(history: QueueHistory, *fates: Fate) -> dict[Place, list[Acknowledgement]]:
    """Acknowledgements after which nobody gets the message, by message and in the order of their answers."""
    found: dict[Place, list[Acknowledgement]] = defaultdict(list)
    for said in sorted(history.acknowledgements, key=lambda each: each.came_at):
        if said.kind.is_final and said.fate in fates:
            found[said.place].append(said)
    return found


def _current(history: QueueHistory) -> dict[int, list[Observation]]:
    """What was seen of the stored states, by partition and in order."""
    found: dict[int, list[Observation]] = defaultdict(list)
    for seen in sorted(history.observations, key=lambda each: each.asked_at):
        if seen.is_current:
            found[seen.partition].append(seen)
    return found


def _deliveries_known(history: QueueHistory) -> Counter[Place]:
    """The highest delivery count of each message that anybody has seen."""
    counts = Counter[Place]()
    for delivery in history.deliveries:
        counts[delivery.place] = max(counts[delivery.place], delivery.deliveries)
    for seen in history.observations:
        for first, last, _, count in seen.runs:
            for offset in range(first, last + 1):
                place = Place(seen.partition, offset)
                counts[place] = max(counts[place], count)
    return counts


def _may_be_used_up(history: QueueHistory) -> set[Place]:
    """Messages whose deliveries may be used up: those that were seen, and one for each fetch without an answer.

    Such a fetch counts only if it may have had the message: it was sent before the message was seen to be done, and
    not so long before it was sent that it must have been answered by then.
    """
    unheard: dict[int, list[float]] = defaultdict(list)
    for each in history.unheard:
        unheard[each.partition].append(each.asked_at)
    known, seen = _deliveries_known(history), _current(history)
    found: set[Place] = set()
    for place in history.messages:
        missing = history.delivery_limit - known[place]
        fetches = unheard[place.partition]
        if missing > 0 and len(fetches) >= missing:
            done_at = min(
                (each.came_at for each in seen.get(place.partition, ()) if each.is_done(place.offset)), default=math.inf
            )
            since = history.sent_at.get(place, -math.inf) - FETCH_SECONDS
            missing -= sum(since <= asked_at <= done_at for asked_at in fetches)
        if missing <= 0:
            found.add(place)
    return found


def excused(history: QueueHistory) -> int:
    """How many messages are done with only because fetches without an answer may have had them, as far as is known."""
    said, known = _final(history, Fate.STORED, Fate.UNKNOWN), _deliveries_known(history)
    return sum(place not in said and known[place] < history.delivery_limit for place in _may_be_used_up(history))


# Messages that nobody sent, or got too often


def _invented(history: QueueHistory) -> Iterator[Violation]:
    """Only what is in the topic is delivered, and it is the same each time."""
    for delivery in history.deliveries:
        if history.messages.get(delivery.place) != delivery.value and delivery.value not in history.others:
            yield Violation(Rule.INVENTED, f"{delivery.value} of {_at(delivery.place)}: {delivery}")


def _used_up(history: QueueHistory) -> Iterator[Violation]:
    """No message is delivered more often than the group allows."""
    for delivery in history.deliveries:
        if delivery.deliveries > history.delivery_limit:
            yield Violation(Rule.USED_UP, f"{_at(delivery.place)}: {delivery}")


# At least once


def _stuck_or_lost(history: QueueHistory) -> Iterator[Violation]:
    """In the end every message is done with: because a worker said so, or because its deliveries are used up."""
    last = {partition: seen[-1] for partition, seen in _current(history).items()}
    said = _final(history, Fate.STORED, Fate.UNKNOWN)
    used_up = _may_be_used_up(history)
    for place, value in history.messages.items():
        seen = last.get(place.partition)
        if seen is None or not seen.is_done(place.offset):
            state = "nothing" if seen is None else f"start {seen.start}, {seen.state_of(place.offset)}"
            yield Violation(Rule.STUCK, f"{value} of {_at(place)}; stored is {state}")
        elif place not in said and place not in used_up:
            yield Violation(Rule.LOST, f"{value} of {_at(place)}")


# One worker's word counts


def _start_may_pass(history: QueueHistory) -> dict[Place, float]:
    """From when on each message and all before it could be done with, as far as anybody knows."""
    said = _final(history, Fate.STORED, Fate.UNKNOWN)
    used_up = _may_be_used_up(history)
    latest: dict[int, float] = {}
    found: dict[Place, float] = {}
    for place in sorted(history.messages):
        since = min((each.asked_at for each in said.get(place, ())), default=math.inf)
        since = -math.inf if place in used_up else since
        latest[place.partition] = max(latest.get(place.partition, -math.inf), since)
        found[place] = latest[place.partition]
    return found


def _twice(history: QueueHistory) -> Iterator[Violation]:
    """Of the deliveries of a message one is ended for good, unless the start offset has passed the message."""
    start_may_pass = _start_may_pass(history)
    for place, told in _final(history, Fate.STORED).items():
        for other in told[1:]:
            if _delivery(other) == _delivery(told[0]) or start_may_pass.get(place, math.inf) <= other.came_at:
                continue
            yield Violation(Rule.TWICE, f"{_at(place)}: {told[0]}, and {other}")


def _delivery(said: Acknowledgement) -> tuple[str, str, int]:
    return said.member, said.session, said.deliveries


def _again(history: QueueHistory) -> Iterator[Violation]:
    """What is done is not delivered by a leader any more."""
    stored = _final(history, Fate.STORED)
    for delivery in history.deliveries:
        if delivery.is_current and (told := stored.get(delivery.place)) and told[0].came_at <= delivery.asked_at:
            yield Violation(Rule.AGAIN, f"{_at(delivery.place)}: {told[0]}, and {delivery}")


def _unstored(history: QueueHistory) -> Iterator[Violation]:
    """What was answered without an error is stored from then on."""
    observations = _current(history)
    start_may_pass = _start_may_pass(history)
    for said in history.acknowledgements:
        if said.fate is not Fate.STORED:
            continue
        may_be_passed = start_may_pass.get(said.place, math.inf) <= said.came_at
        for seen in observations.get(said.place.partition, ()):
            if seen.asked_at >= said.came_at and not _agrees(seen, said, may_be_passed):
                state, count = seen.state_of(said.place.offset)
                evidence = f"{_at(said.place)}: {said}, but at {seen.asked_at:.3f} state {state}, count {count}"
                yield Violation(Rule.UNSTORED, evidence)
                break


def _agrees(seen: Observation, said: Acknowledgement, may_be_passed: bool) -> bool:
    """Whether this word is stored, or another one if the start may have passed the message before."""
    state, count = seen.state_of(said.place.offset)
    if said.place.offset < seen.start or (may_be_passed and seen.is_done(said.place.offset)):
        return True
    if said.kind is Kind.RELEASE:
        return count >= said.deliveries
    return state in ((ACKNOWLEDGED,) if said.kind is Kind.ACCEPT else (ARCHIVING, ARCHIVED))


# What does not go back


def _shrunk_states(history: QueueHistory) -> Iterator[Violation]:
    """Stored start offsets and delivery counts do not shrink, and what is done stays done."""
    for partition, observations in _current(history).items():
        for before, after in pairwise(observations):
            if before.came_at > after.asked_at:
                continue
            if after.start < before.start:
                evidence = f"the start of partition {partition} from {before.start} to {after.start}"
                yield Violation(Rule.SHRUNK, f"{evidence} at {after.asked_at:.3f}")
            for first, last, _, count in before.runs:
                for offset in range(max(first, after.start), last + 1):
                    if after.state_of(offset)[1] < count or _goes_back(before, after, offset):
                        evidence = f"{partition}@{offset} from {before.state_of(offset)} to {after.state_of(offset)}"
                        yield Violation(Rule.SHRUNK, f"{evidence} at {after.asked_at:.3f}")


def _goes_back(before: Observation, after: Observation, offset: int) -> bool:
    """Whether a message that was done with, or given up, is not so any more."""
    undone = before.is_done(offset) and not after.is_done(offset)
    return undone or (before.is_decided(offset) and not after.is_decided(offset))


def _shrunk_counts(history: QueueHistory) -> Iterator[Violation]:
    """A leader counts on from the delivery count that is stored."""
    observations = _current(history)
    released: dict[Place, list[Acknowledgement]] = defaultdict(list)
    for said in history.acknowledgements:
        if said.kind is Kind.RELEASE and said.fate is Fate.STORED:
            released[said.place].append(said)
    for delivery in history.deliveries:
        if not delivery.is_current:
            continue
        place = delivery.place
        known = [
            (seen.state_of(place.offset)[1], f"stored at {seen.came_at:.3f}")
            for seen in observations.get(place.partition, ())
            if seen.came_at <= delivery.asked_at and place.offset >= seen.start
        ]
        known += [(said.deliveries, str(said)) for said in released[place] if said.came_at <= delivery.asked_at]
        count, why = max(known, default=(0, ""))
        if delivery.deliveries <= count:
            yield Violation(Rule.SHRUNK, f"{_at(place)}: {delivery}, but {count} was known: {why}")


# One worker at a time


def _shared(history: QueueHistory) -> Iterator[Violation]:
    """While a lock is held, and its session and leader go on, nobody else gets the message."""
    by_place: dict[Place, list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        if delivery.epoch != NO_EPOCH:
            by_place[delivery.place].append(delivery)
    ended: dict[tuple[Place, str], list[Acknowledgement]] = defaultdict(list)
    for said in history.acknowledgements:
        ended[said.place, said.member].append(said)
    for place, deliveries in by_place.items():
        for one in deliveries:
            for other in deliveries:
                if _overlap(history, one, other) and not any(
                    said.asked_at <= other.came_at
                    for said in ended[place, one.member]
                    if said.deliveries == one.deliveries
                ):
                    yield Violation(Rule.SHARED, f"{_at(place)}: {one}, and {other}")


def _overlap(history: QueueHistory, one: Delivery, other: Delivery) -> bool:
    """Whether another worker, or another session, got a message within the lock of one."""
    return (
        one.session != other.session
        and one.epoch == other.epoch
        and one.came_at <= other.asked_at
        and other.came_at < one.asked_at + history.lock_seconds - TICK
        and history.sessions.get(one.session, -math.inf) >= other.came_at
    )


# Dead letters


def _letters(history: QueueHistory) -> Iterator[Violation]:
    """Whatever is given up has a dead letter, and nothing that was accepted has one."""
    letters = history.dead_letters
    if letters is None:
        return
    said: Mapping[Place, Sequence[Acknowledgement]] = _final(history, Fate.STORED, Fate.UNKNOWN)
    used_up = _may_be_used_up(history)
    for place, value in history.messages.items():
        words = said.get(place, ())
        if place in letters:
            if (
                place not in used_up
                and words
                and all(each.kind is Kind.ACCEPT and each.fate is Fate.STORED for each in words)
            ):
                yield Violation(Rule.WRONG_LETTER, f"{value} of {_at(place)}: {words[0]}")
        elif not any(each.kind is Kind.ACCEPT for each in words):
            yield Violation(Rule.NO_LETTER, f"{value} of {_at(place)}")
