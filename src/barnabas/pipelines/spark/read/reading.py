"""Reads ranges of partitions as Arrow batches: what a task does, whether Spark's source runs it or a load.

A task reads one range after the other over the same consumer: to open one, to find the brokers and to log in takes
20 ms and more, as long as to read thousands of records. A worker of Spark keeps it for its next task, unless anything
went wrong.

A range is finished at the first record at or past its end, or when the partition's end, which lies at or past it, was
reached: offsets without a record (transaction markers, aborted transactions, what compaction removed) never hang it.

librdkafka is set up for a reader that is faster than the network: it fetches again after 5 ms when its queue was full,
where its default of one second starves us (87,000 records/s against 395,000). A fetch at the end of a partition waits
for 5 ms at most: there is one under way at each broker, and that of the next range waits behind it. The queue and the
batches are small, as they only bridge moments: with 48 MB in the queue and 16 MB in a batch, two readers and the JVM
behind them took 440 MB more and were no faster.
"""

from __future__ import annotations

import gc
import json
import logging
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from barnabas.clients.closed import left_in_parent, watch_forks
from barnabas.clients.config import open_client
from barnabas.clients.errors import translated
from barnabas.clients.library import load_kafka
from barnabas.clients.logins import LoginErrors
from barnabas.model.permissions import read_from
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.errors import DataLost, ReadStalled
from barnabas.pipelines.spark.client_properties import without_api_timeout
from barnabas.pipelines.spark.read.rows import record_schema, to_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    import pyarrow as pa

    from barnabas.pipelines.spark.read.offsets import OffsetRange

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 2 << 20
"""A batch is handed out when it has so many rows, or about so many bytes of values."""
FIRST_CHUNK: Final = 500
LARGEST_CHUNK: Final = 10_000
"""How many records are taken from librdkafka at a time: few until their size is known."""
WAIT_SECONDS: Final = 0.05
"""librdkafka waits the whole of it when there are fewer records than were asked for."""
STALL_SECONDS: Final = 60.0
"""How long a partition may give nothing before its end; a broker may be restarted in that time."""
MEASURE_MS: Final = 15_000
"""How often librdkafka tells how far it has fetched: it may take minutes to pass over an aborted transaction."""
SHORT_SECONDS: Final = 10.0
"""How long a partition may say that it ends before the range does, and how long one may be missing whose loss would
only be logged: a broker that comes back, and a new leader, need a moment to know better.
"""
GONE_SECONDS: Final = 2.0
"""How long a partition may be missing before that is an error. It is shorter, since nothing is lost by an error."""
LOOK_SECONDS: Final = 1.0
"""After how long without a record it is asked whether the partition is there. librdkafka says nothing of one that it
has never seen for half a minute, and may never say it of one that it has.
"""
LOOK_TIMEOUT: Final = 3.0
"""How long that question may take: records may come meanwhile."""
KEEP_SECONDS: Final = 30.0
"""How long a consumer is kept between two tasks; Spark ends a worker that had none for a minute."""
RETRY_SECONDS: Final = 0.2
ASK_SECONDS: Final = 10.0

log = logging.getLogger("barnabas.pipelines")

TUNING: Final[Mapping[str, object]] = {
    "group.id": "barnabas-pipelines",
    "check.crcs": True,
    "fetch.queue.backoff.ms": 5,
    "queued.max.messages.kbytes": 8 << 10,
    "queued.min.messages": 10_000,
    "fetch.message.max.bytes": 1 << 20,
    "reconnect.backoff.max.ms": 1_000,
}
"""What a reader sets unless it was told otherwise. It joins no group: its partition is assigned."""
DECIDED: Final[Mapping[str, object]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 5,
}
"""What a reader sets whatever it was told: with any other `auto.offset.reset` it would jump over what was removed, and
nobody would know.
"""


def reader_properties(given: Mapping[str, object]) -> dict[str, object]:
    """Properties of clients without those that a reader decides; a file of them may be meant for other readers too."""
    for name in given.keys() & DECIDED.keys():
        log.warning("The property %s has no effect: a load sets it itself.", name)
    return {name: value for name, value in given.items() if name not in DECIDED}


