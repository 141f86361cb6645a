"""The consumer in a group: assignors, commits, rebalances, and how often a record is processed."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.admin.configs import Configs, EntityType
from barnabas.clients.admin.groups import Groups
from barnabas.clients.consumer.consumer import Consumer
from barnabas.clients.errors import DeserializationFailed, RequestRefused
from barnabas.clients.producer.producer import Producer
from barnabas.clients.records import TopicPartition
from barnabas.clients.semantics import at_least_once, at_most_once, stored_with_result
from barnabas.clients.wire.connection import WireClient
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.clients.admin.groups import GroupMember
    from barnabas.clients.errors import BarnabasError

    Member = Callable[..., Consumer[bytes, bytes]]

ASSIGNORS = ["range", "roundrobin", "cooperative-sticky", "uniform"]
COUNT = 40
LEAVE_GROUP = 13


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def written(bootstrap: str, topic: str) -> str:
    """A topic with ten records in each of its four partitions."""
    with Producer(bootstrap, linger=0.005) as producer:
        for number in range(COUNT):
            producer.send(topic, str(number), partition=number % 4)
    return topic


@pytest.fixture
def member(bootstrap: str, group: str) -> Member:
    """`member(topics, ...)`: a consumer of the test's group, which begins at the beginning."""

    def joined(topics: Any = None, **settings: Any) -> Consumer[bytes, bytes]:
        return Consumer(bootstrap, topics, group_id=group, auto_offset_reset="earliest", **settings)

    return joined


def committed(member: Member, topic: str) -> int:
    """How many records of the topic the group has done with."""
    with member() as consumer:
        return sum(offset or 0 for offset in consumer.committed(*consumer.partitions(topic)).values())


def members_of(groups: Groups, group: str) -> Sequence[GroupMember]:
    found = groups.describe([group])[group]
    assert not isinstance(found, RequestRefused)
    return found.members


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_group_goes_on_where_it_stopped(member: Member, written: str, assignor: str) -> None:
    with member(written, assignor=assignor) as consumer:
        assert len(list(islice(consumer, 15))) == 15
        consumer.done()
    assert committed(member, written) == 15
    with member(written, assignor=assignor) as consumer:
        assert len(list(consumer.until_end())) == 25
    assert committed(member, written) == COUNT


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_share_partitions(member: Member, written: str, assignor: str) -> None:
    with member(written, assignor=assignor) as first, member(written, assignor=assignor) as second:

        def shared() -> bool:
            first.poll(0.1)
            second.poll(0.1)
            parts = [set(first.assignment()), set(second.assignment())]
            return [len(part) for part in parts] == [2, 2] and len(parts[0] | parts[1]) == 4

        wait_until(shared, "two partitions for each of two members", 60)


def leaves_the_block(consumer: Consumer[bytes, bytes]) -> None:
    with contextlib.suppress(ZeroDivisionError), consumer:
        fail_at_the_eighth(consumer)


def stays_in_the_block(consumer: Consumer[bytes, bytes]) -> None:
    with consumer, contextlib.suppress(ZeroDivisionError):
        fail_at_the_eighth(consumer)


def closes_in_the_end(consumer: Consumer[bytes, bytes]) -> None:
    try:
        with contextlib.suppress(ZeroDivisionError):
            fail_at_the_eighth(consumer)
    finally:
        consumer.close()


def is_closed_by_contextlib(consumer: Consumer[bytes, bytes]) -> None:
    with contextlib.suppress(ZeroDivisionError), contextlib.closing(consumer):
        fail_at_the_eighth(consumer)


def unsubscribes(consumer: Consumer[bytes, bytes]) -> None:
    with contextlib.suppress(ZeroDivisionError):
        fail_at_the_eighth(consumer)
    consumer.unsubscribe()
    consumer.close()


def fail_at_the_eighth(consumer: Consumer[bytes, bytes]) -> None:
    for number, _ in enumerate(consumer):
        if number == 7:
            raise ZeroDivisionError


@pytest.mark.parametrize(
    "program", [leaves_the_block, stays_in_the_block, closes_in_the_end, is_closed_by_contextlib, unsubscribes]
)
def test_what_was_in_hand_when_the_program_failed_is_read_again(
    member: Member, written: str, program: Callable[[Consumer[bytes, bytes]], None]
) -> None:
    program(member(written))
    assert committed(member, written) == 7
    with contextlib.suppress(ZeroDivisionError), member(written) as consumer:
        assert len(consumer.poll(30, max_records=5)) > 0
        raise ZeroDivisionError
    assert committed(member, written) == 7


