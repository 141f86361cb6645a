"""Reads a range of a partition as Arrow batches: what a task does, whether Spark's source runs it or a load.

A range is finished at the first record at or past its end, or when the partition's end, which lies at or past it, was
reached: offsets without a record (transaction markers, aborted transactions, what compaction removed) never hang it.

librdkafka is set up for a reader that is faster than the network: it fetches again after 5 ms when its queue was full,
where its default of one second starves us (87,000 records/s against 395,000). The queue and the batches are small, as
they only bridge moments: with 48 MB in the queue and 16 MB in a batch, two readers and the JVM behind them took 440 MB
more and were no faster.
"""

from __future__ import annotations

import gc
import json
import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.config import open_client
from barnabas.clients.errors import translated
from barnabas.clients.library import load_kafka
from barnabas.clients.logins import LoginErrors
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.errors import DataLost, ReadStalled
from barnabas.pipelines.spark.client_properties import without_api_timeout
from barnabas.pipelines.spark.read.rows import record_schema, to_batch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

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
"""How long a partition may be unknown, or say that it ends before the range does: a broker that comes back, and a new
leader, need a moment to know better.
"""
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
}
"""What a reader sets unless it was told otherwise. It joins no group: its partition is assigned."""
DECIDED: Final[Mapping[str, object]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
}
"""What a reader sets whatever it was told: with any other `auto.offset.reset` it would jump over what was removed, and
nobody would know.
"""


def reader_properties(given: Mapping[str, object]) -> dict[str, object]:
    """Properties of clients without those that a reader decides; a file of them may be meant for other readers too."""
    for name in given.keys() & DECIDED.keys():
        log.warning("The property %s has no effect: a load sets it itself.", name)
    return {name: value for name, value in given.items() if name not in DECIDED}


