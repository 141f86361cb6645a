"""The consumer: topics as an iterator.

    with Consumer("localhost:9092", "orders", group_id="billing", value_deserializer=JSON) as consumer:
        for record in consumer:
            print(record.key, record.value)

With a group, partitions are shared among its members and progress is committed. Without one, all partitions are read,
and nothing is committed. How often a record is processed when something fails: `clients.semantics`.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeAlias

from barnabas.clients.closed import watch_forks
from barnabas.clients.config import DEFAULT_BOOTSTRAP_SERVERS, is_true, log, milliseconds, open_client, properties
from barnabas.clients.consumer.native import BEGINNING, END
from barnabas.clients.consumer.reading import SLICE, ReadOptions, RecordReader
from barnabas.clients.errors import InvalidClientConfig, added_to, noted_in, passing_error, translated
from barnabas.clients.library import load_kafka
from barnabas.clients.records import ConsumerRecord, K, TopicPartition, V, as_milliseconds
from barnabas.model.permissions import read_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime
    from types import TracebackType

    from barnabas.clients.consumer.committing import CommitCallback
    from barnabas.clients.consumer.subscribing import RebalanceCallback, Start, Topics
    from barnabas.clients.serializers import Deserializer

    Offsets: TypeAlias = "Mapping[TopicPartition, int] | ConsumerRecord[Any, Any] | None"
    """Offsets to commit: those that come next, or a record that is done with, or None for all that was handed out."""

__all__ = ["Consumer"]

Assignor: TypeAlias = Literal["range", "roundrobin", "cooperative-sticky", "uniform"]
Reset: TypeAlias = Literal["earliest", "latest", "none"]

MAX_POLL_RECORDS: Final = 500
DEFAULTS: Final = {
    "allow.auto.create.topics": True,
    "auto.offset.reset": "latest",
    "fetch.queue.backoff.ms": 20,
}
"""Where we differ from librdkafka: the first two are Java's defaults. The last says how long librdkafka stops fetching
when 64 MB are waiting; at its own second, a consumer that is slower than the network stands still half of the time."""
_RESETS: Final = {
    "earliest": BEGINNING,
    "smallest": BEGINNING,
    "beginning": BEGINNING,
    "latest": END,
    "largest": END,
    "end": END,
}
MOST_HEARTBEAT_MS: Final = 3000
"""How often members of a group are heard by default, in milliseconds."""
CLOSE_SECONDS: Final = 30.0
"""How long the end of a consumer may wait for brokers, unless told otherwise."""
POLL_SECONDS: Final = 1.0
"""How long records are handed out before librdkafka hears of the program again, where its settings allow that."""
NO_GROUP: Final = "barnabas-without-group"
"""librdkafka insists on a group id; under this one nothing is joined or committed."""


class ConsumerBase(Generic[K, V]):
    """The constructor of both kinds of consumer."""

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS,
        topics: Topics | None = None,
        *,
        group_id: str | None = None,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        auto_offset_reset: Reset | None = None,
        auto_commit: bool | None = None,
        auto_commit_interval: float | None = None,
        assignor: Assignor | None = None,
        max_poll_records: int | None = None,
        on_commit: CommitCallback | None = None,
        config: Mapping[str, Any] | None = None,
        **kafka_properties: Any,
    ) -> None:
        r"""Open a consumer, and subscribe it if topics are given: a name, a pattern, or several of them.

        - `group_id`: whose work is shared and whose progress is committed; None reads everything and commits nothing.
        - `key_deserializer`, `value_deserializer`: see `clients.serializers`; without one, bytes are given.
        - `auto_offset_reset`: where to begin without a committed offset: "earliest", "latest" (the default) or "none".
        - `auto_commit` (on): commit every `auto_commit_interval` seconds (5) what was handed out and is done with.
        - `assignor`: "range", "roundrobin", "cooperative-sticky", or "uniform", which is the new group protocol, where
          the broker assigns.
        - `max_poll_records` (500): how many records are fetched ahead at a time.
        - `on_commit(offsets, error)` is told of automatic commits and of those that nobody waited for.
        - `isolation_level` ("read_committed"): records of open and aborted transactions are left out. That is
          librdkafka's default; Kafka's Java consumer and `barnabas consume` read them unless told otherwise.
        - `config` and further keywords are Kafka's properties: `config={"client.id": "a"}` or `client_id="a"`.

        A pattern is `re.compile(r"orders-\d+")`, for whole names, or a string that begins with `^`, for beginnings.
        Raises InvalidClientConfig for what is not understood, LibraryMissing without confluent-kafka.
        """
        chosen: dict[str, Any] = {
            "group.id": group_id,
            "auto.offset.reset": auto_offset_reset,
            "enable.auto.commit": auto_commit,
            "auto.commit.interval.ms": milliseconds(auto_commit_interval),
            "max.poll.records": max_poll_records,
        }
        if assignor == "uniform":
            chosen |= {"group.protocol": "consumer", "group.remote.assignor": "uniform"}
        elif assignor is not None:
            chosen["partition.assignment.strategy"] = assignor
        found = properties(bootstrap_servers, config, kafka_properties, chosen)
        max_records = int(found.pop("max.poll.records", MAX_POLL_RECORDS))
        if max_records < 1:
            raise InvalidClientConfig(f"max_poll_records is {max_records}: it has to be at least 1")
        group_id = str(found["group.id"]) if found.get("group.id") else None
        auto = is_true(found.get("enable.auto.commit", True)) and group_id is not None
        strategy = str(found.get("partition.assignment.strategy", ""))
        found = {**DEFAULTS, **_heartbeats(found), **found}
        found |= {
            "group.id": found.get("group.id") or NO_GROUP,
            "enable.auto.commit": auto,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
        }
        kafka = load_kafka()
        if on_commit is not None:
            found["on_commit"] = _commit_callback(on_commit, group_id)
        client = open_client(kafka, "Consumer", found)
        options = ReadOptions(
            group_id=group_id,
            incremental=found.get("group.protocol") == "consumer" or "ooperative" in strategy,
            auto_commit=auto,
            reset=_RESETS.get(found["auto.offset.reset"]),
            max_records=max_records,
            poll_every=_poll_every(found),
        )
        self._reader = RecordReader[K, V](kafka, client, options, key_deserializer, value_deserializer)
        watch_forks(self._reader)
        self._reads_committed = str(found.get("isolation.level", "read_committed")) == "read_committed"
        try:
            self._subscribe_at_start(topics)
        except BaseException:
            self._reader.close(0)
            raise

    def __del__(self) -> None:
        reader = getattr(self, "_reader", None)
        if reader is not None and not reader.closed:
            warnings.warn(
                "a consumer was not closed: what is done with may not be committed, and its group waits for it until "
                "session.timeout.ms is over: close it, or use it in a with",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def _subscribe_at_start(self, topics: Topics | None) -> None:
        """Subscribe to what the constructor was given."""
        raise NotImplementedError

    @property
    def commits_by_itself(self) -> bool:
        """Whether what was handed out is committed without being asked for: with a group and `auto_commit`."""
        return self._reader.commits.automatic

    @property
    def reads_committed(self) -> bool:
        """Whether it waits for open transactions: also for those that commit offsets of its own group."""
        return self._reads_committed

    def done(self) -> None:
        """Say that everything that was handed out is processed, without asking for more: before a `close`, for example.

        Automatic commits then count it in.
        """
        self._reader.commits.done()

    def handed_out(self) -> dict[TopicPartition, int]:
        """The offset after the last record that was handed out and not committed, for each partition."""
        return self._reader.handed_out.offsets()

    def mark_committed(self) -> None:
        """Take what was handed out for committed: its offsets were stored elsewhere, as in a transaction."""
        self._reader.commits.mark_committed()

    def begin_transaction(self) -> None:
        """From here on, what is handed out belongs to a transaction, which `Producer.transaction` commits."""
        self._reader.handed_out.in_transaction = True

    def end_transaction(self) -> None:
        """The transaction is over."""
        self._reader.handed_out.in_transaction = False

    def require_complete(self) -> None:
        """Raise TransactionAborted if a rebalance or a seek has dropped offsets of records that were handed out."""
        self._reader.handed_out.require_complete()

    def doubt(self) -> None:
        """Go on from what the group has committed: nobody knows whether that is what was handed out."""
        self._reader.positions.doubt()

    def reset_offset(self, partition: TopicPartition) -> int:
        """What `auto_offset_reset` says of a partition: -2 (its beginning) or -1 (its end); raises if it is "none"."""
        return self._reader.positions.reset_offset(partition)

    def paused(self) -> list[TopicPartition]:
        """Partitions that are paused."""
        return self._reader.fetched.held()


class Consumer(ConsumerBase[K, V]):
    """Reads records. One thread at a time; close it, or use it in a `with`."""

    def _subscribe_at_start(self, topics: Topics | None) -> None:
        if topics is not None:
            self.subscribe(topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with noted_in(error):
            self.close()

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Records, one by one, without an end; asking for the next says that the last one is done with."""
        reader = self._reader
        fetched, receiver = reader.fetched, reader.receiver
        now = time.monotonic
        while True:
            if fetched.at >= len(fetched.records) and not reader.prepare():
                reader.fetch(SLICE)
                continue
            records = fetched.records
            count = len(records)
            while (at := fetched.at) < count and fetched.records is records:
                if now() >= receiver.due:
                    reader.look()
                    break
                record = records[at]
                fetched.hand = 1
                fetched.at = at + 1
                yield record

    def steps(self) -> Iterator[ConsumerRecord[K, V] | None]:
        """Records, one by one, and None whenever none came for a moment: for loops with something else to do."""
        reader = self._reader
        while True:
            if time.monotonic() >= reader.receiver.due:
                reader.fetch(0)
            record = reader.take()
            if record is not None or not reader.fetch(SLICE):
                yield record

    def until_end(self, on_wait: Callable[[], None] | None = None) -> Iterator[ConsumerRecord[K, V]]:
        """Records up to where the partitions end now; what is written later is left for later.

        A consumer of a group waits for its partitions first. Those that go to another member meanwhile are that one's;
        those that come are read up to where they end then. Paused partitions are not waited for. `on_wait` is called
        whenever none came for a moment.
        """
        reader = self._reader
        reader.subscription.require_chosen()
        ends: dict[TopicPartition, int] = {}
        while not (ended := reader.at_end(ends)) and not ends:
            reader.fetch(SLICE)
            reader.prepare()  # which raises errors
        while not ended:
            if time.monotonic() >= reader.receiver.due:
                reader.fetch(0)
            record = reader.take()
            if record is not None:
                yield record
            elif reader.at_end(ends):
                ended = True
            elif not reader.fetch(SLICE) and on_wait is not None:
                on_wait()

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Records as soon as there are some, at most `max_records`; an empty list after `timeout` seconds.

        Asking says that everything that was handed out before is done with.
        """
        reader = self._reader
        limit = max_records or reader.max_records
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            if reader.fetch(min(left, SLICE), limit):
                return reader.take_many(limit)
            if not left:
                return []

    def subscribe(
        self,
        topics: Topics,
        *,
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        start: Start | None = None,
    ) -> None:
        """Read topics: names, patterns, or both.

        The callbacks are given partitions: those that came, those that are about to go (their records can still be
        committed), those that are gone (they cannot). They run while records are waited for.
        `start(partition)` says at which offset to begin with a partition that comes; None: where the group left off.
        """
        self._reader.subscription.subscribe(
            topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost, start=start
        )

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group."""
        self._reader.subscription.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions, at these offsets if a mapping says so; no group shares them."""
        self._reader.subscription.assign(as_offsets(partitions))

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are being read now."""
        return self._reader.native.assignment()

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Raises RequestRefused if there is no such topic."""
        return self._reader.native.partitions(topic)

    def commit(self, offsets: Offsets = None) -> None:
        """Commit, and wait until it is done: everything that was handed out, or up to a record, or offsets."""
        self._reader.commits.commit(to_commit(offsets), wait=True)

    def commit_async(self, offsets: Offsets = None) -> None:
        """Commit without waiting; `on_commit` is told how it went, at a later poll."""
        self._reader.commits.commit(to_commit(offsets), wait=False)

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none. Without arguments: of what is assigned."""
        return self._reader.native.committed(partitions or self.assignment())

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that will be handed out; None if that is not known yet."""
        return self._reader.positions.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset."""
        self._reader.positions.seek(partition, offset)

    def seek_to_time(self, when: datetime | int, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Read on at the first record at or after a moment (a datetime, or milliseconds), or at the end.

        Without partitions: in all that are assigned. Returns the offsets.
        """
        offsets = self._reader.native.offsets_at(as_milliseconds(when), partitions or self.assignment())
        for partition, offset in offsets.items():
            self._reader.positions.seek(partition, offset)
        return offsets

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on where the logs begin. Without partitions: in all that are assigned."""
        for partition in partitions or self.assignment():
            self._reader.positions.seek(partition, BEGINNING)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on with what is written from now on. Without partitions: in all that are assigned."""
        for partition in partitions or self.assignment():
            self._reader.positions.seek(partition, END)

    def take_back(self) -> None:
        """Go back to before the records that were handed out and not committed: they are handed out again."""
        self._reader.positions.take_back()

    def ends(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last."""
        return self._reader.native.ends(partition)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions for now; the consumer keeps them."""
        self._reader.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again. Without arguments: of all that are paused."""
        self._reader.resume(partitions or self.paused())

    def group_metadata(self) -> Any:
        """What a transaction of another client library needs to know of the group."""
        return self._reader.native.group_metadata()

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Leave the group and end; what was handed out and is done with is committed before, if commits are automatic.

        Brokers that do not answer within `timeout` seconds (30, as in Java) are left without their answer; None waits.

        Records in hand do not count, those that were handed out last: only asking for the next ones says that they are
        done with, or `done()`, or `commit()`. Closing twice does nothing.
        """
        with added_to(passing_error()):
            self._reader.close(timeout)


def as_offsets(
    partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, int | None]:
    """Partitions with or without offsets, as a mapping."""
    pairs = partitions.items() if hasattr(partitions, "items") else ((partition, None) for partition in partitions)
    return {TopicPartition(*partition): offset for partition, offset in pairs}


def to_commit(offsets: Offsets) -> Mapping[TopicPartition, int] | None:
    """What is committed for a record: the offset after it."""
    if isinstance(offsets, ConsumerRecord):
        return {offsets.topic_partition: offsets.offset + 1}
    return offsets


def _commit_callback(callback: CommitCallback, group_id: str | None) -> Any:
    def on_commit(error: Any, partitions: list[Any]) -> None:
        offsets = {TopicPartition(p.topic, p.partition): p.offset for p in partitions}
        try:
            callback(offsets, None if error is None else translated(error, "commit", read_from(None, group_id)))
        except Exception:  # raised into librdkafka, it would cost the records that are on their way
            log.exception("The callback on_commit of the consumer failed.")

    return on_commit


def _heartbeats(found: Mapping[str, Any]) -> dict[str, int]:
    """Three heartbeats in a session, as by default: with one, as librdkafka has it, a short session ends by itself."""
    session = int(found.get("session.timeout.ms", 0))
    return {"heartbeat.interval.ms": max(1, session // 3)} if 0 < session < MOST_HEARTBEAT_MS * 3 else {}


def _poll_every(found: Mapping[str, Any]) -> float:
    """Often enough for automatic commits, and for the group not to remove the member."""
    interval = int(found.get("auto.commit.interval.ms", 5_000)) / 2000
    removal = int(found.get("max.poll.interval.ms", 300_000)) / 4000
    return min(POLL_SECONDS, interval, removal)
