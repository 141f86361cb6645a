"""ShareFetch and ShareAcknowledge, packed by hand, are what kio writes and reads; so are records of share states."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.coordinator_records import share_state
from barnabas.protocol.coordinator_records.share_state import ShareRecord, ShareUpdateKey, ShareUpdateValue, StateBatch
from barnabas.protocol.messages.shares import requests, responses
from barnabas.protocol.wire.varint import uvarint
from tests.support.kio_messages import messages, written

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
UNPACK: dict[int, Any] = {SHARE_FETCH: requests.unpack_fetch, SHARE_ACKNOWLEDGE: requests.unpack_acknowledge}
PACK: dict[int, Any] = {SHARE_FETCH: responses.pack_fetch, SHARE_ACKNOWLEDGE: responses.pack_acknowledge}
BOTH = pytest.mark.parametrize("key", [SHARE_FETCH, SHARE_ACKNOWLEDGE])
VERSIONS = pytest.mark.parametrize("version", [1, 2])
FEW = settings(max_examples=10, deadline=None)  # making any message of kio takes long
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


def plain(message: Any) -> Any:
    """The values of a message by the names of its fields, whatever its class is."""
    if isinstance(message, tuple) and not hasattr(message, "_fields"):
        return [plain(each) for each in message]
    if hasattr(message, "_fields"):
        return {name: plain(getattr(message, name)) for name in message._fields}
    if is_dataclass(message):
        return {field.name: plain(getattr(message, field.name)) for field in fields(message)}
    return message


@BOTH
@VERSIONS
@FEW
@given(data=st.data())
def test_requests_are_read_as_kio_reads_them(key: int, version: int, data: st.DataObject) -> None:
    raw = written(data.draw(messages(load_request_schema(key, version))))
    ours = plain(UNPACK[key](memoryview(raw), 0, version))
    theirs = plain(entity_reader(load_request_schema(key, version))(raw, 0)[0])
    assert theirs.items() <= ours.items()
    added = {"is_renew_ack": False, "share_acquire_mode": 0}
    assert {name: ours[name] for name in ours.keys() - theirs.keys()}.items() <= added.items()


@BOTH
@VERSIONS
@FEW
@given(data=st.data(), longest=st.sampled_from([1, 100, responses.LONG]))
def test_responses_are_written_as_kio_writes_them(key: int, version: int, data: st.DataObject, longest: int) -> None:
    newest: Any = data.draw(messages(load_response_schema(key, 2)))
    message = without_lock(newest) if (key, version) == (SHARE_ACKNOWLEDGE, 1) else newest
    before, responses.LONG = responses.LONG, longest  # type: ignore[misc]  # so that short records are pieces, too
    try:
        packed = PACK[key](77, version, newest)
    finally:
        responses.LONG = before  # type: ignore[misc]
    frame = packed if isinstance(packed, bytes) else b"".join(packed)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    assert frame[9:] == written(message)


def without_lock(newest: Any) -> Any:
    """A ShareAcknowledge response of version 1, which has everything but the lock timeout."""
    text = newest.error_message
    encoded = b"" if text is None else text.encode()
    throttle_and_code = 4 + 2
    lock_at = throttle_and_code + (1 if text is None else len(uvarint(len(encoded) + 1)) + len(encoded))
    raw = written(newest)
    return entity_reader(load_response_schema(SHARE_ACKNOWLEDGE, 1))(raw[:lock_at] + raw[lock_at + 4 :], 0)[0]


@BOTH
@FEW
@given(version=st.sampled_from([1, 2]), data=st.data())
def test_a_cut_or_damaged_request_is_refused_or_read_and_never_worse(
    key: int, version: int, data: st.DataObject
) -> None:
    raw = bytearray(written(data.draw(messages(load_request_schema(key, version)))))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        UNPACK[key](memoryview(raw), 0, version, 1000)
    except InvalidFrame:
        return


def test_arrays_and_types_of_acknowledgements_are_bounded() -> None:
    batch = b"\0" * 16 + uvarint(21) + b"\1" * 20 + b"\0"
    topic = b"\1" * 16 + b"\2" + b"\0\0\0\0" + b"\2" + batch + b"\0" + b"\0"
    raw = memoryview(b"\2g\2m" + b"\0\0\0\1" + b"\0" + b"\2" + topic + b"\0")
    assert requests.unpack_acknowledge(raw, 0, 2, 23).topics[0].partitions[0].acknowledgement_batches
    with pytest.raises(InvalidFrame, match="array length 20"):
        requests.unpack_acknowledge(raw, 0, 2, 22)
    claims_too_much = bytes(raw).replace(uvarint(21) + b"\1", b"\xff\xff\xff\xff\x0f\1")
    with pytest.raises(InvalidFrame, match="array length"):
        requests.unpack_acknowledge(memoryview(claims_too_much), 0, 2)


UPDATES = st.builds(
    ShareUpdateValue,
    INT32,
    INT32,
    INT64,
    st.lists(
        st.builds(StateBatch, INT64, INT64, st.integers(-128, 127), st.integers(-(2**15), 2**15 - 1)), max_size=140
    ).map(tuple),
    INT32,
)


@FEW
@given(st.text(max_size=20), st.uuids(), INT32, UPDATES)
def test_updates_of_share_states_are_written_as_their_schema_has_them(
    group_id: str, topic_id: Any, partition: int, value: ShareUpdateValue
) -> None:
    key = ShareUpdateKey(group_id, topic_id, partition)
    raw = bytearray(share_state._UPDATE.writes.to_bytes(2, "big"))
    share_state._UPDATE.write(raw, value, True)
    encoded_key, encoded = share_state.encode(ShareRecord(key, value))
    assert encoded == bytes(raw)
    assert share_state.decode(encoded_key, encoded) == ShareRecord(key, value)
