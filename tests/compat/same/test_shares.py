"""Share partitions and their states: the same stories end the same way on Barnabas and on Apache Kafka 4.3.0.

Which records are delivered, how often, and with which errors is compared; in how many batches a broker tells that is
its own affair, unless the story is about that.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from barnabas.machines.shares.coordinator import ShareCoordinator
from barnabas.machines.shares.settings import ShareCoordinatorSettings
from barnabas.model.ids import uuid_to_text
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record, read_records
from tests.compat.same.play import BROKER, Play, Story, play, show
from tests.compat.same.scene import (
    DELETE_RECORDS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
    T0,
)
from tests.compat.same.test_groups_share import GROUP_RESOURCE, SET, enter
from tests.support.group_wire import (
    DELETE_SHARE_GROUP_STATE,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    WRITE_SHARE_GROUP_STATE,
)
from tests.support.transaction_wire import ADD_PARTITIONS, END_TXN, adding, ending, registering
from tests.support.waiting import wait_until
from tests.support.wire import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.machines.shares.coordinator import ShareKey, StoredState
    from tests.compat.same.scene import Scene

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NOWHERE: Final = UUID(int=99)


# States


class States:
    """The states of one topic for the group of a play."""

    def __init__(self, p: Play) -> None:
        self.play = p
        self.topic_id = p.scene.topic(f"states-{p.group}", 2)["topic_id"]

    def ready(self) -> States:
        """The coordinators are there: their topic is made for the first who looks for them."""
        keys = [f"{self.play.group}:{uuid_to_text(self.topic_id)}:{index}" for index in range(2)]

        def found() -> bool:
            asked = {"key_type": 2, "coordinator_keys": keys}
            answer = self.play.scene.connection.ask(FIND_COORDINATOR, 6, asked)
            if any(one.error_code for one in answer.coordinators):
                return False
            parts = [{"partition": index, "leader_epoch": -1} for index in range(2)]
            body = {"group_id": self.play.group, "topics": [{"topic_id": self.topic_id, "partitions": parts}]}
            [topic] = self.play.scene.connection.ask(READ_SHARE_GROUP_STATE_SUMMARY, 1, body).results
            return all(part.error_code == 0 for part in topic.partitions)

        wait_until(found, "share coordinators")
        return self

    def ask(self, key: int, *parts: dict[str, Any], topic_id: Any = None, group: str | None = None) -> None:
        topics = [{"topic_id": topic_id or self.topic_id, "partitions": [{"partition": 0, **part} for part in parts]}]
        self.play.ask(BROKER, key, {"group_id": self.play.group if group is None else group, "topics": topics})

    def initialize(self, epoch: int = 0, start: int = 0, **part: Any) -> None:
        self.ask(INITIALIZE_SHARE_GROUP_STATE, {"state_epoch": epoch, "start_offset": start, **part})

    def write(self, *batches: tuple[int, int, int, int], start: int = -1, **part: Any) -> None:
        named = [
            {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
            for first, last, state, count in batches
        ]
        fields = {"start_offset": start, "state_batches": named, "delivery_complete_count": 3, **part}
        self.ask(WRITE_SHARE_GROUP_STATE, fields)

    def look(self, leader_epoch: int = 0, **part: Any) -> None:
        self.ask(READ_SHARE_GROUP_STATE, {"leader_epoch": leader_epoch, **part})
        self.ask(READ_SHARE_GROUP_STATE_SUMMARY, {"leader_epoch": leader_epoch, **part})


def a_state_that_is_written(p: Play) -> None:
    states = States(p).ready()
    states.look()
    states.write((0, 4, 2, 1))
    states.initialize(start=0)
    states.look()
    states.write((0, 4, 2, 1), (5, 9, 0, 1), (12, 14, 4, 5))
    states.look()
    states.write((5, 6, 2, 2), (8, 8, 4, 3), start=3)
    states.look()
    states.write((6, 13, 0, 2), start=5)
    states.write((0, 20, 2, 1))
    states.look()
    states.initialize(epoch=1, start=-1)
    states.look()
    states.ask(DELETE_SHARE_GROUP_STATE, {})
    states.look()
    states.ask(DELETE_SHARE_GROUP_STATE, {})


def epochs_that_fence(p: Play) -> None:
    states = States(p).ready()
    states.initialize(epoch=3, start=7)
    states.look(leader_epoch=2)
    states.look(leader_epoch=1)
    for leader_epoch, state_epoch in ((1, 3), (2, 2), (2, 3), (-1, 3), (2, -1), (4, 3), (3, 3)):
        states.write((7, 7, 2, 1), leader_epoch=leader_epoch, state_epoch=state_epoch)
    states.look(leader_epoch=4)
    states.look(leader_epoch=-1)
    states.initialize(epoch=2, start=0)
    states.initialize(epoch=3, start=1)
    states.look(leader_epoch=5)


def states_that_cannot_be(p: Play) -> None:
    states = States(p).ready()
    for key in (INITIALIZE_SHARE_GROUP_STATE, DELETE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE_SUMMARY):
        states.ask(key, {"partition": -1})
        states.ask(key, {}, group="")
    states.ask(WRITE_SHARE_GROUP_STATE, {"partition": -1})
    states.ask(READ_SHARE_GROUP_STATE, {"partition": -1})
    keys = ["", "g", "g:x:0", f"{p.group}:{uuid_to_text(states.topic_id)}:x", f":{uuid_to_text(states.topic_id)}:0"]
    for key_text in keys:
        answer = p.scene.connection.ask(FIND_COORDINATOR, 6, {"key_type": 2, "coordinator_keys": [key_text]})
        p.answers.append(["find", [one.error_code for one in answer.coordinators]])


# Deliveries


class Worker:
    """A member of a share group that fetches from one partition."""

    def __init__(self, p: Play, name: str, topic: dict[str, Any]) -> None:
        self.play = p
        self.name = name
        self.topic = topic
        self.epoch = 0
        self.got: dict[int, int] = {}
        """What the last fetch has acquired: offsets, with their delivery counts."""
        self.member, _ = enter(p, name, count=1, topic=topic)

    def _body(self, acknowledges: tuple[tuple[int, ...], ...], **other: Any) -> dict[str, Any]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, *types in acknowledges
        ]
        part = {"partition_index": 0, "acknowledgement_batches": batches}
        topics = [{"topic_id": self.topic["topic_id"], "partitions": [part]}]
        body = {"group_id": self.play.group, "member_id": self.member, "share_session_epoch": self.epoch}
        return {**body, "topics": topics, **other}

    def fetch(
        self, *acknowledges: tuple[int, ...], wait_ms: int = 0, noted: bool = True, runs: bool = False, **other: Any
    ) -> Any:
        """The offsets that were acquired, with their delivery counts; with `runs`, note how they are told, too."""
        limits = {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        body = self._body(acknowledges, **{**limits, **other})
        answer = self.play.ask(self.name, SHARE_FETCH, body, noted=False)
        if answer.error_code == 0:
            self.epoch += 1
        told: list[Any] = [self.name, "fetched", answer.error_code, answer.acquisition_lock_timeout]
        counts: dict[int, int] = {}
        found: list[tuple[int, int]] = []
        for topic in answer.responses:
            for part in topic.partitions:
                told += [part.error_code, part.acknowledge_error_code, bool(part.records)]
                for run in part.acquired_records:
                    counts |= dict.fromkeys(range(run.first_offset, run.last_offset + 1), run.delivery_count)
                    found.append((run.first_offset, run.last_offset))
        told += [counts, found] if runs else [counts]
        self.got = counts
        if noted:
            self.play.answers.append(told)
        return counts

    def first(self, **other: Any) -> None:
        """Fetch until there is something: a share partition is loaded, or records are released, meanwhile."""
        got = wait_until(lambda: self.fetch(wait_ms=500, noted=False, **other), f"records for {self.name}")
        self.play.answers.append([self.name, "fetched at last", got])

    def all_of(self, first: int, end: int) -> None:
        """Fetch until there were all these offsets: one fetch may read only one segment of the log."""
        got: dict[int, int] = {}
        wanted = dict.fromkeys(range(first, end), 1)

        def everything() -> bool:
            got.update(self.fetch(wait_ms=500, noted=False))
            return got.keys() >= wanted.keys()

        wait_until(everything, f"records for {self.name}: {got}")
        self.play.answers.append([self.name, "fetched all", got])

    def take(self, wait_ms: int = 300, **other: Any) -> None:
        """Fetch, and note what was acquired, but not whether a partition is told that has nothing now."""
        self.fetch(wait_ms=wait_ms, noted=False, **other)
        self.play.answers.append([self.name, "got", self.got])

    def release(self) -> None:
        """Give back what the last fetch has acquired."""
        self.acknowledge(*((offset, offset, RELEASE) for offset in self.got))

    def acknowledge(self, *acknowledges: tuple[int, ...], **other: Any) -> None:
        answer = self.play.ask(self.name, SHARE_ACKNOWLEDGE, self._body(acknowledges, **other))
        if answer.error_code == 0:
            self.epoch += 1


def configure(p: Play, **settings: str) -> None:
    """Give the group settings; dots are written as underscores, and each begins with share."""
    wanted = {f"share.{name.replace('_', '.')}": value for name, value in settings.items()}
    changes = [{"name": name, "config_operation": SET, "value": value} for name, value in wanted.items()]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": p.group, "configs": changes}
    [answer] = p.scene.connection.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}).responses
    assert answer.error_code == 0, answer


def work(p: Play, *sizes: int, **settings: str) -> dict[str, Any]:
    """A topic with batches of so many records, which the group reads from the beginning, with settings of its own."""
    configure(p, **{"auto_offset_reset": "earliest", "isolation_level": "read_uncommitted", **settings})
    topic = p.scene.topic(f"work-{p.group}")
    send(p, topic, *sizes)
    return topic


def send(p: Play, topic: dict[str, Any], *sizes: int, **fields: int) -> None:
    for size in sizes:
        produce(p, topic, batch([b"job %d" % number for number in range(size)], **fields))


def produce(p: Play, topic: dict[str, Any], records: bytes) -> None:
    data = [{**topic, "partition_data": [{"index": 0, "records": records}]}]
    sent = p.scene.connection.ask(PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": data})
    [part] = sent.responses[0].partition_responses
    assert part.error_code == 0, part


def records_that_go_to_one_worker(p: Play) -> None:
    topic = work(p, 3, 4)
    a, b = Worker(p, "A", topic), Worker(p, "B", topic)
    a.first()
    b.fetch()
    b.acknowledge((0, 0, ACCEPT))
    a.acknowledge((0, 0, ACCEPT), (1, 2, RELEASE), (3, 3, REJECT))
    a.acknowledge((0, 0, ACCEPT))
    b.fetch()
    a.fetch((4, 6, ACCEPT, RELEASE, GAP), max_records=0)
    a.fetch()
    b.fetch((1, 2, RELEASE), max_records=0)
    b.fetch()
    send(p, topic, 2)
    b.fetch(wait_ms=5000)
    b.acknowledge((7, 8, ACCEPT))
    a.fetch()


def acknowledgements_that_are_refused(p: Play) -> None:
    topic = work(p, 5)
    a = Worker(p, "A", topic)
    a.acknowledge((0, 0, ACCEPT))
    a.first()
    for bad in ((3, 1, ACCEPT), (0, 2, ACCEPT, ACCEPT), (0, 0, 9), (0, 5, ACCEPT), (7, 8, ACCEPT), (0, 0)):
        a.acknowledge(bad)
    a.acknowledge((2, 3, ACCEPT), (1, 1, ACCEPT))
    a.acknowledge((0, 1, ACCEPT))
    a.acknowledge((1, 2, ACCEPT))
    a.acknowledge((3, 3, ACCEPT))
    a.acknowledge((3, 3, ACCEPT))
    a.fetch((4, 4, 9))
    a.fetch((2, 2, RENEW))


def sessions_that_begin_and_end(p: Play) -> None:
    topic = work(p, 2)
    a = Worker(p, "A", topic)
    a.fetch((0, 0, ACCEPT))
    a.epoch = 5
    a.fetch()
    a.epoch = -1
    a.fetch()
    a.epoch = 0
    a.first()
    a.epoch += 1
    a.fetch()
    a.acknowledge((0, 0, ACCEPT))
    a.epoch -= 1
    a.acknowledge((0, 0, ACCEPT))
    a.epoch = -1
    a.acknowledge((1, 1, RELEASE))
    a.epoch = 1
    a.fetch()
    a.epoch = 0
    a.first()
    a.epoch = -1
    a.fetch()
    a.epoch = 0
    a.first()
    for lacking in ({"group_id": None}, {"member_id": ""}, {"member_id": None}, {"member_id": "m" * 37}):
        a.fetch(**lacking)
        a.acknowledge((0, 0, ACCEPT), **lacking)


def a_worker_that_is_lost(p: Play) -> None:
    topic = work(p, 3)
    a, b = Worker(p, "A", topic), Worker(p, "B", topic)
    a.first()
    b.fetch()
    p.hang_up("A")
    b.first()


def limits_that_are_strict(p: Play) -> None:
    topic = work(p, 10, 10)
    a, b = Worker(p, "A", topic), Worker(p, "B", topic)
    a.first(max_records=4, share_acquire_mode=1)
    b.fetch(max_records=3, share_acquire_mode=1)
    a.fetch((0, 3, RELEASE), max_records=0)
    b.fetch(max_records=2, share_acquire_mode=1)


def locks_that_are_renewed(p: Play) -> None:
    topic = work(p, 3)
    a = Worker(p, "A", topic)
    a.first()
    nothing: dict[str, Any] = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    a.acknowledge((0, 1, RENEW))
    a.acknowledge((0, 1, RENEW), is_renew_ack=True)
    a.fetch((0, 0, RENEW), is_renew_ack=True)
    a.fetch((0, 0, RENEW), (1, 1, ACCEPT), is_renew_ack=True, **nothing)
    a.acknowledge((1, 1, RENEW), is_renew_ack=True)
    a.acknowledge((0, 0, ACCEPT), (2, 2, ACCEPT))


def transact(p: Play, topic: dict[str, Any], name: str, *, commit: bool | None) -> Callable[[], None]:
    """Send two records in a transaction, and end it unless `commit` is None; gives what commits it then."""
    broker, name = p.scene.connection, f"{p.group}-{name}"
    begun = broker.ask(INIT_PRODUCER_ID, 4, registering(name))
    assert begun.error_code == 0, begun
    producer = begun.producer_id, begun.producer_epoch
    broker.ask(ADD_PARTITIONS, 3, adding(name, producer, (topic, 0)))
    numbers = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0, "attributes": 0x10}
    data = [{**topic, "partition_data": [{"index": 0, "records": batch([b"one", b"two"], **numbers)}]}]
    sent = broker.ask(PRODUCE, 9, {"transactional_id": name, "acks": -1, "timeout": 10_000, "topic_data": data})
    [part] = sent.responses[0].partition_responses
    assert part.error_code == 0, part

    def end(commit: bool = True) -> None:
        before = end_of(p, topic)
        broker.ask(END_TXN, 3, ending(name, producer, commit=commit))
        wait_until(lambda: end_of(p, topic) > before, "the marker")

    if commit is not None:
        end(commit)
    return end


def offsets_in(p: Play, topic: dict[str, Any]) -> list[int]:
    """The offsets of the records that the log has. One answer has those of one segment."""
    found: list[int] = []
    at, end = 0, end_of(p, topic)
    while at < end:
        part = {"partition": 0, "fetch_offset": at, "partition_max_bytes": 1 << 20}
        wanted = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1}
        answer = p.scene.connection.ask(FETCH, 12, {**wanted, "topics": [{**topic, "partitions": [part]}]})
        data, position = answer.responses[0].partitions[0].records or b"", 0
        assert data, answer
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            payload = data[position + HEADER_SIZE : position + header.size]
            found += [header.base_offset + record.offset_delta for record in read_records(payload, header.record_count)]
            position += header.size
            at = header.last_offset + 1
    return found


def end_of(p: Play, topic: dict[str, Any]) -> int:
    """Where the partition ends."""
    asked = [{"partition_index": 0, "timestamp": -1}]
    answer = p.scene.connection.ask(LIST_OFFSETS, 7, {"replica_id": -1, "topics": [{**topic, "partitions": asked}]})
    return int(answer.topics[0].partitions[0].offset)


def records_of_transactions(p: Play, isolation: str) -> None:
    """0 and 1 are aborted, 3 and 4 committed, 6 and 7 open; 2 and 5 are markers, 8 is in no transaction."""
    topic = work(p, isolation_level=isolation)
    transact(p, topic, "aborts", commit=False)
    transact(p, topic, "commits", commit=True)
    commit = transact(p, topic, "open", commit=None)
    send(p, topic, 1)
    a = Worker(p, "A", topic)
    a.first()
    a.fetch()
    a.acknowledge((3, 5, ACCEPT, RELEASE, GAP))
    a.fetch()
    commit()
    a.fetch(wait_ms=5000)
    a.fetch()


def records_that_are_deleted(p: Play) -> None:
    """Batch by batch: of a batch whose first records are deleted, Kafka delivers these as well."""
    topic = work(p, 4)
    a, b = Worker(p, "A", topic), Worker(p, "B", topic)
    a.first()
    send(p, topic, 2, 1, 1)
    delete_before(p, topic, 6)
    b.first()
    a.acknowledge((0, 1, ACCEPT), (2, 3, RELEASE))
    b.acknowledge((6, 7, RELEASE))
    delete_before(p, topic, 7)
    a.first()
    a.acknowledge((7, 7, ACCEPT))
    b.fetch()


def delete_before(p: Play, topic: dict[str, Any], offset: int) -> None:
    """Delete the records before an offset."""
    topics = [{"name": topic["name"], "partitions": [{"partition_index": 0, "offset": offset}]}]
    [answer] = p.scene.connection.ask(DELETE_RECORDS, 2, {"topics": topics, "timeout": 10_000}).topics
    assert answer.partitions[0].error_code == 0, answer


def locks_that_end(p: Play) -> None:
    topic = work(p, 1, 3, record_lock_duration_ms="1000", delivery_count_limit="2")
    a, b = Worker(p, "A", topic), Worker(p, "B", topic)
    a.first(batch_size=1)
    a.acknowledge((0, 0, ACCEPT))
    b.first()
    a.acknowledge((1, 1, ACCEPT))
    b.acknowledge((1, 1, ACCEPT), (2, 2, RELEASE))
    wait_until(lambda: left(p, topic) == 0, "the last delivery to end with its lock")
    b.acknowledge((3, 3, ACCEPT))
    send(p, topic, 1)
    a.first()


def left(p: Play, topic: dict[str, Any]) -> int:
    """How many records the group has not dealt with, as its coordinator says; -1 before it has begun."""
    topics = [{"topic_name": topic["name"], "partitions": [0]}]
    asked = {"groups": [{"group_id": p.group, "topics": topics}]}
    [group] = p.scene.connection.ask(DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked).groups
    [part] = group.topics[0].partitions
    return int(part.lag)


def deliveries_that_are_used_up(p: Play) -> None:
    topic = work(p, 3, delivery_count_limit="2")
    a = Worker(p, "A", topic)
    a.first()
    a.release()
    a.fetch(wait_ms=5000)
    a.acknowledge((0, 0, RELEASE), (1, 1, ACCEPT), (2, 2, RELEASE))
    a.fetch()
    a.acknowledge((0, 0, ACCEPT))
    wait_until(lambda: left(p, topic) == 0, "what is given up to be done")
    send(p, topic, 1)
    a.fetch(wait_ms=5000)
    configure(p, delivery_count_limit="3")
    for _ in range(3):
        a.release()
        a.fetch(wait_ms=500)


def records_that_are_delivered_often(p: Play, sizes: tuple[int, ...], limit: int, strict: bool = False) -> None:
    """With fewer and fewer others, and the last time alone, until all are given up."""
    topic = work(p, *sizes, delivery_count_limit=str(limit))
    a = Worker(p, "A", topic)
    how: dict[str, Any] = {"max_records": 6, "share_acquire_mode": 1} if strict else {}
    a.first(**how)
    while a.got:
        a.release()
        a.fetch(wait_ms=500, **how)
    wait_until(lambda: left(p, topic) == 0, "all to be given up")


def as_many_as_may_be_locked(p: Play, *, strict: bool) -> None:
    """What a strict limit cuts off a batch is in flight in Kafka: no batch is cut here then."""
    topic = work(p, *[25 if strict else 30] * 6, partition_max_record_locks="100")
    a, b = Worker(p, "A", topic), Worker(p, "B", topic)
    how: dict[str, Any] = {"share_acquire_mode": int(strict)}
    a.first(**how)
    b.take(**how)
    a.acknowledge((5, 9, ACCEPT))
    b.take(**how)
    a.acknowledge((20, 39, RELEASE))
    b.first(**how)
    a.acknowledge((0, 4, ACCEPT), (10, 19, ACCEPT))
    b.take(**how)
    configure(p, partition_max_record_locks="200")
    a.first(**how)


def batches_of_a_size(p: Play, *, strict: bool) -> None:
    """The member says how many records it wants in a batch that it acknowledges as a whole."""
    topic = work(p, 3, 3, 10, 1, 1, 1, 1)
    a = Worker(p, "A", topic)
    how: dict[str, Any] = {"share_acquire_mode": int(strict)}
    how |= {"runs": not strict}
    a.first(batch_size=4, max_records=8, **how)
    a.fetch(wait_ms=500, batch_size=2, max_records=100, **how)
    a.fetch((0, 2, RELEASE), (7, 8, RELEASE), max_records=0)
    a.fetch(wait_ms=500, batch_size=1, **how)


def records_that_compaction_removed(p: Play) -> None:
    """Of the batch at 0 nothing is left, of that at 2 one record, of that at 5 all."""
    configure(p, auto_offset_reset="earliest")
    settings = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.0"}
    topic = p.scene.topic(f"work-{p.group}", configs=settings)
    for number, keys in enumerate((b"ab", b"bzc", b"abc", b"x", b"y")):
        records = [Record(at, 0, bytes([key]), b"job") for at, key in enumerate(keys)]
        produce(p, topic, build_batch(records, base_timestamp=T0 + 1000 * number))
    wait_until(lambda: offsets_in(p, topic) == [3, 5, 6, 7, 8, 9], f"compaction of {topic['name']}")
    a, b = Worker(p, "A", topic), Worker(p, "B", topic)
    a.all_of(2, 10)
    a.acknowledge((0, 1, GAP), (2, 4, RELEASE))
    a.acknowledge((2, 4, RELEASE))
    b.first()
    b.acknowledge((2, 4, GAP, ACCEPT, GAP))
    a.acknowledge((5, 9, ACCEPT))
    wait_until(lambda: left(p, topic) == 0, "everything to be done")


def a_beginning_by_time(p: Play, ages: tuple[int, ...]) -> None:
    """One record is sent for each age, in minutes; the group begins with those of the last hour."""
    topic = p.scene.topic(f"work-{p.group}")
    now_ms = int(time.time() * 1000)
    for age in ages:
        send(p, topic, 1, timestamp=now_ms - age * 60_000)
    configure(p, auto_offset_reset="by_duration:PT1H")
    a = Worker(p, "A", topic)
    if min(ages) < 60:
        a.first()
    else:
        a.take()
    send(p, topic, 1, timestamp=now_ms)
    if not a.got:
        a.take(wait_ms=5000)
    a.release()
    a.take(wait_ms=5000)


STORIES: Final = {
    "locks that end": Story(locks_that_end, (SHARE_FETCH,), {SHARE_FETCH: 2}),
    "deliveries that are used up": Story(deliveries_that_are_used_up, (SHARE_FETCH,), {SHARE_FETCH: 2}),
    "a batch that is delivered often": Story(
        partial(records_that_are_delivered_often, sizes=(16, 3), limit=5), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "a batch that is delivered very often": Story(
        partial(records_that_are_delivered_often, sizes=(9,), limit=10), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "a batch that is delivered three times": Story(
        partial(records_that_are_delivered_often, sizes=(5,), limit=3), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "a batch that is delivered often, with a strict limit": Story(
        partial(records_that_are_delivered_often, sizes=(6, 6), limit=6, strict=True), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "as many as may be locked": Story(
        partial(as_many_as_may_be_locked, strict=False), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "as many as may be locked, with a strict limit": Story(
        partial(as_many_as_may_be_locked, strict=True), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "batches of a size": Story(partial(batches_of_a_size, strict=False), (SHARE_FETCH,), {SHARE_FETCH: 2}),
    "batches of a size, with a strict limit": Story(
        partial(batches_of_a_size, strict=True), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "records that compaction removed": Story(records_that_compaction_removed, (SHARE_FETCH,), {SHARE_FETCH: 2}),
    "a beginning by time": Story(
        partial(a_beginning_by_time, ages=(180, 120, 50, 1)), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "a beginning by time after the last record": Story(
        partial(a_beginning_by_time, ages=(180, 120)), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "a state that is written": Story(
        a_state_that_is_written, (WRITE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE_SUMMARY)
    ),
    "epochs that fence": Story(epochs_that_fence, (WRITE_SHARE_GROUP_STATE,)),
    "states that cannot be": Story(states_that_cannot_be, (WRITE_SHARE_GROUP_STATE,)),
    "records that go to one worker": Story(records_that_go_to_one_worker, (SHARE_FETCH, SHARE_ACKNOWLEDGE)),
    "acknowledgements that are refused": Story(acknowledgements_that_are_refused, (SHARE_ACKNOWLEDGE,)),
    "sessions that begin and end": Story(sessions_that_begin_and_end, (SHARE_FETCH,)),
    "a worker that is lost": Story(a_worker_that_is_lost, (SHARE_FETCH,), {SHARE_FETCH: 2}),
    "limits that are strict": Story(limits_that_are_strict, (SHARE_FETCH,), {SHARE_FETCH: 2}),
    "locks that are renewed": Story(
        locks_that_are_renewed, (SHARE_FETCH, SHARE_ACKNOWLEDGE), {SHARE_FETCH: 2, SHARE_ACKNOWLEDGE: 2}
    ),
    "records of transactions that are committed": Story(
        partial(records_of_transactions, isolation="read_committed"), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "records of all transactions": Story(
        partial(records_of_transactions, isolation="read_uncommitted"), (SHARE_FETCH,), {SHARE_FETCH: 2}
    ),
    "records that are deleted": Story(records_that_are_deleted, (SHARE_FETCH,), {SHARE_FETCH: 2}),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_of_share_partitions_ends_the_same(scenes: tuple[Scene, Scene], name: str) -> None:
    differences = play(scenes, STORIES[name])
    assert not differences, show(differences)


# Kafka's records


def loaded(log: Path, machine: ShareCoordinator) -> None:
    """Let a coordinator of ours read a log of Kafka's."""
    data, position = log.read_bytes(), 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if not header.size or position + header.size > len(data):  # Kafka is about to write it
            break
        for record in read_records(data[position + HEADER_SIZE : position + header.size], header.record_count):
            assert record.key is not None
            machine.replay_bytes(record.key, record.value, -1)
        position += header.size


