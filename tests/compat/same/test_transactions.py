"""Transactions, request by request: Barnabas answers as Apache Kafka 4.3.0 does, to every version of every client.

What is asked while markers are being written depends on how fast they are, so stories wait until they are there.

One difference is not played: a zombie registers under its name while its heir has a transaction open. Kafka aborts the
heir's transaction before it tells the zombie that it is fenced; here the zombie is told at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.compat.same.play import Play, Story, play, show
from tests.compat.same.scene import T0
from tests.support.group_wire import OFFSET_FETCH, fetching
from tests.support.transaction_wire import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    NOBODY,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    WRITE_MARKERS,
    adding,
    adding_offsets,
    committing_offset,
    ending,
    marking,
    registering,
)
from tests.support.waiting import wait_until
from tests.support.wire import batch, plain

if TYPE_CHECKING:
    from tests.compat.same.scene import Scene

TRANSACTIONAL: Final = 0x10
HOUR: Final = 3_600_000
NOT_READY: Final = {14, 15, 16}
"""A coordinator is loading, not there, or elsewhere."""
NOWHERE: Final = {"name": "nowhere", "topic": "nowhere"}

Producer = tuple[int, int]


class Transactor(NamedTuple):
    """A transactional id in a play; its requests are answered to its connection."""

    play: Play

    @property
    def name(self) -> str:
        return self.play.group

    @property
    def topic(self) -> dict[str, Any]:
        """A topic of this play alone, so that offsets are the same on both brokers."""
        return self.play.scene.topic(f"of-{self.name}", 2)

    def ask(self, key: int, body: dict[str, Any]) -> Any:
        return self.play.ask("producer", key, body)

    def begin(self, timeout_ms: int = 60_000) -> Producer:
        """The first registration, when the coordinator is there."""
        body = registering(self.name, timeout_ms=timeout_ms)
        answer = self.play.until("producer", INIT_PRODUCER_ID, body, lambda answer: answer.error_code not in NOT_READY)
        return answer.producer_id, answer.producer_epoch

    def init(self, producer: Producer = NOBODY) -> Producer:
        answer = self.ask(INIT_PRODUCER_ID, registering(self.name, producer))
        return answer.producer_id, answer.producer_epoch

    def add(self, producer: Producer, index: int = 0) -> None:
        self.ask(ADD_PARTITIONS, adding(self.name, producer, (self.topic, index)))

    def end(self, producer: Producer, *, commit: bool = True) -> Producer:
        """What the producer goes on with."""
        answer = self.ask(END_TXN, ending(self.name, producer, commit=commit))
        epoch = getattr(answer, "producer_epoch", -1)
        return producer if epoch < 0 else (answer.producer_id, epoch)

    def settle(self, *states: str) -> None:
        """All markers are written."""

        def settled() -> str | None:
            answer = self.play.ask("producer", LIST_TRANSACTIONS, {"duration_filter": -1}, noted=False)
            [state] = [one.transaction_state for one in answer.transaction_states if one.transactional_id == self.name]
            return state if state in (states or ("Empty", "CompleteCommit", "CompleteAbort")) else None

        state = wait_until(settled, f"{self.name} to settle")
        self.play.answers.append(state)
        if state != "Empty":  # then it has no start, which kio does not read
            self.ask(DESCRIBE_TRANSACTIONS, {"transactional_ids": [self.name]})

    def send(self, producer: Producer, sequence: int, name: str | None = None, **lies: int) -> None:
        """Send a batch; what else is in the answer is compared in `test_answers`."""
        numbers = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": sequence}
        records = batch([b"one", b"two"], **{"attributes": TRANSACTIONAL, **numbers, **lies})
        data = [{**self.topic, "partition_data": [{"index": 0, "records": records}]}]
        body = {"transactional_id": name or self.name, "acks": -1, "timeout": 5_000, "topic_data": data}
        [answer] = self.play.ask("producer", PRODUCE, body, noted=False).responses[0].partition_responses
        self.play.answers.append(["sent", answer.error_code, answer.base_offset])

    def look(self) -> None:
        """What the partition says of the producer, and how far readers get."""
        wanted = {"topics": [{**self.topic, "partition_indexes": [0]}]}
        answer = plain(self.play.ask("producer", DESCRIBE_PRODUCERS, wanted, noted=False))
        for producer in answer["topics"][0]["partitions"][0]["active_producers"]:
            producer["last_timestamp"] = min(producer["last_timestamp"], T0 + HOUR)  # that of a marker is now
        self.play.answers.append(answer)
        for isolation in (0, 1):
            latest = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
            topics = [{**self.topic, "partitions": latest}]
            self.ask(LIST_OFFSETS, {"replica_id": -1, "isolation_level": isolation, "topics": topics})

    def list(self, producer: Producer, **filters: Any) -> None:
        self.ask(LIST_TRANSACTIONS, {"producer_id_filters": [producer[0]], "duration_filter": -1, **filters})


def a_life(p: Play) -> None:
    t = Transactor(p)
    first = t.begin()
    t.settle()
    t.add(first)
    t.add(first)
    t.add(first, 1)
    t.settle("Ongoing")
    t.list(first)
    t.list(first, state_filters=["Ongoing"])
    t.list(first, state_filters=["Empty", "nonsense"])
    t.list(first, duration_filter=HOUR)
    second = t.end(first)
    t.settle()
    t.end(first)
    t.end(first, commit=False)
    t.end(second)
    t.end(second, commit=False)
    t.settle()
    t.init()
    t.end(first)
    t.end(second, commit=False)
    t.add(second)
    t.settle()


def answers_that_were_lost(p: Play) -> None:
    t = Transactor(p)
    first = t.begin()
    t.init(first)
    second = t.init(first)
    t.add(second)
    t.end(second)
    t.settle()
    t.init(second)
    third = t.init(second)
    t.add(third)
    t.init(third)
    t.settle()
    t.init(third)
    t.settle()
    t.init(first)
    t.init((first[0] + 1_000_000, first[1]))


def fencing(p: Play) -> None:
    t = Transactor(p)
    zombie = t.begin()
    t.add(zombie)
    t.init()
    t.settle()
    t.add(zombie)
    t.end(zombie)
    t.end(zombie, commit=False)
    t.init(zombie)
    t.init()
    t.init(zombie)
    t.add(zombie)
    t.end(zombie)
    t.end(zombie, commit=False)
    t.settle()


def a_producer_that_is_too_slow(p: Play) -> None:
    t = Transactor(p)
    slow = t.begin(timeout_ms=600)
    t.add(slow)
    t.settle("CompleteAbort")
    t.add(slow)
    t.end(slow)
    next_one = t.end(slow, commit=False)
    t.settle()
    t.init(slow)
    t.add(next_one)
    t.end(next_one, commit=False)
    t.settle()


def offsets(p: Play) -> None:
    t = Transactor(p)
    producer = t.begin()
    group, topic = f"readers-{t.name}", t.topic
    p.until(
        "group",
        OFFSET_FETCH,
        fetching(group, topic, require_stable=True),
        lambda answer: answer.groups[0].error_code not in NOT_READY,
    )
    for offset, commit in ((5, False), (7, True)):
        t.ask(TXN_OFFSET_COMMIT, committing_offset(t.name, producer, group, topic, offset))
        t.ask(ADD_OFFSETS, adding_offsets(t.name, producer, group))
        t.ask(TXN_OFFSET_COMMIT, committing_offset(t.name, producer, group, topic, offset))
        t.ask(TXN_OFFSET_COMMIT, committing_offset(t.name, producer, group, topic, 9, index=9))
        t.ask(TXN_OFFSET_COMMIT, committing_offset(t.name, producer, group, NOWHERE, 9))
        t.ask(TXN_OFFSET_COMMIT, committing_offset(t.name, producer, group, topic, 9, generation_id=3))
        t.ask(TXN_OFFSET_COMMIT, committing_offset(t.name, producer, group, topic, 9, member_id="stranger"))
        p.ask("group", OFFSET_FETCH, fetching(group, topic, require_stable=True))
        p.ask("group", OFFSET_FETCH, fetching(group, topic))
        producer = t.end(producer, commit=commit)
        t.settle("CompleteCommit" if commit else "CompleteAbort")
        p.ask("group", OFFSET_FETCH, fetching(group, topic, require_stable=True))
    stale = producer[0], producer[1] + 1
    t.ask(ADD_OFFSETS, adding_offsets(t.name, stale, group))
    t.ask(ADD_OFFSETS, adding_offsets(f"nobody-{t.name}", producer, group))
    t.ask(ADD_OFFSETS, adding_offsets("", producer, group))
    t.ask(TXN_OFFSET_COMMIT, committing_offset(t.name, producer, "", topic, 9))
    t.ask(TXN_OFFSET_COMMIT, committing_offset(t.name, stale, group, topic, 9))


def strangers(p: Play) -> None:
    t = Transactor(p)
    producer_id, epoch = producer = t.begin()
    nobody = f"nobody-{t.name}"
    p.until(
        "producer",
        END_TXN,
        ending(nobody, producer, commit=True),
        lambda answer: answer.error_code not in NOT_READY,
    )
    for wrong in ((producer_id + 1_000_000, epoch), (producer_id, epoch + 1)):
        t.add(wrong)
        t.end(wrong)
        t.end(wrong, commit=False)
    t.end(producer)
    t.ask(ADD_PARTITIONS, adding(nobody, producer, (t.topic, 0)))
    t.ask(ADD_PARTITIONS, adding("", producer, (t.topic, 0)))
    t.ask(ADD_PARTITIONS, adding(t.name, producer, (t.topic, 0), (NOWHERE, 0)))
    t.ask(ADD_PARTITIONS, adding(t.name, producer, (t.topic, 9)))
    t.ask(END_TXN, ending("", producer, commit=True))
    t.ask(INIT_PRODUCER_ID, registering("", producer))
    for timeout_ms in (0, -1, 900_001):
        t.ask(INIT_PRODUCER_ID, registering(t.name, timeout_ms=timeout_ms))
    t.ask(INIT_PRODUCER_ID, registering(t.name, (producer_id, -1)))
    t.ask(INIT_PRODUCER_ID, registering(t.name, (-1, epoch)))
    t.add(t.init())
    t.ask(DESCRIBE_TRANSACTIONS, {"transactional_ids": [t.name, nobody, ""]})
    t.list(producer, transactional_id_pattern=t.name)
    t.list(producer, transactional_id_pattern="grou")
    t.list(producer, transactional_id_pattern="(")


def verifying(p: Play) -> None:
    t = Transactor(p)
    producer = t.begin()
    t.ask(ADD_PARTITIONS, adding(t.name, producer, (t.topic, 0), verify_only=True))
    t.add(producer)
    t.ask(ADD_PARTITIONS, adding(t.name, producer, (t.topic, 0), (t.topic, 1), verify_only=True))
    t.ask(ADD_PARTITIONS, adding(t.name, (producer[0], producer[1] + 1), (t.topic, 0), verify_only=True))
    t.ask(ADD_PARTITIONS, adding(t.name, (producer[0] + 1_000_000, 0), (t.topic, 0), verify_only=True))


def records(p: Play) -> None:
    t = Transactor(p)
    first = t.begin()
    t.send(first, 0)
    t.add(first)
    t.send(first, 0)
    t.send(first, 2)
    t.send(first, 2)
    t.send(first, 9)
    t.look()
    second = t.end(first, commit=False)
    t.settle("CompleteAbort")
    t.look()
    t.send(first, 4)
    t.add(second)
    t.send(second, 0)
    t.look()
    t.send(second, 2, attributes=0)
    t.send(second, 2, name=f"stranger-{t.name}")
    t.end(second)
    t.settle("CompleteCommit")
    t.look()


def markers_by_hand(p: Play) -> None:
    t = Transactor(p)
    t.begin()
    producer = t.init()
    t.send(producer, 0)
    t.look()
    t.ask(WRITE_MARKERS, marking(producer, t.topic, 0, 9))
    t.look()
    t.ask(WRITE_MARKERS, marking((producer[0], producer[1] - 1), t.topic, 0))
    t.ask(WRITE_MARKERS, marking(producer, NOWHERE, 0))
    t.ask(WRITE_MARKERS, {"markers": []})


STORIES: Final = {
    "a life": Story(a_life, (END_TXN, LIST_TRANSACTIONS)),
    "answers that were lost": Story(answers_that_were_lost, (INIT_PRODUCER_ID, END_TXN), {INIT_PRODUCER_ID: 3}),
    "fencing": Story(fencing, (INIT_PRODUCER_ID, END_TXN)),
    "a producer that is too slow": Story(a_producer_that_is_too_slow, (END_TXN,), {END_TXN: 4}),
    "offsets": Story(offsets, (ADD_OFFSETS, TXN_OFFSET_COMMIT)),
    "strangers": Story(strangers, (INIT_PRODUCER_ID, ADD_PARTITIONS, LIST_TRANSACTIONS)),
    "verifying": Story(verifying, (ADD_PARTITIONS,), {ADD_PARTITIONS: 4}),
    "records": Story(records, (PRODUCE,), {PRODUCE: 3}),
    "markers by hand": Story(markers_by_hand, (WRITE_MARKERS,)),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_the_same(scenes: tuple[Scene, Scene], name: str) -> None:
    differences = play(scenes, STORIES[name])
    assert not differences, show(differences)
