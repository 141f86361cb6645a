"""Going over the records of one batch, as fast as this language allows.

These loops are where the time of a cleaning goes, so they are written out: numbers of one and two bytes in place,
longer ones by `read_varint`; records that are equally long are taken together (strides). Records are copied as runs of
bytes and never taken apart further than need be. All positions are in `data`: the file's own bytes, or what was
decompressed.

A record begins: length, attributes (one byte), timestamp delta, offset delta, key length (negative: null), key, value
length (negative: null). Of a zigzag number, the lowest bit of the first byte is the sign.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.records.records import LONG_BITS, read_length, read_varint, varint
from barnabas.storage.cleaner.worker.key_map import LONGEST_KEY, digest
from barnabas.storage.cleaner.worker.strides import equal_run

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import TypeAlias

    Run: TypeAlias = tuple[int, int]


class Kept(NamedTuple):
    """What stays of a batch: how many records, where they lie, whether a tombstone is among them."""

    records: int
    runs: list[Run]
    tombstones: bool


def add_keys(data: bytes, position: int, end: int, base_offset: int, since: int, last: dict[bytes, int]) -> int:
    """Note the records of a batch, from offset `since` on, as the last of their keys; returns how many it holds."""
    count = 0
    try:
        while base_offset >= since and (run := equal_run(data, position, end, count)) is not None:
            keys = run.keys(data) if run.key_length <= LONGEST_KEY else map(digest, run.keys(data))
            first = base_offset + count
            last.update(zip(keys, range(first << 1, (first + run.records) << 1, 2), strict=True))
            position = run.end
            count += run.records
        while position < end:
            byte = data[position]
            if byte < 0x80:
                at = position + 2
                position += 1 + (byte >> 1)
            elif (second := data[position + 1]) < 0x80:
                at = position + 3
                position += 2 + (byte >> 1 & 0x3F | second << 6)
            else:
                length, at = read_length(data, position)
                position = at + length
                at += 1
            while data[at] >= 0x80:
                at += 1
            byte = data[at + 1]
            if byte < 0x80:
                at += 3
                offset = base_offset + (byte >> 1)
            elif (second := data[at + 2]) < 0x80:
                at += 4
                offset = base_offset + (byte >> 1 & 0x3F | second << 6)
            else:
                delta, at = read_varint(data, at + 1)
                offset = base_offset + delta
                at += 1
            byte = data[at - 1]
            if byte < 0x80:
                stop = at + (byte >> 1)
            else:
                length, at = read_varint(data, at - 1)
                stop = at + length
            count += 1
            if byte & 1 or offset < since:
                continue
            if stop >= position:
                raise InvalidRecord(f"the key of record {count} reaches past the record's end")
            key = data[at:stop]
            if stop - at > LONGEST_KEY:
                key = digest(key)
            last[key] = offset << 1 | data[stop] & 1
    except IndexError:
        raise InvalidRecord(f"record {count} reaches past the end of its batch") from None
    if position != end:
        raise InvalidRecord(f"record {count} ends {position - end} bytes off the end of its batch")
    return count


def keep_by_key(
    data: bytes, position: int, end: int, base_offset: int, last: Mapping[bytes, int], *, keep_tombstones: bool
) -> Kept:
    """Keep the records that have a key of which `last` knows no later record; tombstones only if they may stay."""
    kept = count = 0
    tombstones = False
    runs: list[Run] = []
    run_start = run_end = -1
    try:
        while (run := equal_run(data, position, end, count)) is not None:
            keys = run.keys(data) if run.key_length <= LONGEST_KEY else map(digest, run.keys(data))
            if not last.keys().isdisjoint(keys):
                break
            runs.append((run.start, run.end))
            kept = count = count + run.records
            position = run.end
        while position < end:
            start = position
            byte = data[position]
            if byte < 0x80:
                at = position + 2
                position += 1 + (byte >> 1)
            elif (second := data[position + 1]) < 0x80:
                at = position + 3
                position += 2 + (byte >> 1 & 0x3F | second << 6)
            else:
                length, at = read_length(data, position)
                position = at + length
                at += 1
            while data[at] >= 0x80:
                at += 1
            at += 1
            delta_at = at
            while data[at] >= 0x80:
                at += 1
            at += 2
            byte = data[at - 1]
            if byte < 0x80:
                stop = at + (byte >> 1)
            else:
                length, at = read_varint(data, at - 1)
                stop = at + length
            count += 1
            if byte & 1:
                continue
            if stop >= position:
                raise InvalidRecord(f"the key of record {count} reaches past the record's end")
            key = data[at:stop]
            if stop - at > LONGEST_KEY:
                key = digest(key)
            found = last.get(key)
            if found is not None and found >> 1 > base_offset + read_varint(data, delta_at)[0]:
                continue
            if data[stop] & 1:
                if not keep_tombstones:
                    continue
                tombstones = True
            kept += 1
            if start != run_end:
                if run_end >= 0:
                    runs.append((run_start, run_end))
                run_start = start
            run_end = position
    except IndexError:
        raise InvalidRecord(f"record {count} reaches past the end of its batch") from None
    if position != end:
        raise InvalidRecord(f"record {count} ends {position - end} bytes off the end of its batch")
    if run_end >= 0:
        runs.append((run_start, run_end))
    return Kept(kept, runs, tombstones)


def keep_by_number(data: bytes, position: int, end: int, deltas: Sequence[int]) -> list[Run] | None:
    """The records with these offset deltas, of a batch whose records are numbered without a gap; None if they are not.

    Only the records asked for are looked into; the others are stepped over by their lengths.
    """
    runs: list[Run] = []
    run_start = run_end = -1
    number = done = 0
    try:
        while done < len(deltas) and (run := equal_run(data, position, end, number)) is not None:
            after = bisect_left(deltas, number + run.records, done)
            origin, stride = run.start - number * run.stride, run.stride
            runs += [(origin + delta * stride, origin + (delta + 1) * stride) for delta in deltas[done:after]]
            position, number, done = run.end, number + run.records, after
        for delta in deltas[done:]:
            while number < delta:
                byte = data[position]
                if byte < 0x80:
                    position += 1 + (byte >> 1)
                elif (second := data[position + 1]) < 0x80:
                    position += 2 + (byte >> 1 & 0x3F | second << 6)
                else:
                    length, position = read_length(data, position)
                    position += length
                number += 1
            start = position
            byte = data[position]
            if byte < 0x80:
                at = position + 2
                position += 1 + (byte >> 1)
            elif (second := data[position + 1]) < 0x80:
                at = position + 3
                position += 2 + (byte >> 1 & 0x3F | second << 6)
            else:
                length, at = read_length(data, position)
                position = at + length
                at += 1
            while data[at] >= 0x80:
                at += 1
            byte = data[at + 1]
            if (byte >> 1 if byte < 0x80 else read_varint(data, at + 1)[0]) != delta:
                return None
            number += 1
            if start != run_end:
                if run_end >= 0:
                    runs.append((run_start, run_end))
                run_start = start
            run_end = position
    except IndexError:
        return None
    if run_end >= 0:
        runs.append((run_start, run_end))
    return runs


def keep_by_delta(data: bytes, position: int, end: int, deltas: Collection[int]) -> list[Run]:
    """The records with these offset deltas, of any batch."""
    runs = []
    while position < end:
        start = position
        length, at = read_length(data, position)
        position = at + length
        if read_varint(data, read_varint(data, at + 1, LONG_BITS)[1])[0] in deltas:
            runs.append((start, position))
    return runs


def largest_timestamp_delta(data: bytes, runs: Sequence[Run]) -> int:
    """The largest timestamp delta of the records in `runs`."""
    largest = -(1 << 63)
    for position, end in runs:
        while position < end:
            byte = data[position]
            if byte < 0x80:
                at = position + 2
                position += 1 + (byte >> 1)
            elif (second := data[position + 1]) < 0x80:
                at = position + 3
                position += 2 + (byte >> 1 & 0x3F | second << 6)
            else:
                length, at = read_length(data, position)
                position = at + length
                at += 1
            byte = data[at]
            if byte < 0x80:
                delta = (byte >> 1) ^ -(byte & 1)
            elif (second := data[at + 1]) < 0x80:
                delta = (byte >> 1 & 0x3F | second << 6) ^ -(byte & 1)
            else:
                delta = read_varint(data, at, LONG_BITS)[0]
            if delta > largest:
                largest = delta
    return largest


def restamp(data: bytes, runs: Sequence[Run], shift: int, fixed: int | None) -> bytes:
    """The records of `runs` with timestamp deltas that are larger by `shift`, or all `fixed`."""
    out: list[bytes] = []
    for position, end in runs:
        while position < end:
            length, at = read_length(data, position)
            position = at + length
            delta, rest = read_varint(data, at + 1, LONG_BITS)
            stamp = varint(delta + shift if fixed is None else fixed)
            out += (varint(1 + len(stamp) + position - rest), data[at : at + 1], stamp, data[rest:position])
    return b"".join(out)
