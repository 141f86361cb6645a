"""Prints what is in the files of a log: the engine of `barnabas log dump`.

The lines are those of Kafka's DumpLogSegments, so that scripts which read them go on working; files that Kafka's tool
does not print (checkpoints, epochs, metadata) follow the same style. What does not fit, such as an index that disagrees
with its log, is printed after a file's content.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ApiError, InvalidRecord
from barnabas.protocol.records.batch import (
    CRC_START,
    HAS_DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    read_header,
)
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import CODEC_COUNT, Codec, decompress
from barnabas.protocol.records.control import ControlType, control_type, read_marker
from barnabas.protocol.records.records import Record, read_records
from barnabas.storage.producers.state import SNAPSHOT_ENTRY, SNAPSHOT_VERSION
from barnabas.storage.segments.indexes import OffsetIndex, TimeIndex
from barnabas.storage.segments.txn_index import ENTRY as ABORTED_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")
_SNAPSHOT_CRC_FROM: Final = 6
_DECOMPRESSED_LIMIT: Final = 256 * 1024 * 1024
_CHUNK: Final = 1024 * 1024
_GOING: Final = re.compile(r"(\.cleaned|\.swap|(\.\d+)?\.deleted)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What to print; the names are the flags of Kafka's tool."""

    deep_iteration: bool = False
    """Print the records of each batch."""
    print_data_log: bool = False
    """Print keys and values too; includes deep_iteration."""
    skip_record_metadata: bool = False
    """Print keys and values alone."""
    verify_index_only: bool = False
    """Compare indexes with their log, and print only what disagrees."""
    index_sanity_check: bool = False
    """Print only whether an index would be used as it is at the next start."""
    offsets_decoder: bool = False
    """Print the records of `__consumer_offsets` as what they say; includes print_data_log."""
    transaction_log_decoder: bool = False
    """Print the records of `__transaction_state` as what they say; includes print_data_log."""
    share_group_state_decoder: bool = False
    """Print the records of `__share_group_state` as what they say; includes print_data_log."""
    max_bytes: int | None = None
    """Stop before the batch that goes past so many bytes of a log."""

    @property
    def shows_data(self) -> bool:
        """Whether keys and values are printed."""
        return self.print_data_log or self.decodes

    @property
    def decodes(self) -> bool:
        """Whether keys and values are shown as what they say."""
        return self.offsets_decoder or self.transaction_log_decoder or self.share_group_state_decoder


def dump(path: Path, options: DumpOptions) -> Iterator[str]:
    """The lines for one file; a file of an unknown kind is named and passed over. Raises OSError as open() does."""
    yield f"Dumping {path}"
    name = _GOING.sub("", path.name)
    if name.endswith(".log"):
        yield from _dump_log(path, options)
    elif name.endswith(".index"):
        yield from _dump_offset_index(path, options)
    elif name.endswith(".timeindex"):
        yield from _dump_time_index(path, options)
    elif name.endswith(".txnindex"):
        yield from _dump_aborted(path)
    elif name.endswith(".snapshot"):
        yield from _dump_snapshot(path)
    elif name == "leader-epoch-checkpoint":
        yield from _dump_checkpoint(path, ("epoch", "startOffset"))
    elif name.endswith("-offset-checkpoint"):
        yield from _dump_checkpoint(path, ("topic", "partition", "offset"))
    elif name in ("partition.metadata", "meta.properties"):
        yield from _text(path.read_bytes()).splitlines()
    else:
        yield f"Ignoring unknown file {path}"


def _dump_log(path: Path, options: DumpOptions) -> Iterator[str]:
    start = _base_offset(path)
    if start is not None:
        yield f"Log starting offset: {start}"
    deep = options.deep_iteration or options.shows_data
    jumps: list[tuple[int, int]] = []
    previous: int | None = None
    size = path.stat().st_size
    limit = size if options.max_bytes is None else min(size, options.max_bytes)
    position = 0
    with path.open("rb") as file:
        for position, header in _headers(file, limit):
            yield _batch_line(file, position, header)
            if deep:
                try:
                    for record in _records(file, position, header):
                        offset = header.base_offset + record.offset_delta
                        if previous is not None and offset != previous + 1:
                            jumps.append((previous, offset))
                        previous = offset
                        yield _record_line(header, record, options)
                except ApiError as error:
                    yield f"| the records cannot be read: {error}"
            position += header.size
    if options.max_bytes is None and position < size:
        yield f"Found {size - position} invalid bytes at the end of {path.name}"
    yield from _list_lines(
        f"Non-consecutive offsets in {path.absolute()}",
        (f"  {first} is followed by {second}" for first, second in jumps),
    )