def read_range(
    wanted: OffsetRange,
    config: Mapping[str, object],
    *,
    batch_rows: int = BATCH_ROWS,
    columns: Collection[str] | None = None,
    include_headers: bool = False,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order, with the columns of `rows.record_schema`, or those of them that are named.

    Without `fail_on_data_loss` a range whose records are gone gives those that are left. Raises DataLost, ReadStalled,
    and what librdkafka says (`barnabas.clients.errors`).
    """
    if not wanted.size:
        return
    schema = record_schema(include_headers=include_headers, columns=columns)
    reader = _RangeReader(wanted, config, fail_on_data_loss=fail_on_data_loss)
    found = reader.batches(batch_rows)
    try:
        while True:
            with _collector_at_rest():
                messages = next(found, None)
                batch = None if messages is None else to_batch(messages, schema)
                messages = None
            if batch is None:
                return
            yield batch
    finally:
        reader.close()


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


class _RangeReader:
    """One consumer on one partition, from the start of a range to its end."""

    def __init__(self, wanted: OffsetRange, config: Mapping[str, object], *, fail_on_data_loss: bool) -> None:
        self._kafka = load_kafka()
        self._range = wanted
        self._fail = fail_on_data_loss
        self._finished = False
        self._next = wanted.start
        self._short_since: float | None = None
        self._unknown_since: float | None = None
        self._logins = LoginErrors()
        self._alive = time.monotonic()
        self._fetched = wanted.start
        own = {"error_cb": self._logins, "stats_cb": self._measure, "statistics.interval.ms": MEASURE_MS}
        found = {**TUNING, **without_api_timeout(config), **DECIDED, **own}
        self._consumer = open_client(self._kafka, "Consumer", found)
        self._go_to(wanted.start)

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()
        del self._consumer  # it knows us by `_measure`, and would live on in a worker that is used again

    def batches(self, batch_rows: int) -> Iterator[list[Any]]:
        """Messages in lists that are bounded by number and by size."""
        messages: list[Any] = []
        size, chunk = 0, min(FIRST_CHUNK, batch_rows)
        while not self._finished:
            arrived = self._visible(self._consumer.consume(chunk, WAIT_SECONDS))
            if not arrived:
                self._watch()
                continue
            self._alive, self._short_since, self._unknown_since = time.monotonic(), None, None
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
        end = self._range.end
        if arrived and not any(map(type(arrived[0]).error, arrived)) and arrived[-1].offset() < end:
            self._next = arrived[-1].offset() + 1
            self._finished = self._next >= end
            return arrived
        found = []
        for message in arrived:
            if message.error() is not None:
                self._notice(message)
            elif message.offset() < end:
                found.append(message)
                self._next = message.offset() + 1
            else:
                self._finished = True
        self._finished = self._finished or self._next >= end
        return found

    def _notice(self, message: Any) -> None:
        error = message.error()
        if error.code() == error._PARTITION_EOF:
            if message.offset() >= self._range.end:
                self._finished = True
            else:
                self._short_since = self._short_since or time.monotonic()
        elif error.code() in (error._AUTO_OFFSET_RESET, error.OFFSET_OUT_OF_RANGE):
            self._step_over()
        elif error.code() in (error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION, error.UNKNOWN_TOPIC_OR_PART):
            self._unknown_since = self._unknown_since or time.monotonic()
        elif error.code() != error.GROUP_AUTHORIZATION_FAILED and not _is_away(error):  # no group is joined
            raise translated(error, f"read {self._range}")

    def _measure(self, statistics: str) -> None:
        """Whether librdkafka has fetched anything since, be it records that nobody will see."""
        partitions = json.loads(statistics)["topics"].get(self._range.topic, {}).get("partitions", {})
        fetched = partitions.get(str(self._range.partition), {}).get("next_offset", self._fetched)
        if fetched > self._fetched:
            self._fetched, self._alive = fetched, time.monotonic()

    def _watch(self) -> None:
        """Nothing arrived: that may go on for a while, and not for ever."""
        now, alive = time.monotonic(), self._alive
        if self._unknown_since is not None and now - self._unknown_since > SHORT_SECONDS:
            self._look_for_partition()
        elif self._short_since is not None and now - self._short_since > SHORT_SECONDS:
            self._lost(
                f"{self._range.place} ends at offset {self._next} or before the end of {self._range}: the topic was "
                "created again or its log was truncated"
            )
            self._finished = True
        elif self._logins.failure is not None and now - alive > SHORT_SECONDS:
            raise self._logins.failure
        elif not self._finished and now - alive > STALL_SECONDS:
            raise ReadStalled(
                f"{self._range.place} gave nothing for {STALL_SECONDS:g} s, and offset {self._range.end} was not "
                "reached: is the broker that leads it running, and reachable from here?"
            )

    def _look_for_partition(self) -> None:
        """The partition was said to be unknown, and nothing came since: ask whether it is there."""
        self._unknown_since = None
        try:
            topics = self._consumer.list_topics(self._range.topic, ASK_SECONDS).topics
        except self._kafka.KafkaException as error:
            if not _is_away(error.args[0]):
                raise translated(error.args[0], f"ask for {self._range.place}") from error
            self._unknown_since = time.monotonic()  # asked again later, until nothing came for too long
            return
        topic = topics[self._range.topic]
        if self._range.partition in topic.partitions:
            self._go_to(self._next)
            return
        if topic.error is not None and topic.error.code() != topic.error.UNKNOWN_TOPIC_OR_PART:
            if topic.error.code() != topic.error.LEADER_NOT_AVAILABLE:
                raise translated(topic.error, f"ask for {self._range.place}")
            self._unknown_since = time.monotonic()
            return
        self._lost(f"{self._range.place} is not there any more; records from offset {self._next} on were to be read")
        self._finished = True

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
        """Where the partition begins and ends; None if no broker could be asked, which may pass."""
        partition = self._kafka.TopicPartition(*self._range.place)
        try:
            first, last = self._consumer.get_watermark_offsets(partition, ASK_SECONDS)
        except self._kafka.KafkaException as error:
            if _is_away(error.args[0]):
                return None
            raise translated(error.args[0], f"ask where {self._range.place} begins") from error
        return first, last

    def _lost(self, what: str) -> None:
        if self._fail:
            raise DataLost(what).with_remedy(Remedy(RemedyKind.ALLOW_DATA_LOSS))
        log.warning("%s. Reading goes on without these records.", what)

    def _go_to(self, offset: int) -> None:
        self._consumer.assign([self._kafka.TopicPartition(*self._range.place, offset)])
