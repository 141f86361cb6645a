"""Records of one size, which can be gone over by slices instead of one by one.

Where keys and values have a fixed size, as those of many tables and devices have, a batch is a run of records that are
equally long and have their fields in the same places. A slice with a stride then takes one byte of every record at
once, and a few comparisons of such columns show that the run is what it seems: the same lengths, numbered without a
gap, no null among keys and values. What follows costs a fraction of a look at each record.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.protocol.records.records import MIN_RECORD_SIZE, ONE_BYTE, TWO_BYTES, read_varint

_SHORTEST: Final = 8
"""Fewer records are not worth it."""
_LAST_BYTES: Final = bytes(range(0x80))
_OTHER_BYTES: Final = bytes(range(0x80, 0x100))
_EVEN: Final = bytes(range(0, 0x100, 2))
_NUMBERS: Final = bytes(range(0, 0x80, 2))
"""The offset deltas of one byte, as they are stored."""
_LOW: Final = bytes(number << 1 & 0x7F | 0x80 for number in range(TWO_BYTES))
_HIGH: Final = bytes(number >> 6 for number in range(TWO_BYTES))
"""Likewise the two bytes of longer ones."""


class EqualRun(NamedTuple):
    """Some `records` of `stride` bytes each, from `start` on; the first one's key begins at `key_at`."""

    start: int
    stride: int
    records: int
    key_at: int
    key_length: int

    @property
    def end(self) -> int:
        """The position after the last record."""
        return self.start + self.stride * self.records

    def keys(self, data: bytes) -> list[bytes]:
        """The keys, in order."""
        length = self.key_length
        return [data[at : at + length] for at in range(self.key_at, self.end, self.stride)]


def equal_run(data: bytes, start: int, end: int, number: int) -> EqualRun | None:
    """The run that begins at `start` with record `number`, and does not go past `end`; None if it is a short one."""
    if end - start < _SHORTEST * MIN_RECORD_SIZE:
        return None
    if number < ONE_BYTE:
        delta_size, most = 1, ONE_BYTE - number
    elif number < TWO_BYTES:
        delta_size, most = 2, TWO_BYTES - number
    else:
        return None
    length, at = read_varint(data, start)
    stride = at + length - start
    if length <= 0 or (count := min(most, (end - start) // stride)) < _SHORTEST:
        return None
    time_at = at + 1
    delta_at = time_at + 1
    while data[delta_at - 1] >= 0x80:
        delta_at += 1
    key_at = delta_at + delta_size + 1
    key_length = data[key_at - 1] >> 1
    value_at = key_at + key_length
    if data[key_at - 1] >= 0x80 or data[key_at - 1] & 1 or value_at >= start + stride:
        return None
    stop = start + stride * count
    for column in (*range(start, at), key_at - 1):
        count = min(count, _prefix(data[column:stop:stride], data[column : column + 1]))
    for column in range(time_at, delta_at - 1):
        count = min(count, _prefix(data[column:stop:stride], _OTHER_BYTES))
    count = min(count, _prefix(data[delta_at - 1 : stop : stride], _LAST_BYTES))
    count = min(count, _prefix(data[value_at:stop:stride], _EVEN))
    if count < _SHORTEST:
        return None
    stop = start + stride * count
    if delta_size == 1:
        numbered = data[delta_at:stop:stride] == _NUMBERS[number : number + count]
    else:
        numbered = (
            data[delta_at:stop:stride] == _LOW[number : number + count]
            and data[delta_at + 1 : stop : stride] == _HIGH[number : number + count]
        )
    return EqualRun(start, stride, count, key_at, key_length) if numbered else None


def _prefix(column: bytes, allowed: bytes) -> int:
    """How many bytes of `column` are `allowed`, up to the first that is not."""
    return len(column) - len(column.lstrip(allowed))
