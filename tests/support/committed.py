"""What a reader of committed data is handed of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.records import read_records
from tests.support.logs import split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.txn_index import AbortedTransaction


def values_of(batch: bytes) -> dict[int, bytes]:
    """The records of a batch by their offsets; none for a marker."""
    header = read_header(batch)
    if header.is_control:
        return {}
    records = read_records(batch[HEADER_SIZE:], header.record_count)
    return {header.base_offset + record.offset_delta: record.value or b"" for record in records}


def committed(log: Log, up_to: int) -> set[int]:
    """The offsets of what a reader of committed data is handed."""
    seen: set[int] = set()
    offset = log.log_start_offset
    while offset < up_to:
        found = log.read(offset, 1 << 20, up_to, True, committed=True)
        data = b"".join(part.file.read(part.length, part.position) for part in found.slices)
        batches = split(data)
        seen |= committed_offsets(batches, found.aborted)
        offset = read_header(batches[-1]).last_offset + 1
    return seen


def committed_offsets(batches: Sequence[bytes], aborted: Sequence[AbortedTransaction]) -> set[int]:
    """The offsets of the records in an answer that a consumer of committed data hands out."""
    seen: set[int] = set()
    coming = sorted((each.first_offset, each.producer_id) for each in aborted)
    skipped: set[int] = set()
    for batch in batches:
        header = read_header(batch)
        while coming and coming[0][0] <= header.last_offset:
            skipped.add(coming.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in skipped:
            seen |= values_of(batch).keys()
    return seen
