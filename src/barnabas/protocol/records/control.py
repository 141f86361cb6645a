"""Control records: what the broker writes into a log between clients' data.

A control batch holds one record. Its key says what it is (version and type, two int16); the end of a transaction has
the coordinator's epoch as its value, so that a coordinator that lost its place cannot end one.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.records.batch import CONTROL, MAGIC, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from barnabas.protocol.records.builder import NO_LEADER_EPOCH, seal

if TYPE_CHECKING:
    from barnabas.protocol.records.records import Record

_KEY: Final = struct.Struct(">hh")
_END_OF_TRANSACTION: Final = struct.Struct(">hi")
_MARKER: Final = struct.Struct(">bbbbbhhbhib")
"""The whole record of a marker, which has one shape: lengths and deltas are varints of one byte (twice the number)."""
_VERSION: Final = 0


class ControlType(IntEnum):
    """The kinds that Kafka knows; from LEADER_CHANGE on they occur in the metadata log of KRaft only."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


_TYPES: Final = {each.value: each for each in ControlType}


class EndOfTransaction(NamedTuple):
    """The marker that ends a producer's transaction in one partition."""

    type: ControlType
    coordinator_epoch: int


def control_type(key: bytes | None) -> ControlType:
    """What a control record is, by its key; kinds that came after this program are UNKNOWN."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord(f"a control record's key has {0 if key is None else len(key)} bytes instead of {_KEY.size}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"a control record's key has version {version}")
    return _TYPES.get(number, ControlType.UNKNOWN)


def read_marker(record: Record) -> EndOfTransaction:
    """Read the end of a transaction from its record."""
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecord(f"a control record of type {kind.name} does not end a transaction")
    if record.value is None or len(record.value) < _END_OF_TRANSACTION.size:
        raise InvalidRecord("the value of a transaction's end is too short")
    version, coordinator_epoch = _END_OF_TRANSACTION.unpack_from(record.value)
    if version < 0:
        raise InvalidRecord(f"the value of a transaction's end has version {version}")
    return EndOfTransaction(kind, coordinator_epoch)


def build_marker(marker: EndOfTransaction, *, timestamp: int, producer_id: int, producer_epoch: int) -> bytes:
    """The control batch that ends a transaction of this producer."""
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return seal(header, _MARKER.pack(32, 0, 0, 0, 8, _VERSION, marker.type, 12, _VERSION, marker.coordinator_epoch, 0))
