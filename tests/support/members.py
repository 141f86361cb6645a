"""Members of consumer groups, one face for three client libraries.

A member is a thread that polls without pause, as clients must; what a test asks of it runs in that same thread, because
two of the libraries allow no other. It keeps what it read and what it was given and what was taken from it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import aiokafka
import kafka
from aiokafka.coordinator.assignors import range as aio_range
from aiokafka.coordinator.assignors import roundrobin as aio_roundrobin
from aiokafka.coordinator.assignors.sticky import sticky_assignor as aio_sticky
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka.coordinator.assignors import cooperative_sticky as kp_cooperative
from kafka.coordinator.assignors import range as kp_range
from kafka.coordinator.assignors import roundrobin as kp_roundrobin
from kafka.coordinator.assignors.sticky import sticky_assignor as kp_sticky

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    Answer = TypeVar("Answer")

PATIENCE: Final = 60.0
_POLL: Final = 0.05
_LONG_POLL_MS: Final = 500
"""kafka-python joins within a poll, and begins again in the next what took longer."""


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Read(NamedTuple):
    """A record as a member got it."""

    place: Place
    offset: int
    value: bytes | None


class Committed(NamedTuple):
    """A committed offset as a client shows it."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class Change(NamedTuple):
    """Partitions that were given to a member, or taken from it."""

    given: bool
    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Joining:
    """How a member joins: subscribed to topics or a pattern, or assigned to partitions by its own choice."""

    bootstrap: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[Place, ...] = ()
    assignors: tuple[str, ...] = ("range",)
    instance: str | None = None
    session_ms: int = 20_000
    commit_every_ms: int = 0
    """Commit by itself so often, and when it leaves; 0 is never."""
    reset: str = "earliest"
    poll_interval_ms: int = 60_000


class Member(threading.Thread, ABC):
    """Polls from its start until it leaves, or until its client says that it cannot go on (`failure`)."""

    def __init__(self, joining: Joining) -> None:
        super().__init__(name=f"member of {joining.group}", daemon=True)
        self.joining = joining
        self.read: list[Read] = []
        self.changes: list[Change] = []
        self.owned: frozenset[Place] = frozenset()
        self.failure: BaseException | None = None
        self.is_over = False
        """Whether its client is closed."""
        self._commands: queue.SimpleQueue[tuple[Callable[[], Any], concurrent.futures.Future[Any]]] = (
            queue.SimpleQueue()
        )
        self._leaving = threading.Event()
        self.start()

    @abstractmethod
    def open(self) -> None:
        """Make the client and let it join."""

    @abstractmethod
    def poll(self) -> list[Read]:
        """What came within a moment."""

    @abstractmethod
    def assignment(self) -> Iterable[Place]:
        """What the client holds now."""

    @abstractmethod
    def commit_these(self, offsets: Mapping[Place, Committed]) -> None:
        """Commit, and wait for the answer."""

    @abstractmethod
    def fetch_committed(self, place: Place) -> Committed | None:
        """What the group committed."""

    @abstractmethod
    def go_to(self, place: Place, offset: int) -> None:
        """Read on from this offset."""

    @abstractmethod
    def close(self) -> None:
        """Leave."""

    def run(self) -> None:
        try:
            self.open()
            try:
                while not self._leaving.is_set():
                    self._obey()
                    self.received(self.poll())
                    self.owned = frozenset(self.assignment())
            finally:
                self.close()
        except Exception as error:  # shown by whoever waits for this member
            self.failure = error
        self.owned = frozenset()
        self.is_over = True

    def received(self, reads: list[Read]) -> None:
        """Take what came."""
        self.read += reads

    def _obey(self) -> None:
        while not self._commands.empty():
            command, answer = self._commands.get()
            try:
                answer.set_result(command())
            except Exception as error:  # it belongs to whoever asked
                answer.set_exception(error)

    def do(self, command: Callable[[], Answer]) -> Answer:
        """Run something in the member's thread, between two polls."""
        answer: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        self._commands.put((command, answer))
        return answer.result(PATIENCE)

    def commit(self, offsets: Mapping[Place, Committed] | None = None) -> None:
        """Commit these, or everything that was read."""
        self.do(lambda: self.commit_these(self.positions() if offsets is None else offsets))

    def committed(self, place: Place) -> Committed | None:
        """What the group committed for a partition."""
        return self.do(lambda: self.fetch_committed(place))

    def seek(self, place: Place, offset: int) -> None:
        """Read on from this offset; what was read before is forgotten."""

        def go() -> None:
            self.go_to(place, offset)
            self.read.clear()

        self.do(go)

    def positions(self) -> dict[Place, Committed]:
        """The offsets behind what was read."""
        return {read.place: Committed(read.offset + 1) for read in self.read}

    def values(self) -> list[bytes | None]:
        """What was read, in its order."""
        return [read.value for read in list(self.read)]

    def taken(self) -> frozenset[Place]:
        """All that was ever taken from it."""
        return frozenset(place for change in list(self.changes) if not change.given for place in change.places)

    def begin_to_leave(self) -> None:
        """Close the client when the present poll is over."""
        self._leaving.set()

    def leave(self) -> None:
        """Close the client and wait for it."""
        self.begin_to_leave()
        self.join(PATIENCE)
        assert not self.is_alive(), f"{self.name} did not end within {PATIENCE:g} s"

    def changed(self, given: bool, places: Iterable[Any]) -> None:
        """Note what the client says it was given or lost."""
        self.changes.append(Change(given, frozenset(Place(place.topic, place.partition) for place in places)))