def _batch_line(file: BinaryIO, position: int, header: BatchHeader) -> str:
    file.seek(position + CRC_START)
    crc = 0
    left = header.size - CRC_START
    while left > 0 and (chunk := file.read(min(left, _CHUNK))):
        crc = crc32c(chunk, crc)
        left -= len(chunk)
    horizon = (
        f"OptionalLong[{header.base_timestamp}]" if header.attributes & HAS_DELETE_HORIZON else "OptionalLong.empty"
    )
    codec = Codec(header.codec).name.lower() if header.codec < CODEC_COUNT else str(header.codec)
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_bool(header.is_transactional)} "
        f"isControl: {_bool(header.is_control)} deleteHorizonMs: {horizon} position: {position} "
        f"{_time_type(header)}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {codec} crc: {header.crc} isvalid: {_bool(crc == header.crc)}"
    )


def _record_line(header: BatchHeader, record: Record, options: DumpOptions) -> str:
    words = ["|"]
    if not options.skip_record_metadata:
        time = header.max_timestamp
        if not header.attributes & LOG_APPEND_TIME:
            time = header.base_timestamp + record.timestamp_delta
        sequence = -1
        if header.base_sequence >= 0:
            sequence = (header.base_sequence + record.offset_delta) & 0x7FFFFFFF
        keys = ",".join(key.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for key, _ in record.headers)
        words += [
            f"offset: {header.base_offset + record.offset_delta}",
            f"{_time_type(header)}: {time}",
            f"keySize: {-1 if record.key is None else len(record.key)}",
            f"valueSize: {-1 if record.value is None else len(record.value)}",
            f"sequence: {sequence}",
            f"headerKeys: [{keys}]",
        ]
        if header.is_control:
            words.append(_control_words(record))
    if options.shows_data and not header.is_control:
        words += _data_words(record, options)
    return " ".join(words)


def _data_words(record: Record, options: DumpOptions) -> Iterator[str]:
    decoded = None
    if record.key is not None and options.decodes:
        from barnabas.protocol.coordinator_records.as_json import offsets_record, share_record, transaction_record

        decode = transaction_record if options.transaction_log_decoder else share_record
        decoded = (offsets_record if options.offsets_decoder else decode)(record.key, record.value)
    key, value = decoded or (record.key, record.value)
    if key is not None:
        yield f"key: {_text(key) if isinstance(key, bytes) else key}"
    if value is not None:
        yield f"payload: {_text(value) if isinstance(value, bytes) else value}"


def _control_words(record: Record) -> str:
    kind = control_type(record.key)
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        marker = read_marker(record)
        return f"endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    return f"controlType: {kind.name}({int.from_bytes((record.key or b'')[2:4], 'big', signed=True)})"


def _dump_offset_index(path: Path, options: DumpOptions) -> Iterator[str]:
    if options.index_sanity_check:
        _, last = _ends(path, OffsetIndex.ENTRY)
        yield _sanity(path, OffsetIndex.ENTRY, last[0] >= 0)
        return
    base = _base_offset(path) or 0
    entries = list(_entries(path, OffsetIndex.ENTRY))
    if not entries:
        yield f"{path} is empty."
    mismatches: list[tuple[int, int]] = []
    log = _log_of(path)
    size = log.stat().st_size
    with log.open("rb") as file:
        for relative, position in entries:
            found = next(_headers(file, size, position), None) if position >= 0 else None
            last_offset = found[1].last_offset if found else -1
            if last_offset != base + relative:
                mismatches.append((base + relative, last_offset))
            if not options.verify_index_only:
                yield f"offset: {base + relative} position: {position}"
    yield from _list_lines(
        f"Mismatches in :{path.absolute()}",
        (f"  Index offset: {indexed}, log offset: {found}" for indexed, found in mismatches),
    )


