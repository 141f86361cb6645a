"""Composes dead letters: reads the records that a share group gave up, and makes a batch of what is to be said of them.

A dead letter is a record of its own, with headers that say where the message is, who gave it up, after how many
deliveries, and why (`protocol/dead_letters`). With errors.deadletterqueue.copy.record.enable it has the key, the value
and the headers of the message, too; a tombstone stays one. A message that is too large with them for the topic of dead
letters goes without them, and its dead letter says so.

Only records have dead letters: no markers of transactions, no records of aborted ones where the group does not see
them, and nothing that compaction or retention has removed.

All of this runs in a thread: it reads from disk, and opens batches.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.serving.validation_pool import yield_interpreter
from barnabas.model.errors import ApiError, MessageTooLarge, OffsetOutOfRange
from barnabas.protocol import dead_letters as headers
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import MAX_UNPACKED, decompress
from barnabas.protocol.records.records import Header, Record, encode_record, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.machines.shares.records import DeadLetters
    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.segments import ReadResult

logger = logging.getLogger(__name__)

READ_BYTES: Final = 1024 * 1024
"""Bytes that are read at once, unless a batch is larger."""
STRIDE: Final = 2000
"""After so many records a thread lets others run."""
NO_RECORD: Final = Record(0, 0, None, None)
UNREADABLE: Final = " It was not copied, since it cannot be read."


class LetterOrigin(NamedTuple):
    """Whose dead letters are composed, and how."""

    group_id: str
    topic: str
    partition: int
    log: Log
    copies: bool
    """Whether dead letters have what the messages have."""
    committed: bool
    """Whether the group does not see records of aborted transactions."""


class Composed(NamedTuple):
    """A batch of dead letters."""

    batch: bytes | None
    """None if none of the records is there any more."""
    letters: int
    """How many dead letters are in it."""
    done: list[DeadLetters]
    """What has its dead letters with this batch, or needs none."""
    missing: int
    """Records of these that the log does not have, and that have no dead letter."""
    too_large: list[int]
    """Offsets of messages that were too large to be copied."""


class LetterLimit(NamedTuple):
    """How large a batch may be."""

    size: int
    letters: int = sys.maxsize

    def below(self, composed: Composed) -> LetterLimit:
        """For a batch that was refused as too large: fewer dead letters, or one without what its message has."""
        assert composed.batch is not None
        if composed.letters > 1:
            return LetterLimit(self.size, composed.letters // 2)
        return LetterLimit(len(composed.batch) - 1, 1)


def compose(origin: LetterOrigin, wanted: Sequence[DeadLetters], limit: LetterLimit, now_ms: int) -> Composed:
    """As many dead letters as the limit allows. Raises MessageTooLarge if that is none."""
    letters: list[Record] = []
    done: list[DeadLetters] = []
    too_large: list[int] = []
    room = limit.size - HEADER_SIZE
    for each in wanted:
        last = each.last_offset
        for offset, record in _records(origin, each.first_offset, each.last_offset):
            letter = _letter(origin, each, offset, record, len(letters))
            size = len(encode_record(letter))
            if letters and (size > room or len(letters) >= limit.letters):
                last = offset - 1
                break
            if size > room:
                letter = _without_copy(origin, each, offset, size, room)
                size = len(encode_record(letter))
                too_large.append(offset)
            letters.append(letter)
            room -= size
        if last >= each.first_offset:
            done.append(each._replace(last_offset=last))
        if last < each.last_offset:
            break
    missing = sum(each.last_offset - each.first_offset + 1 for each in done) - len(letters)
    batch = build_batch(letters, base_timestamp=now_ms) if letters else None
    return Composed(batch, len(letters), done, missing, too_large)


def _letter(
    origin: LetterOrigin, given_up: DeadLetters, offset: int, record: Record | None, number: int, note: str = ""
) -> Record:
    """The dead letter of a record; None stands for one that cannot be read."""
    if record is None:
        record, note = NO_RECORD, UNREADABLE
    context = (
        (headers.TOPIC, origin.topic),
        (headers.PARTITION, str(origin.partition)),
        (headers.OFFSET, str(offset)),
        (headers.GROUP, origin.group_id),
        (headers.DELIVERY_COUNT, str(given_up.delivery_count)),
        (headers.MESSAGE, given_up.reason.value + note),
    )
    added = tuple(Header(name, text.encode("utf-8", "surrogateescape")) for name, text in context)
    return Record(number, 0, record.key, record.value, record.headers + added)


def _without_copy(origin: LetterOrigin, given_up: DeadLetters, offset: int, size: int, room: int) -> Record:
    """The first dead letter of a batch, for a message that is too large to be copied."""
    note = f" It was not copied, since it has {size} bytes with these headers, and {room} are allowed."
    letter = _letter(origin, given_up, offset, NO_RECORD, 0, note)
    needed = len(encode_record(letter))
    if needed > room:
        raise MessageTooLarge(
            f"A dead letter needs {needed + HEADER_SIZE} bytes, and {room + HEADER_SIZE} are allowed."
        )
    return letter


def _records(origin: LetterOrigin, first: int, last: int) -> Iterator[tuple[int, Record | None]]:
    """The records of these offsets that the group has seen, in order, without what they hold if it is not copied."""
    at = first
    while at <= last:
        try:
            found = origin.log.read(at, READ_BYTES, last + 1, min_one=True, committed=origin.committed)
        except OffsetOutOfRange:
            if at >= origin.log.log_start_offset:
                return
            at = origin.log.log_start_offset
            continue
        began = at
        for header, payload in _batches(found):
            if header.last_offset >= at and not header.is_control and not found.is_aborted(header):
                yield from _of_batch(origin, header, payload, at, last)
            at = max(at, header.last_offset + 1)
        if at == began:
            return


def _batches(found: ReadResult) -> Iterator[tuple[BatchHeader, bytes]]:
    """Header and payload of each whole batch."""
    for part in found.slices:
        data = part.file.read(part.length, part.position)
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if position + header.size > len(data):
                return  # the next read begins with it
            yield header, data[position + HEADER_SIZE : position + header.size]
            position += header.size


def _of_batch(
    origin: LetterOrigin, header: BatchHeader, payload: bytes, first: int, last: int
) -> Iterator[tuple[int, Record | None]]:
    """The records of a batch. One that cannot be read keeps no others waiting."""
    at, last = max(first, header.base_offset), min(last, header.last_offset)
    if not origin.copies and header.record_count == header.last_offset_delta + 1:
        yield from ((offset, NO_RECORD) for offset in range(at, last + 1))
        return
    try:
        unpacked = decompress(header.codec, payload, MAX_UNPACKED) if header.codec else payload
        for number, record in enumerate(read_records(unpacked, header.record_count)):
            offset = header.base_offset + record.offset_delta
            if at <= offset <= last:
                yield offset, record if origin.copies else NO_RECORD
                at = offset + 1
            if number % STRIDE == STRIDE - 1:
                yield_interpreter()
    except ApiError as error:
        logger.error("The batch at offset %d of %s cannot be read: %s", header.base_offset, origin.log.tp, error)
        yield from ((offset, None) for offset in range(at, last + 1))