def test_what_was_done_before_a_record_that_cannot_be_read_is_committed(member: Member, written: str) -> None:
    def no_twelve(data: bytes) -> bytes:
        if data == b"12":
            raise ValueError("twelve")
        return data

    consumer = member(value_deserializer=no_twelve)
    consumer.assign([TopicPartition(written, 0)])
    with pytest.raises(DeserializationFailed), consumer:
        for _ in consumer:
            pass
    assert committed(member, written) == 3  # 0, 4 and 8


def test_commits_are_made_in_the_middle_of_a_batch(member: Member, written: str) -> None:
    """A program that is slow has its progress committed, not only when it comes to the end of what was fetched."""
    with member(written, auto_commit_interval=0.1) as consumer, member() as onlooker:
        partitions = onlooker.partitions(written)

        def progress() -> int:
            return sum(offset or 0 for offset in onlooker.committed(*partitions).values())

        for number, _ in enumerate(consumer, 1):
            assert progress() < number
            time.sleep(0.03)
            if number == 25:
                wait_until(lambda: progress() > 10, "the commit of what was done")
                assert progress() < number
                break


def test_a_slow_loop_stays_in_its_group(member: Member, written: str) -> None:
    """The time between two records counts, not that for all that were fetched together."""
    lost: list[TopicPartition] = []
    with member(max_poll_interval_ms=3000, session_timeout_ms=3000) as consumer:
        consumer.subscribe(written, on_lost=lost.extend)
        offsets = []
        for record in consumer.until_end():
            offsets.append((record.partition, record.offset))
            time.sleep(0.1)
    assert lost == []
    assert len(offsets) == len(set(offsets)) == COUNT
    assert committed(member, written) == COUNT


def test_who_takes_too_long_is_told_what_to_do(
    bootstrap: str, group: str, member: Member, written: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        member(written, max_poll_interval_ms=1000, session_timeout_ms=1000) as consumer,
        Groups(WireClient(bootstrap)) as groups,
    ):
        assert consumer.poll(30)
        wait_until(lambda: consumer.poll(0.05) is not None and consumer.assignment(), "the partitions")
        wait_until(lambda: not members_of(groups, group), "its leave, since it does not poll")
        wait_until(
            lambda: consumer.poll(0.05) is not None and "longer than max.poll.interval.ms" in caplog.text, "the error"
        )
    assert "set max_poll_interval_ms to more time" in caplog.text


def test_errors_before_there_are_partitions_are_raised(member: Member, unused_topic: str) -> None:
    with (
        member(unused_topic, allow_auto_create_topics=False) as consumer,
        pytest.raises(RequestRefused, match="not available"),
    ):
        list(consumer.until_end())


def test_the_end_does_not_wait_for_paused_partitions(member: Member, written: str) -> None:
    with member(written) as consumer:
        records = consumer.until_end()
        first = next(records)
        consumer.pause(TopicPartition(written, 3))
        read = [first, *records]
        assert {record.partition for record in read if record is not first} <= {0, 1, 2}
        assert sum(record.partition != 3 for record in read) == 30


def test_commits_are_made_when_they_are_asked_for(member: Member, written: str) -> None:
    with member(written, auto_commit=False) as consumer:
        records = iter(consumer)
        first = next(records)
        consumer.commit()
        assert consumer.committed(first.topic_partition) == {first.topic_partition: first.offset + 1}
        second = next(records)
        consumer.commit(second)
        assert consumer.committed(second.topic_partition) == {second.topic_partition: second.offset + 1}
        consumer.commit({TopicPartition(written, 3): 5})
        assert consumer.committed(TopicPartition(written, 3)) == {TopicPartition(written, 3): 5}
        next(records)
    with member() as consumer:
        assert consumer.committed(TopicPartition(written, 3)) == {TopicPartition(written, 3): 5}


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_commit_after_seeking_backwards_counts(member: Member, written: str, auto_commit: bool) -> None:
    partition = TopicPartition(written, 0)
    with member(auto_commit=auto_commit) as consumer:
        consumer.assign([partition])
        records = iter(consumer)
        assert [next(records).offset for _ in range(10)] == list(range(10))
        assert consumer.poll(0) == []
        consumer.commit()
        assert consumer.committed(partition) == {partition: 10}
        consumer.seek(partition, 2)
        assert next(records).offset == 2
        consumer.commit()
        assert consumer.committed(partition) == {partition: 3}
        assert next(records).offset == 3
        consumer.commit()
        assert consumer.committed(partition) == {partition: 4}
    with member() as consumer:
        assert consumer.committed(partition) == {partition: 4}


def test_the_end_is_reached_without_what_another_member_took_over(member: Member, bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger=0.005) as producer:
        for number in range(4_000):
            producer.send(topic, str(number), partition=number % 4)
    shared = threading.Event()

    def read_to_the_end(consumer: Consumer[bytes, bytes]) -> int:
        count = 0
        for _ in consumer.until_end():
            count += 1
            shared.wait(0 if shared.is_set() else 0.01)  # so that the other one joins in the middle
        return count

    with member(topic, max_poll_records=50) as first, member() as second, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_to_the_end, first)
        wait_until(first.assignment, "the first member's partitions")
        second.subscribe(topic)

        def goes_on() -> bool:
            second.poll(0.05)
            if second.assignment():
                shared.set()
            return reading.done()

        wait_until(goes_on, "the first member to reach the end of what it has left", 60)
        assert reading.result() < 4_000


