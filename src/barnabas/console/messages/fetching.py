"""Records as a log has them, with what clients hide: batches, producers, transactions and the markers that end them.

A log is fetched as any reader does it, without committed data only: what an open or aborted transaction wrote is shown
as such. Which transactions were aborted is asked for a second time, in the way of readers of committed data, where a
stretch of a log has transactions at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.model.base_error import BarnabasError
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.numbers import MAX_INT64
from barnabas.protocol.list_offsets import EARLIEST, LATEST
from barnabas.protocol.records.batch import HEADER_SIZE, LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC, read_header
from barnabas.protocol.records.compression import Codec, decompress
from barnabas.protocol.records.control import ControlType, control_type
from barnabas.protocol.records.records import read_records_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.wire.connection import Node
    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.protocol.records.records import Header

FETCH_BYTES: Final = 1 << 20
MOST_UNPACKED: Final = 256 << 20
MOST_RECORDS: Final = 50_000
"""Records of one stretch: a few hundred kilobytes may be a million records, which nobody could stop to be read."""
MOST_OF_BATCH: Final = 2_000_000
"""Records of a batch that is opened; librdkafka puts a million into one at most."""
RETRY_SECONDS: Final = 0.1
LEADER_SECONDS: Final = 10.0
"""How long a new leader is waited for."""
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
"""What became of a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRecord:
    """One record of a log."""

    partition: int
    offset: int
    timestamp: int
    appended: bool
    """Whether the timestamp is the broker's."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    batch: BatchHeader
    transaction: str | None
    control: ControlType | None = None
    damage: str | None = None
    """Why the records of its batch, from here on, cannot be read; then this stands for all of them."""

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")

    @property
    def codec(self) -> str:
        """How its batch is compressed."""
        number = self.batch.codec
        return Codec(number).name.lower() if number < len(Codec) else str(number)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a fetch brought of one partition."""

    records: list[LoggedRecord]
    next_offset: int
    """Where to go on; the offset that was asked for if nothing came."""
    end: int


