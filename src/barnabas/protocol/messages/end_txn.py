"""EndTxn, read and written by hand: a producer waits for it at the end of each transaction.

Tests hold both directions equal to kio's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kio.schema.end_txn.v5.request import EndTxnRequest

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire.durations import MILLISECOND, NO_TIME
from barnabas.protocol.wire.framing import MAX_STRING, skip_tags
from barnabas.protocol.wire.packing import INT16
from barnabas.protocol.wire.varint import read_uvarint

if TYPE_CHECKING:
    from kio.schema.end_txn.v5.response import EndTxnResponse

FLEXIBLE: Final = 3
NEXT_EPOCHS: Final = 5
_ENDING: Final = struct.Struct(">qh?")
_RESPONSE: Final = struct.Struct(">iiih")
_FLEXIBLE_RESPONSE: Final = struct.Struct(">iiBihB")
_RESPONSE_WITH_EPOCH: Final = struct.Struct(">iiBihqhB")


def unpack(data: memoryview, position: int, version: int) -> EndTxnRequest:
    """Read a request of any version that is served; raises InvalidFrame."""
    try:
        if version >= FLEXIBLE:
            length, position = read_uvarint(data, position)
            length -= 1
        else:
            (length,) = INT16.unpack_from(data, position)
            position += 2
        if not 0 <= length <= MAX_STRING:
            raise InvalidFrame(f"a transactional id of {length} bytes before byte {position}")
        end = position + length
        transactional_id = str(data[position:end], "utf-8")
        producer_id, producer_epoch, committed = _ENDING.unpack_from(data, end)
        if version >= FLEXIBLE:
            skip_tags(data, end + _ENDING.size)
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidFrame(f"END_TXN request of version {version} cannot be read: {error}") from error
    return EndTxnRequest(
        transactional_id=transactional_id,  # type: ignore[arg-type]  # a name for str
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
    )


def pack(correlation_id: int, version: int, response: EndTxnResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    time = response.throttle_time
    throttle = 0 if time == NO_TIME else time // MILLISECOND
    code = response.error_code.value
    if version >= NEXT_EPOCHS:
        producer = response.producer_id, response.producer_epoch
        return _RESPONSE_WITH_EPOCH.pack(_RESPONSE_WITH_EPOCH.size - 4, correlation_id, 0, throttle, code, *producer, 0)
    if version >= FLEXIBLE:
        return _FLEXIBLE_RESPONSE.pack(_FLEXIBLE_RESPONSE.size - 4, correlation_id, 0, throttle, code, 0)
    return _RESPONSE.pack(_RESPONSE.size - 4, correlation_id, throttle, code)