def read_ranges(
    ranges: Iterable[OffsetRange],
    config: Mapping[str, object],
    *,
    batch_rows: int = BATCH_ROWS,
    columns: Collection[str] | None = None,
    include_headers: bool = False,
    fail_on_data_loss: bool = True,
    keep_consumer: bool = False,
) -> Iterator[tuple[OffsetRange, Iterator[pa.RecordBatch]]]:
    """Each range with its records, in order, with the columns of `rows.record_schema`, or those of them that are named.

    The records of a range have to be taken before the next range is. Without `fail_on_data_loss` a range whose records
    are gone gives those that are left. With `keep_consumer` the next call in this process with the same `config` uses
    the same consumer, if it comes soon and this one comes to its end. Raises DataLost, ReadStalled, and what librdkafka
    says (`barnabas.clients.errors`).
    """
    schema = record_schema(include_headers=include_headers, columns=columns)
    with _taken_consumer(config) if keep_consumer else _RangeConsumer(config) as consumer:
        for wanted in ranges:
            if wanted.size:
                reader = _RangeReader(wanted, consumer, fail_on_data_loss=fail_on_data_loss)
                yield wanted, _record_batches(reader, batch_rows, schema)


def _record_batches(reader: _RangeReader, batch_rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    found = reader.batches(batch_rows)
    while True:
        with _collector_at_rest():
            messages = next(found, None)
            batch = None if messages is None else to_batch(messages, schema)
            messages = None
        if batch is None:
            return
        yield batch


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Python's collector looks through all messages of a batch again and again, and none is in a cycle: a third of the
    time would be its.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_away(error: Any) -> bool:
    """Whether no broker could be reached, which may pass."""
    return error.code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN, error._RESOLVE, error._TIMED_OUT)


def _is_unknown(error: Any) -> bool:
    """Whether a topic or partition is said not to be there, which has to be asked of a broker."""
    return error.code() in (error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION, error.UNKNOWN_TOPIC_OR_PART)


class _RangeConsumer:
    """A consumer that ranges are read with one by one; opened for the first of them."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self.kafka = load_kafka()
        self.logins = LoginErrors()
        self.on_statistics: Callable[[str], None] = _ignore
        self._config = config
        self._opened: Any = None
        self.gone: set[str] = set()
        """Topics that were missing for so long that a range of theirs was left out."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; closing twice does nothing."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None  # it knows us by its callbacks, and would live on in a worker that is used again

    def forked(self) -> None:
        """Open another one in a child of this process, if it is needed there."""
        if self._opened is not None:
            left_in_parent("the consumer", self._opened)
            self._opened = None

    def rest(self) -> None:
        """Fetch nothing until the next range; what was found out about topics may be wrong by then."""
        if self._opened is not None:
            self._opened.unassign()
        self.gone.clear()
        self.on_statistics = _ignore

    @property
    def client(self) -> Any:
        """librdkafka's."""
        if self._opened is None:
            own = {"error_cb": self.logins, "stats_cb": self._measure, "statistics.interval.ms": MEASURE_MS}
            found = {**TUNING, **without_api_timeout(self._config), **DECIDED, **own}
            self._opened = open_client(self.kafka, "Consumer", found)
            watch_forks(self)
        return self._opened

    def _measure(self, statistics: str) -> None:
        self.on_statistics(statistics)


def _ignore(_: str) -> None:
    """Nobody reads."""


class _Kept(NamedTuple):
    """A consumer that waits for the next task."""

    consumer: _RangeConsumer
    config: dict[str, object]
    since: float


_kept: list[_Kept] = []
"""At most one: a worker runs one task at a time, and mostly of one query."""


@contextmanager
def _taken_consumer(config: Mapping[str, object]) -> Iterator[_RangeConsumer]:
    """The consumer that was kept, or a new one; kept for the next task if the block ends well."""
    kept = _kept.pop() if _kept else None
    if kept is not None and (kept.config != config or time.monotonic() - kept.since > KEEP_SECONDS):
        kept.consumer.close()
        kept = None
    with ExitStack() as stack:
        consumer = stack.enter_context(_RangeConsumer(config) if kept is None else kept.consumer)
        yield consumer
        consumer.rest()
        stack.pop_all()
        _kept.append(_Kept(consumer, dict(config), time.monotonic()))