class Leaders:
    """Who leads the partitions of a topic; asked for again when that changes."""

    def __init__(self, cluster: ClusterAdmin, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._nodes: dict[int, Node] = {}

    def of(self, partition: int) -> Node:
        """The leader of a partition; waits for one, and for a broker that knows it. Raises BarnabasError."""
        deadline = time.monotonic() + LEADER_SECONDS
        while partition not in self._nodes:
            try:
                found = self._cluster.offsets.leaders([self._topic])
            except BrokerUnreachable:
                if time.monotonic() > deadline:
                    raise
                found = {}
            self._nodes = {place.partition: node for place, node in found.items() if node is not None}
            if partition not in self._nodes and time.monotonic() > deadline:
                raise RequestRefused(
                    ErrorCode.leader_not_available, f"partition {partition} of {self._topic} has no leader"
                )
            if partition not in self._nodes:
                time.sleep(RETRY_SECONDS)
        return self._nodes[partition]

    def forget(self) -> None:
        """Something has changed."""
        self._nodes = {}


def fetch(
    cluster: ClusterAdmin,
    leaders: Leaders,
    topic: str,
    partition: int,
    offset: int,
    *,
    end: int = MAX_INT64,
    most_bytes: int = FETCH_BYTES,
) -> Stretch:
    """The records of a partition from an offset on, before `end`: those of one answer. Raises BarnabasError.

    Where the leader is gone, the next one is asked.
    """
    deadline = time.monotonic() + LEADER_SECONDS
    while True:
        node = leaders.of(partition)
        try:
            found = _ask(cluster, node, topic, {partition: offset}, most_bytes, committed=False)[partition]
            if found.error_code == ErrorCode.none:
                stretch = _stretch(partition, offset, found, end)
                whole = _with_outcomes(cluster, node, topic, {partition: (offset, stretch)}, most_bytes)
                if partition in whole:
                    return whole[partition]
            if found.error_code == ErrorCode.offset_out_of_range:
                return _moved_on(cluster, topic, partition, offset)
        except BrokerUnreachable:
            if time.monotonic() > deadline:
                raise
        else:
            if not found.error_code.retriable or time.monotonic() > deadline:
                raise _refusal(found, topic, partition, offset)
        leaders.forget()
        time.sleep(RETRY_SECONDS)


def fetch_new(cluster: ClusterAdmin, leaders: Leaders, topic: str, offsets: Mapping[int, int]) -> dict[int, Stretch]:
    """What lies behind several offsets now, with one question to each leader: for those who follow a topic.

    Partitions whose leader is gone are left out, until they have another. Raises BarnabasError if no broker answers.
    """
    by_leader: dict[Node, dict[int, int]] = {}
    for partition, offset in offsets.items():
        by_leader.setdefault(leaders.of(partition), {})[partition] = offset
    found: dict[int, Stretch] = {}
    for node, some in by_leader.items():
        try:
            found |= _fetch_new_from(cluster, node, leaders, topic, some)
        except BrokerUnreachable:
            leaders.forget()
    return found


def _fetch_new_from(
    cluster: ClusterAdmin, node: Node, leaders: Leaders, topic: str, offsets: Mapping[int, int]
) -> dict[int, Stretch]:
    found: dict[int, Stretch] = {}
    read: dict[int, tuple[int, Stretch]] = {}
    for partition, answer in _ask(cluster, node, topic, offsets, FETCH_BYTES, committed=False).items():
        offset = offsets[partition]
        if answer.error_code == ErrorCode.none:
            read[partition] = offset, _stretch(partition, offset, answer)
        elif answer.error_code == ErrorCode.offset_out_of_range:
            found[partition] = _moved_on(cluster, topic, partition, offset)
        elif answer.error_code.retriable:
            leaders.forget()
        else:
            raise _refusal(answer, topic, partition, offset)
    return found | _with_outcomes(cluster, node, topic, read, FETCH_BYTES)


def _refusal(answer: Any, topic: str, partition: int, offset: int) -> RequestRefused:
    code = answer.error_code
    return RequestRefused(code, f"{topic}-{partition} from offset {offset}: {code.name.upper()}")


def _moved_on(cluster: ClusterAdmin, topic: str, partition: int, offset: int) -> Stretch:
    """Nothing, and where to go on: what lay at an offset was deleted since it was asked for, or was never there."""
    place = TopicPartition(topic, partition)
    start, end = (cluster.offsets.at([place], when)[place] for when in (EARLIEST, LATEST))
    return Stretch([], min(max(offset, start), end), end)


def _ask(
    cluster: ClusterAdmin, node: Node, topic: str, offsets: Mapping[int, int], most_bytes: int, *, committed: bool
) -> dict[int, Any]:
    request = FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(0)),
        min_bytes=i32(0),
        max_bytes=i32(most_bytes),
        isolation_level=i8(int(committed)),
        topics=(
            FetchTopic(
                topic=TopicName(topic),
                partitions=tuple(
                    FetchPartition(partition=i32(number), fetch_offset=i64(offset), partition_max_bytes=i32(most_bytes))
                    for number, offset in offsets.items()
                ),
            ),
        ),
        forgotten_topics_data=(),
    )
    answer = cluster.wire.ask(request, at=node, at_least=4)
    if answer.error_code != ErrorCode.none:
        raise RequestRefused(answer.error_code, f"{topic}: {answer.error_code.name.upper()}")
    found = {one.partition_index: one for each in answer.responses for one in each.partitions}
    return {number: found[number] for number in offsets if number in found}