def _dump_time_index(path: Path, options: DumpOptions) -> Iterator[str]:
    if options.index_sanity_check:
        first, last = _ends(path, TimeIndex.ENTRY)
        yield _sanity(path, TimeIndex.ENTRY, last[0] >= first[0] and last[1] >= 0)
        return
    base = _base_offset(path) or 0
    entries = list(_entries(path, TimeIndex.ENTRY))
    wrong: list[str] = []
    unordered: list[str] = []
    missing: list[str] = []
    log = _log_of(path)
    with log.open("rb") as file:
        batches = (header for _, header in _headers(file, log.stat().st_size))
        batch = next(batches, None)
        previous = -1
        for timestamp, relative in entries:
            offset = base + relative
            while batch is not None and batch.last_offset < offset:
                batch = next(batches, None)
            if batch is None or batch.base_offset > offset:
                missing.append(f"Indexed offset: {offset}, found log offset: {batch.last_offset if batch else -1}")
            else:
                if batch.max_timestamp != timestamp:
                    wrong.append(f"  Index timestamp: {timestamp}, log timestamp: {batch.max_timestamp}")
                if previous >= timestamp:
                    unordered.append(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
            previous = timestamp
            if not options.verify_index_only:
                yield f"timestamp: {timestamp} offset: {offset}"
    yield from _list_lines(f"Found timestamp mismatch in :{path.absolute()}", wrong)
    yield from _list_lines(f"Found out of order timestamp in :{path.absolute()}", unordered)
    yield from _list_lines("The following indexed offsets are not found in the log.", missing)


def _dump_aborted(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    whole = len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size
    for version, producer, first, last, stable in ABORTED_ENTRY.iter_unpack(data[:whole]):
        yield (
            f"version: {version} producerId: {producer} "
            f"firstOffset: {first} lastOffset: {last} lastStableOffset: {stable}"
        )
    if whole < len(data):
        yield f"Found {len(data) - whole} invalid bytes at the end of {path.name}"


def _dump_snapshot(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_HEAD.size:
        yield f"Snapshot is corrupt ({len(data)} bytes are too few)"
        return
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    computed = crc32c(memoryview(data)[_SNAPSHOT_CRC_FROM:])
    if version != SNAPSHOT_VERSION:
        yield f"Snapshot contained an unknown file version {version}"
        return
    if crc != computed:
        yield f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}"
        return
    if len(data) != _SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size:
        yield f"Snapshot is corrupt ({count} producers do not take {len(data)} bytes)"
        return
    for entry in SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        producer, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = entry
        transaction = f"OptionalLong[{first_offset}]" if first_offset >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {producer} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
            f"currentTxnFirstOffset: {transaction} lastTimestamp: {timestamp} "
        )
        if last_offset >= 0:
            line += (
                f"firstSequence: {(last_sequence - delta) & 0x7FFFFFFF} lastSequence: {last_sequence} "
                f"lastOffset: {last_offset} offsetDelta: {delta} timestamp: {timestamp}"
            )
        yield line


def _dump_checkpoint(path: Path, columns: tuple[str, ...]) -> Iterator[str]:
    lines = _text(path.read_bytes()).splitlines()
    if not lines:
        yield f"{path} is empty."
        return
    yield f"version: {lines[0]} entries: {lines[1] if len(lines) > 1 else 0}"
    for line in lines[2:]:
        words = line.split(" ")
        if len(words) == len(columns):
            yield " ".join(f"{column}: {word}" for column, word in zip(columns, words, strict=True))
        else:
            yield f"Malformed line: {line}"


def _headers(file: BinaryIO, limit: int, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """The headers of the whole batches from `position` on; ends before the first bytes that are none."""
    while position + HEADER_SIZE <= limit:
        file.seek(position)
        data = file.read(HEADER_SIZE)
        if len(data) < HEADER_SIZE:
            return
        header = read_header(data)
        if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LOG_OVERHEAD or position + header.size > limit:
            return
        yield position, header
        position += header.size


def _records(file: BinaryIO, position: int, header: BatchHeader) -> Iterator[Record]:
    if header.record_count < 0:
        raise InvalidRecord(f"the batch claims {header.record_count} records")
    file.seek(position + HEADER_SIZE)
    payload = file.read(header.size - HEADER_SIZE)
    yield from read_records(decompress(header.codec, payload, _DECOMPRESSED_LIMIT), header.record_count)


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    """The entries of an index up to the first that is all zeros, which a live Kafka fills the file with."""
    with path.open("rb") as file:
        while len(data := file.read(entry.size)) == entry.size:
            first, second = entry.unpack(data)
            if first == second == 0:
                return
            yield first, second


def _ends(path: Path, entry: struct.Struct) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first and the last entry, zeros or not; zeros when there is none."""
    data = path.read_bytes()
    if len(data) < entry.size:
        return (0, 0), (0, 0)
    return entry.unpack_from(data), entry.unpack_from(data, (len(data) // entry.size - 1) * entry.size)


def _sanity(path: Path, entry: struct.Struct, sound: bool) -> str:
    size = path.stat().st_size
    if size % entry.size:
        return f"{path} failed sanity check: {size} bytes are not whole entries of {entry.size}."
    return f"{path} passed sanity check." if sound else f"{path} failed sanity check: its last entry goes back."


def _base_offset(path: Path) -> int | None:
    stem = path.name.partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() else None


def _log_of(path: Path) -> Path:
    return path.with_name(path.name.partition(".")[0] + ".log")


def _list_lines(title: str, lines: Iterable[str]) -> Iterator[str]:
    """`title` and the lines, or nothing when there are no lines."""
    for number, line in enumerate(lines):
        if number == 0:
            yield title
        yield line


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