def test_nothing_is_committed_unless_it_is_asked_for(member: Member, written: str) -> None:
    with member(written, auto_commit=False) as consumer:
        assert len(list(consumer.until_end())) == COUNT
    assert committed(member, written) == 0


def test_commits_without_waiting_are_told_later(member: Member, written: str) -> None:
    told: list[tuple[dict[TopicPartition, int], BarnabasError | None]] = []
    with member(
        written, auto_commit=False, on_commit=lambda offsets, error: told.append((dict(offsets), error))
    ) as consumer:
        record = next(iter(consumer))
        consumer.commit_async()
        wait_until(lambda: (consumer.poll(0.05) and False) or told, "the answer to the commit")
    assert told[0][1] is None
    assert told[0][0][record.topic_partition] == record.offset + 1


def test_commits_are_made_by_themselves_while_records_come(member: Member, written: str) -> None:
    with member(written, auto_commit_interval=0.1) as consumer, member() as onlooker:
        partitions = onlooker.partitions(written)
        assert len(list(consumer.until_end())) == COUNT

        def all_committed() -> bool:
            consumer.poll(0.05)
            return sum(offset or 0 for offset in onlooker.committed(*partitions).values()) == COUNT

        wait_until(all_committed, "automatic commits")


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "uniform"])
def test_callbacks_are_told_what_comes_and_goes(member: Member, written: str, assignor: str) -> None:
    came: list[TopicPartition] = []
    went: list[TopicPartition] = []
    consumer = member(assignor=assignor)
    consumer.subscribe(written, on_assign=came.extend, on_revoke=went.extend)
    assert len(list(consumer.until_end())) == COUNT
    assert sorted(came) == [TopicPartition(written, number) for number in range(4)]
    assert went == []
    consumer.close()
    assert sorted(went) == sorted(came)


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_a_member_that_is_too_slow_is_told_what_it_lost(
    bootstrap: str, group: str, member: Member, written: str, assignor: str
) -> None:
    """The group goes on without it; it hears of that when it comes back, and joins again."""
    times = {"max_poll_interval_ms": 1000}
    if assignor == "uniform":
        with WireClient(bootstrap) as wire:
            Configs(wire).alter(EntityType.GROUPS, group, add={"consumer.session.timeout.ms": "1000"}, delete=())
    else:
        times |= {"session_timeout_ms": 1000, "heartbeat_interval_ms": 100}
    lost: list[TopicPartition] = []
    came: list[TopicPartition] = []
    with member(assignor=assignor, **times) as slow, Groups(WireClient(bootstrap)) as groups:
        slow.subscribe(written, on_assign=came.extend, on_lost=lost.extend)
        wait_until(lambda: slow.poll(0.05) is not None and len(came) == 4, "partitions")
        wait_until(lambda: not members_of(groups, group), "the group to go on without the slow member")
        wait_until(lambda: slow.poll(0.05) is not None and lost, "the slow member to be told")
        assert sorted(lost) == [TopicPartition(written, number) for number in range(4)]
        wait_until(lambda: slow.poll(0.05) is not None and len(came) == 8, "the partitions to come back")


def test_a_member_that_was_removed_is_told_what_it_lost(
    bootstrap: str, group: str, member: Member, written: str
) -> None:
    """As an administrator removes one that hangs, by the name of its instance."""
    lost: list[TopicPartition] = []
    came: list[TopicPartition] = []
    with member(assignor="cooperative-sticky", group_instance_id="one", heartbeat_interval_ms=100) as consumer:
        consumer.subscribe(written, on_assign=came.extend, on_lost=lost.extend)
        wait_until(lambda: consumer.poll(0.05) is not None and len(came) == 4, "partitions")
        removed = [{"member_id": "", "group_instance_id": "one", "reason": "it hangs"}]
        connection = Connection(bootstrap)
        answer = connection.ask(LEAVE_GROUP, 5, {"group_id": group, "members": removed})
        connection.socket.close()
        assert [one.error_code for one in answer.members] == [0]
        wait_until(lambda: consumer.poll(0.05) is not None and len(lost) == 4, "the loss to be told")
        assert sorted(lost) == [TopicPartition(written, number) for number in range(4)]
        wait_until(lambda: consumer.poll(0.05) is not None and len(came) == 8, "the partitions to come back")