class ConfluentMember(Member):
    """confluent-kafka, with the classic protocol."""

    protocol: dict[str, Any] = {"group.protocol": "classic"}  # noqa: RUF012  (settings of the class, never changed)

    def settings(self) -> dict[str, Any]:
        """What only the classic protocol lets a client choose."""
        return {
            **self.protocol,
            "partition.assignment.strategy": ",".join(self.joining.assignors),
            "session.timeout.ms": self.joining.session_ms,
            "heartbeat.interval.ms": min(200, self.joining.session_ms // 3),
        }

    def open(self) -> None:
        joining = self.joining
        self.consumer = Consumer(
            {
                "bootstrap.servers": joining.bootstrap,
                "group.id": joining.group,
                "auto.offset.reset": joining.reset,
                "enable.auto.commit": joining.commit_every_ms > 0,
                "auto.commit.interval.ms": joining.commit_every_ms or 1_000,
                "topic.metadata.refresh.interval.ms": 500,
                "max.poll.interval.ms": max(joining.poll_interval_ms, joining.session_ms),
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **self.settings(),
                **({"group.instance.id": joining.instance} if joining.instance else {}),
            }
        )
        if joining.assigned:
            self.consumer.assign([TopicPartition(*place) for place in joining.assigned])
        else:
            self.consumer.subscribe(
                [joining.pattern] if joining.pattern else list(joining.topics),
                on_assign=lambda _, places: self.changed(True, places),
                on_revoke=lambda _, places: self.changed(False, places),
                on_lost=lambda _, places: self.changed(False, places),
            )

    def poll(self) -> list[Read]:
        got = []
        for message in self.consumer.consume(1_000, timeout=_POLL):
            error = message.error()
            if error is None:
                place = Place(message.topic() or "", message.partition() or 0)
                got.append(Read(place, message.offset() or 0, message.value()))
            elif error.code() in REFUSALS:
                raise KafkaException(error)
        return got

    def assignment(self) -> list[Place]:
        return [Place(place.topic, place.partition) for place in self.consumer.assignment()]

    def commit_these(self, offsets: Mapping[Place, Committed]) -> None:
        wanted = [
            TopicPartition(topic, partition, offset, metadata, -1 if epoch is None else epoch)
            for (topic, partition), (offset, metadata, epoch) in offsets.items()
        ]
        for place in self.consumer.commit(offsets=wanted, asynchronous=False) or []:
            if place.error is not None:
                raise KafkaException(place.error)

    def fetch_committed(self, place: Place) -> Committed | None:
        [found] = self.consumer.committed([TopicPartition(*place)], timeout=PATIENCE)
        if found.error is not None:
            raise KafkaException(found.error)
        return None if found.offset < 0 else Committed(found.offset, found.metadata or "", found.leader_epoch)

    def go_to(self, place: Place, offset: int) -> None:
        self.consumer.seek(TopicPartition(*place, offset))

    def close(self) -> None:
        self.consumer.close()


REFUSALS: Final = {
    KafkaError._FATAL,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.GROUP_MAX_SIZE_REACHED,
    KafkaError.UNSUPPORTED_ASSIGNOR,
}
"""What makes it pointless to go on, though librdkafka does."""


class ConfluentConsumerProtocolMember(ConfluentMember):
    """confluent-kafka, with the new protocol: the broker assigns."""

    def settings(self) -> dict[str, Any]:
        assignor = self.joining.assignors[0]
        return {
            "group.protocol": "consumer",
            **({"group.remote.assignor": assignor} if assignor in ("uniform", "range") else {}),
        }


class KafkaPythonMember(Member):
    """kafka-python."""

    ASSIGNORS: Final = {
        "range": kp_range.RangePartitionAssignor,
        "roundrobin": kp_roundrobin.RoundRobinPartitionAssignor,
        "sticky": kp_sticky.StickyPartitionAssignor,
        "cooperative-sticky": kp_cooperative.CooperativeStickyAssignor,
    }

    def open(self) -> None:
        joining = self.joining
        self.consumer: Any = kafka.KafkaConsumer(
            bootstrap_servers=joining.bootstrap,
            group_id=joining.group,
            auto_offset_reset=joining.reset,
            enable_auto_commit=joining.commit_every_ms > 0,
            auto_commit_interval_ms=joining.commit_every_ms or 1_000,
            partition_assignment_strategy=[self.ASSIGNORS[name] for name in joining.assignors],
            group_instance_id=joining.instance,
            session_timeout_ms=joining.session_ms,
            heartbeat_interval_ms=min(200, joining.session_ms // 3),
            max_poll_interval_ms=max(joining.poll_interval_ms, joining.session_ms),
            metadata_max_age_ms=500,
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
        )
        if joining.assigned:
            self.consumer.assign([kafka.TopicPartition(*place) for place in joining.assigned])
        else:
            self.consumer.subscribe(
                topics=joining.topics, pattern=joining.pattern or None, listener=_Listener(self.changed)
            )

    def poll(self) -> list[Read]:
        polled = self.consumer.poll(_LONG_POLL_MS)
        coordinator = self.consumer._coordinator
        if coordinator.rejoining:
            # kafka-python 3.0.12 rejoins when topics change, but forgets that it does so if its poll ends before the
            # answer comes: it would neither take the assignment nor send heartbeats ever again.
            coordinator.request_rejoin()
        return [
            Read(Place(record.topic, record.partition), record.offset, record.value)
            for records in polled.values()
            for record in records
        ]

    def assignment(self) -> list[Place]:
        return [Place(*place) for place in self.consumer.assignment()]

    def commit_these(self, offsets: Mapping[Place, Committed]) -> None:
        self.consumer.commit(
            {
                kafka.TopicPartition(*place): kafka.OffsetAndMetadata(
                    committed.offset,
                    committed.metadata,
                    -1 if committed.leader_epoch is None else committed.leader_epoch,
                )
                for place, committed in offsets.items()
            }
        )

    def fetch_committed(self, place: Place) -> Committed | None:
        found = self.consumer.committed(kafka.TopicPartition(*place), metadata=True)
        return None if found is None else Committed(found.offset, found.metadata, found.leader_epoch)

    def go_to(self, place: Place, offset: int) -> None:
        self.consumer.seek(kafka.TopicPartition(*place), offset)

    def close(self) -> None:
        self.consumer.close(autocommit=self.joining.commit_every_ms > 0)


class _Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, changed: Callable[[bool, Iterable[Any]], None]) -> None:
        self._changed = changed

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._changed(False, revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._changed(True, assigned)


class AioKafkaMember(Member):
    """aiokafka, with an event loop of its own that runs while the member polls."""

    ASSIGNORS: Final = {
        "range": aio_range.RangePartitionAssignor,
        "roundrobin": aio_roundrobin.RoundRobinPartitionAssignor,
        "sticky": aio_sticky.StickyPartitionAssignor,
    }

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.consumer: Any = None
        self.wait(self._start())

    async def _start(self) -> None:
        joining = self.joining
        self.consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=joining.bootstrap,
            group_id=joining.group,
            auto_offset_reset=joining.reset,
            enable_auto_commit=joining.commit_every_ms > 0,
            auto_commit_interval_ms=joining.commit_every_ms or 1_000,
            partition_assignment_strategy=[self.ASSIGNORS[name] for name in joining.assignors],
            group_instance_id=joining.instance,
            session_timeout_ms=joining.session_ms,
            heartbeat_interval_ms=min(200, joining.session_ms // 3),
            max_poll_interval_ms=max(joining.poll_interval_ms, joining.session_ms),
            metadata_max_age_ms=500,
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
        )
        if joining.assigned:
            self.consumer.assign([aiokafka.TopicPartition(*place) for place in joining.assigned])
        else:
            listener = _AioListener(self.changed)
            if joining.pattern:
                self.consumer.subscribe(pattern=joining.pattern, listener=listener)
            else:
                self.consumer.subscribe(topics=list(joining.topics), listener=listener)
        await self.consumer.start()

    def wait(self, task: Coroutine[Any, Any, Answer]) -> Answer:
        """Let the loop run until this is done."""
        return self.loop.run_until_complete(task)

    def poll(self) -> list[Read]:
        return [
            Read(Place(record.topic, record.partition), record.offset, record.value)
            for records in self.wait(self.consumer.getmany(timeout_ms=round(_POLL * 1000))).values()
            for record in records
        ]

    def assignment(self) -> list[Place]:
        return [Place(*place) for place in self.consumer.assignment()]

    def commit_these(self, offsets: Mapping[Place, Committed]) -> None:
        wanted = {
            aiokafka.TopicPartition(*place): (committed.offset, committed.metadata)
            for place, committed in offsets.items()
        }
        self.wait(self.consumer.commit(wanted))

    def fetch_committed(self, place: Place) -> Committed | None:
        found = self.wait(self.consumer.committed(aiokafka.TopicPartition(*place)))
        return None if found is None else Committed(found)

    def go_to(self, place: Place, offset: int) -> None:
        self.consumer.seek(aiokafka.TopicPartition(*place), offset)

    def close(self) -> None:
        if self.consumer is not None:
            self.wait(self.consumer.stop())
        self.loop.close()


class _AioListener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, changed: Callable[[bool, Iterable[Any]], None]) -> None:
        self._changed = changed

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._changed(False, revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._changed(True, assigned)


def places_of(topic: str, partitions: int) -> frozenset[Place]:
    """All partitions of a topic."""
    return frozenset(Place(topic, number) for number in range(partitions))


def wait_for_members(members: Iterable[Member], condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for something; a member that failed meanwhile is the reason why it does not come."""
    watched = list(members)

    def look() -> bool:
        for member in watched:
            if member.failure is not None:
                raise AssertionError(f"{member.name} failed while waiting for {what}") from member.failure
        return condition()

    try:
        wait_until(look, what, seconds)
    except AssertionError as error:
        held = "\n".join(f"{member.name}: {sorted(member.owned)}, {len(member.read)} read" for member in watched)
        raise AssertionError(f"{error}\n{held}") from error.__cause__


def wait_until_shared(
    members: Iterable[Member], places: frozenset[Place], seconds: float = PATIENCE, *, rest: float = 0.5
) -> None:
    """Wait until every partition has one owner among these members, each has one, and so it stays for a moment."""
    together = list(members)
    since = time.monotonic()

    def shared() -> bool:
        nonlocal since
        held = [place for member in together for place in member.owned]
        idle = [member for member in together if not member.owned]
        if frozenset(held) != places or len(held) != len(places) or (idle and len(places) >= len(together)):
            since = time.monotonic()
        return time.monotonic() - since >= rest

    wait_for_members(together, shared, f"one owner for each of {len(places)} partitions", seconds)


def wait_until_read(members: Iterable[Member], values: Iterable[bytes], seconds: float = PATIENCE) -> None:
    """Wait until these members together have read all of these values."""
    together, wanted = list(members), set(values)

    def everything() -> bool:
        return wanted <= {value for member in together for value in member.values()}

    wait_for_members(together, everything, f"{len(wanted)} records", seconds)