def _stretch(partition: int, offset: int, answer: Any, end: int = MAX_INT64) -> Stretch:
    records: list[LoggedRecord] = []
    next_offset = offset
    stable = answer.last_stable_offset
    for header, payload in batches(b"" if answer.records is None else bytes(answer.records)):
        if header.last_offset < offset:
            continue
        if header.base_offset >= end:
            break
        for each in _open(partition, header, payload, stable, offset):
            if each.offset >= end or len(records) >= MOST_RECORDS:
                return Stretch(records, min(each.offset, end), answer.high_watermark)
            records.append(each)
        next_offset = header.last_offset + 1
    return Stretch(records, next_offset, answer.high_watermark)


def batches(data: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches in an answer; the last may be cut off, and is left out."""
    view, position = memoryview(data), 0
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        end = position + LOG_OVERHEAD + header.batch_length
        if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or end > len(view):
            return
        yield header, view[position + HEADER_SIZE : end]
        position = end


def _open(partition: int, header: BatchHeader, payload: memoryview, stable: int, first: int) -> Iterator[LoggedRecord]:
    """The records of a batch from an offset on."""
    transaction = None
    if header.is_transactional and not header.is_control:
        transaction = COMMITTED if stable < 0 or header.base_offset < stable else OPEN
    appended = bool(header.attributes & LOG_APPEND_TIME)
    blank = LoggedRecord(
        partition=partition,
        offset=max(header.base_offset, first),
        timestamp=header.max_timestamp,
        appended=appended,
        key=None,
        value=None,
        headers=(),
        batch=header,
        transaction=transaction,
    )
    if header.magic != MAGIC:
        yield replace(blank, damage=f"its batch has the old format {header.magic}")
        return
    if header.record_count > MOST_OF_BATCH:
        yield replace(blank, damage=f"its batch has {header.record_count:,} records, more than are looked into here")
        return
    next_offset = max(header.base_offset, first)
    try:
        unpacked = decompress(header.codec, payload, MOST_UNPACKED)
        for record in read_records_from(unpacked, header.record_count, first - header.base_offset):
            offset = header.base_offset + record.offset_delta
            next_offset = offset + 1
            yield LoggedRecord(
                partition=partition,
                offset=offset,
                timestamp=header.max_timestamp if appended else header.base_timestamp + record.timestamp_delta,
                appended=appended,
                key=record.key,
                value=record.value,
                headers=record.headers,
                batch=header,
                transaction=transaction,
                control=_control(record.key) if header.is_control else None,
            )
    except (BarnabasError, MemoryError) as error:
        yield replace(blank, offset=next_offset, damage=str(error))


def _control(key: bytes | None) -> ControlType:
    try:
        return control_type(key)
    except BarnabasError:
        return ControlType.UNKNOWN


def _with_outcomes(
    cluster: ClusterAdmin, node: Node, topic: str, read: Mapping[int, tuple[int, Stretch]], most_bytes: int
) -> dict[int, Stretch]:
    """What was read from some offsets, with records of aborted transactions marked: those are told of separately.

    What is read while the leader changes is left out: it has to be asked for again.
    """
    found = {partition: stretch for partition, (_, stretch) in read.items()}
    unsure = {
        partition: offset
        for partition, (offset, stretch) in read.items()
        if any(record.transaction is not None for record in stretch.records)
    }
    if unsure:
        for partition, answer in _ask(cluster, node, topic, unsure, most_bytes, committed=True).items():
            stretch = found.pop(partition)
            if answer.error_code == ErrorCode.none:
                found[partition] = replace(stretch, records=_marked(stretch.records, answer))
    return found


def _marked(records: Sequence[LoggedRecord], answer: Any) -> list[LoggedRecord]:
    aborted = sorted(((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ()), reverse=True)
    ongoing: set[int] = set()
    found = []
    for record in records:
        while aborted and aborted[-1][0] <= record.offset:
            ongoing.add(aborted.pop()[1])
        if record.control is ControlType.ABORT:
            ongoing.discard(record.batch.producer_id)
        if record.transaction == COMMITTED and record.batch.producer_id in ongoing:
            record = replace(record, transaction=ABORTED)
        found.append(record)
    return found