def test_what_is_revoked_can_still_be_committed(member: Member, written: str) -> None:
    consumer = member(auto_commit=False)
    consumer.subscribe(written, on_revoke=lambda _: consumer.commit())
    assert len(list(consumer.until_end())) == COUNT
    consumer.close()
    assert committed(member, written) == COUNT


@pytest.mark.parametrize("assignor", ["range", "uniform"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole names", "beginnings"])
def test_topics_are_found_by_pattern(member: Member, written: str, assignor: str, whole: bool) -> None:
    pattern = re.compile(written[:-1] + r"[0-9a-f]") if whole else f"^(?:nothing|{written[:-3]})"
    found: list[bytes | None] = []
    with member(pattern, assignor=assignor) as consumer:

        def all_are_read() -> bool:
            found.extend(record.value for record in consumer.poll(0.1))
            return len(found) == COUNT

        wait_until(all_are_read, "all records of the topic")


def test_topics_that_come_later_are_read_too(bootstrap: str, member: Member, written: str) -> None:
    pattern = re.compile(written + r"(?:-later)?")
    with member(pattern, topic_metadata_refresh_interval_ms=100) as consumer:
        assert len(list(islice(consumer, COUNT))) == COUNT
        with Producer(bootstrap) as producer:
            producer.send(f"{written}-later", "new")
        (record,) = wait_until(lambda: consumer.poll(0.1), "the record of the new topic")
        assert record.value == b"new"


def test_at_most_once_commits_before(member: Member, written: str) -> None:
    with contextlib.suppress(ZeroDivisionError), member(written, auto_commit=False) as consumer:
        for number, _ in enumerate(at_most_once(consumer)):
            if number == 4:
                raise ZeroDivisionError
    assert committed(member, written) == 5


def test_at_least_once_commits_afterwards(member: Member, written: str) -> None:
    with contextlib.suppress(ZeroDivisionError), member(written, auto_commit=False) as consumer:
        for number, _ in enumerate(at_least_once(consumer, commit_every=0)):
            if number == 4:
                raise ZeroDivisionError
    assert committed(member, written) == 4


def test_at_least_once_commits_while_nothing_comes(bootstrap: str, member: Member, written: str) -> None:
    """The last records of a topic on which it has become quiet are not left uncommitted."""
    with member(written, auto_commit=False) as consumer, ThreadPoolExecutor(1) as pool:
        records = at_least_once(consumer, commit_every=0.1)
        assert len(list(islice(records, COUNT))) == COUNT
        waiting = pool.submit(next, records)
        with member() as onlooker:
            places = onlooker.partitions(written)
            wait_until(
                lambda: sum(offset or 0 for offset in onlooker.committed(*places).values()) == COUNT,
                "the commit of the last records",
            )
        assert not waiting.done()
        with Producer(bootstrap) as producer:
            producer.send(written, "the end")
        assert waiting.result(30).value == b"the end"


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "uniform"])
def test_offsets_stored_with_the_result_count_each_record_once(member: Member, written: str, assignor: str) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE results (value TEXT)")
    database.execute("CREATE TABLE offsets (topic TEXT, number INT, next INT, PRIMARY KEY (topic, number))")

    def load(partition: TopicPartition) -> int | None:
        found = database.execute("SELECT next FROM offsets WHERE topic = ? AND number = ?", partition).fetchone()
        return int(found[0]) if found else None

    def run(fail_at: int | None) -> None:
        with member(assignor=assignor) as consumer:
            for number, record in enumerate(stored_with_result(consumer, written, load)):
                with database:
                    database.execute("INSERT INTO results VALUES (?)", (record.value,))
                    if number == fail_at:
                        raise ZeroDivisionError
                    database.execute(
                        "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)",
                        (record.topic, record.partition, record.offset + 1),
                    )
                if database.execute("SELECT count(*) FROM results").fetchone() == (COUNT,):
                    return

    for fail_at in (3, 11, None):
        with contextlib.suppress(ZeroDivisionError):
            run(fail_at)
    values = sorted(int(value) for (value,) in database.execute("SELECT value FROM results"))
    database.close()
    assert values == list(range(COUNT))


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "uniform"])
def test_an_empty_store_begins_at_the_beginning_whatever_the_group_has_committed(
    member: Member, written: str, assignor: str
) -> None:
    for _ in range(2):
        with member(assignor=assignor) as consumer:
            assert len(list(islice(stored_with_result(consumer, written, lambda _: None), COUNT))) == COUNT
            consumer.done()
        assert committed(member, written) == COUNT


def test_a_store_that_fails_is_told_and_nothing_is_read_meanwhile(member: Member, written: str) -> None:
    def load(_: TopicPartition) -> int:
        raise ZeroDivisionError

    with member() as consumer:
        for records in (stored_with_result(consumer, written, load), iter(consumer), iter(consumer)):
            with pytest.raises(ZeroDivisionError):
                next(records)