class _RangeReader:
    """One range, read from its start to its end."""

    def __init__(self, wanted: OffsetRange, consumer: _RangeConsumer, *, fail_on_data_loss: bool) -> None:
        self._kafka = consumer.kafka
        self._range = wanted
        self._action = read_from(wanted.topic, None)
        self._place = tuple(wanted.place)
        self._fail = fail_on_data_loss
        self._finished = False
        self._next = wanted.start
        self._short_since: float | None = None
        self._missing_since: float | None = None
        self._reassigns = False
        """Whether librdkafka has given the partition up, so that it has to be told again that it is there."""
        self._logins = consumer.logins
        self._alive = time.monotonic()
        self._next_look = self._alive + (0.0 if wanted.topic in consumer.gone else LOOK_SECONDS)
        self._fetched = wanted.start
        self._shared = consumer

    def batches(self, batch_rows: int) -> Iterator[list[Any]]:
        """Messages in lists that are bounded by number and by size."""
        self._shared.on_statistics = self._measure
        self._go_to(self._next)
        messages: list[Any] = []
        size, chunk = 0, min(FIRST_CHUNK, batch_rows)
        while not self._finished:
            left = self._range.end - self._next
            arrived = self._visible(self._shared.client.consume(min(chunk, left), WAIT_SECONDS))
            if not arrived:
                self._watch()
                continue
            self._alive, self._short_since, self._missing_since = time.monotonic(), None, None
            self._next_look, self._reassigns = self._alive + LOOK_SECONDS, False
            self._logins.forget()
            messages += arrived
            size += sum(map(len, arrived))
            chunk = max(1, min(LARGEST_CHUNK, batch_rows, BATCH_BYTES // 4 * len(messages) // max(1, size)))
            if len(messages) >= batch_rows or size >= BATCH_BYTES:
                yield messages
                messages, size = [], 0
        if messages:
            yield messages

    def _visible(self, arrived: list[Any]) -> list[Any]:
        """The records of the range among what arrived; sees its end, and what went wrong."""
        end, found = self._range.end, []
        arrived = self._of_range(arrived)
        if arrived and not any(map(type(arrived[0]).error, arrived)):
            first, last = arrived[0].offset(), arrived[-1].offset()
            if self._next <= first <= last - len(arrived) + 1 and last < end:  # the usual case, without a loop
                self._next = last + 1
                self._finished = self._next >= end
                return arrived
        for message in arrived:
            if message.error() is not None:
                self._notice(message)
            elif message.offset() >= end:
                self._finished = True
            elif message.offset() >= self._next:
                found.append(message)
                self._next = message.offset() + 1
        self._finished = self._finished or self._next >= end
        return found

    def _of_range(self, arrived: list[Any]) -> list[Any]:
        """What arrived, without what is left of the range before, which the same consumer has read."""
        if not arrived:
            return arrived
        kind, (topic, partition) = type(arrived[0]), self._place
        if {*map(kind.partition, arrived)} == {partition} and {*map(kind.topic, arrived)} == {topic}:
            return arrived
        return [each for each in arrived if each.topic() is None or (each.topic(), each.partition()) == self._place]

    def _notice(self, message: Any) -> None:
        error = message.error()
        if error.code() == error._PARTITION_EOF:
            if message.offset() >= self._range.end:
                self._finished = True
            else:
                self._short_since = self._short_since or time.monotonic()
        elif error.code() in (error._AUTO_OFFSET_RESET, error.OFFSET_OUT_OF_RANGE):
            self._step_over()
        elif _is_unknown(error):
            self._reassigns = True
        elif error.code() != error.GROUP_AUTHORIZATION_FAILED and not _is_away(error):  # no group is joined
            raise translated(error, f"read {self._range}", self._action)

    def _measure(self, statistics: str) -> None:
        """Whether librdkafka has fetched anything since, be it records that nobody will see."""
        partitions = json.loads(statistics)["topics"].get(self._range.topic, {}).get("partitions", {})
        fetched = partitions.get(str(self._range.partition), {}).get("next_offset", self._fetched)
        if fetched > self._fetched:
            self._fetched, self._alive = fetched, time.monotonic()

    def _watch(self) -> None:
        """Nothing arrived: that may go on for a while, and not for ever."""
        now, alive = time.monotonic(), self._alive
        if now >= self._next_look:
            self._look_for_partition()
            now = time.monotonic()
        if self._finished:
            return
        if self._short_since is not None and now - self._short_since > SHORT_SECONDS:
            self._lost(
                f"{self._range.place} ends at offset {self._next} or before the end of {self._range}: the topic was "
                "created again or its log was truncated"
            )
            self._finished = True
        elif self._logins.failure is not None and now - alive > SHORT_SECONDS:
            raise self._logins.failure
        elif now - alive > STALL_SECONDS:
            raise ReadStalled(
                f"{self._range.place} gave nothing for {STALL_SECONDS:g} s, and offset {self._range.end} was not "
                "reached: is the broker that leads it running, and reachable from here?"
            )

    def _look_for_partition(self) -> None:
        """Nothing came for a while: ask whether the partition is there, and give it up once it is missing for long."""
        there = self._is_there()
        now = time.monotonic()
        self._next_look = now + LOOK_SECONDS
        if there is None:
            return
        if there:
            self._missing_since = None
            if self._reassigns:
                self._reassigns = False
                self._go_to(self._next)
            return
        self._reassigns = True
        self._next_look = now + RETRY_SECONDS
        self._missing_since = self._missing_since or now
        if now - self._missing_since >= self._patience:
            self._lost(
                f"{self._range.place} is not there any more; records from offset {self._next} on were to be read"
            )
            self._shared.gone.add(self._range.topic)
            self._finished = True

    @property
    def _patience(self) -> float:
        """How long the partition may be missing."""
        if self._range.topic in self._shared.gone:
            return 0.0
        return GONE_SECONDS if self._fail else SHORT_SECONDS

    def _is_there(self) -> bool | None:
        """Whether a broker knows the partition; None if none could be asked, or is about to know better."""
        try:
            topics = self._shared.client.list_topics(self._range.topic, LOOK_TIMEOUT).topics
        except self._kafka.KafkaException as error:
            if not _is_away(error.args[0]):
                raise translated(error.args[0], f"ask for {self._range.place}", self._action) from error
            return None
        topic = topics[self._range.topic]
        if self._range.partition in topic.partitions:
            return True
        if topic.error is None or topic.error.code() == topic.error.UNKNOWN_TOPIC_OR_PART:
            return False
        if topic.error.code() != topic.error.LEADER_NOT_AVAILABLE:
            raise translated(topic.error, f"ask for {self._range.place}", self._action)
        return None

    def _step_over(self) -> None:
        """The next offset is not there: go on with the first one that is. An end before it is asked for again."""
        ends = self._ends()
        if ends is None or self._next > ends[1]:
            if ends is not None:
                self._short_since = self._short_since or time.monotonic()
            time.sleep(RETRY_SECONDS)
            self._go_to(self._next)
            return
        first, _ = ends
        if self._next < first:
            self._lost(f"{self._range.place} begins at offset {first} now: {self._next} to {first - 1} were removed")
            self._next = first
        self._finished = self._next >= self._range.end
        if not self._finished:
            self._go_to(self._next)

    def _ends(self) -> tuple[int, int] | None:
        """Where the partition begins and ends; None if no broker could be asked, or knew it, which may pass."""
        partition = self._kafka.TopicPartition(*self._range.place)
        try:
            first, last = self._shared.client.get_watermark_offsets(partition, ASK_SECONDS)
        except self._kafka.KafkaException as error:
            if _is_away(error.args[0]) or _is_unknown(error.args[0]):
                return None
            raise translated(error.args[0], f"ask where {self._range.place} begins", self._action) from error
        return first, last

    def _lost(self, what: str) -> None:
        if self._fail:
            raise DataLost(what).with_remedy(Remedy(RemedyKind.ALLOW_DATA_LOSS))
        log.warning("%s. Reading goes on without these records.", what)

    def _go_to(self, offset: int) -> None:
        self._shared.client.assign([self._kafka.TopicPartition(*self._range.place, offset)])