def test_states_that_kafka_has_written_are_read_as_kafka_reads_them(
    scenes: tuple[Scene, Scene], caplog: pytest.LogCaptureFixture
) -> None:
    kafka = scenes[1]
    written, worked = (Play(kafka, f"kafkas-{name}", SHARE_FETCH, 2) for name in ("states", "work"))
    states = States(written).ready()
    states.initialize(epoch=1, start=-1, partition=1)
    states.initialize(epoch=3, start=0)
    for number in range(10):
        states.write((number, number + 2, number % 2 * 2, 1 + number % 3), start=number // 2, state_epoch=3)
    records_that_go_to_one_worker(worked)
    for each in (written, worked):
        each.close()
    # Kafka gives back what a worker held a moment after its connection ends: until that is stored, states change.
    groups = (written.group, worked.group)
    wait_until(lambda: not told_otherwise(kafka, groups), "Kafka tells the states that its logs hold")
    found = kept(kafka, groups)
    assert len(found) == 3
    assert any(state.batches for state in found.values())
    assert not caplog.records, "there are records that we cannot read"


def kept(kafka: Scene, groups: tuple[str, ...]) -> dict[ShareKey, StoredState]:
    """The states of some groups, as a coordinator of ours reads them in Kafka's logs."""
    machine = ShareCoordinator(ShareCoordinatorSettings(), lambda *_: True)
    for log in Path(kafka.log_dir()).glob("__share_group_state-*/*.log"):
        loaded(log, machine)
    return {key: state for key, state in machine.states.items() if key.group_id in groups}


def told_otherwise(kafka: Scene, groups: tuple[str, ...]) -> list[ShareKey]:
    """The states that Kafka tells otherwise than a coordinator of ours reads them."""
    return [
        key
        for key, state in kept(kafka, groups).items()
        if (state.state_epoch, state.start_offset, state.batches) != told_by(kafka, key, state.leader_epoch)
    ]


def told_by(kafka: Scene, key: ShareKey, leader_epoch: int) -> tuple[int, int, tuple[tuple[int, ...], ...]]:
    """A state as Kafka answers it."""
    topics = [{"topic_id": key.topic_id, "partitions": [{"partition": key.partition, "leader_epoch": leader_epoch}]}]
    answer = kafka.connection.ask(READ_SHARE_GROUP_STATE, 0, {"group_id": key.group_id, "topics": topics})
    [part] = answer.results[0].partitions
    assert part.error_code == 0, part
    batches = [
        (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in part.state_batches
    ]
    return part.state_epoch, part.start_offset, tuple(batches)
