"""SaslHandshake and SaslAuthenticate, packed by hand, are what kio reads and writes, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import sasl
from barnabas.protocol.wire import bounds, codec
from barnabas.protocol.wire.conversion import convert
from barnabas.protocol.wire.packing import milliseconds
from tests.support.kio_messages import messages, written

HANDSHAKES, AUTHENTICATIONS = range(2), range(3)
NEWEST = AUTHENTICATIONS[-1]


@pytest.mark.parametrize("version", HANDSHAKES)
@settings(max_examples=20)
@given(data=st.data())
def test_a_handshake_is_read_as_kio_reads_it(version: int, data: st.DataObject) -> None:
    message: Any = data.draw(messages(codec.request_class(ApiKey.SASL_HANDSHAKE, version)))
    assert sasl.read_mechanism(memoryview(b"\7\7" + written(message)), 2) == message.mechanism


@pytest.mark.parametrize("version", AUTHENTICATIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_a_message_is_read_as_kio_reads_it(version: int, data: st.DataObject) -> None:
    message: Any = data.draw(messages(codec.request_class(ApiKey.SASL_AUTHENTICATE, version)))
    assert sasl.read_message(memoryview(b"\7\7" + written(message)), 2, version) == message.auth_bytes


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 70_000])
@pytest.mark.parametrize("version", AUTHENTICATIONS)
def test_messages_of_every_length_are_read_and_written(version: int, size: int) -> None:
    request = codec.request_class(ApiKey.SASL_AUTHENTICATE, version)(auth_bytes=b"x" * size)
    assert sasl.read_message(memoryview(written(request)), 0, version) == b"x" * size
    frame = sasl.pack_message(1, version, 0, None, b"x" * size, 0)
    start = 9 if version >= sasl.FLEXIBLE else 8
    response: Any = entity_reader(codec.response_class(ApiKey.SASL_AUTHENTICATE, version))(frame, start)[0]
    assert response.auth_bytes == b"x" * size


@pytest.mark.parametrize("version", HANDSHAKES)
@settings(max_examples=20)
@given(data=st.data())
def test_mechanisms_are_written_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    response: Any = data.draw(messages(codec.response_class(ApiKey.SASL_HANDSHAKE, version)))
    frame = sasl.pack_mechanisms(77, response.error_code.value, response.mechanisms)
    assert (int.from_bytes(frame[:4], "big"), int.from_bytes(frame[4:8], "big")) == (len(frame) - 4, 77)
    assert entity_reader(type(response))(frame, 8) == (response, len(frame) - 8)


@pytest.mark.parametrize("version", AUTHENTICATIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_an_answer_is_written_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    response: Any = data.draw(messages(codec.response_class(ApiKey.SASL_AUTHENTICATE, NEWEST)))
    frame = sasl.pack_message(
        77,
        version,
        response.error_code.value,
        response.error_message,
        response.auth_bytes,
        milliseconds(response.session_lifetime),
    )
    assert (int.from_bytes(frame[:4], "big"), int.from_bytes(frame[4:8], "big")) == (len(frame) - 4, 77)
    older = codec.response_class(ApiKey.SASL_AUTHENTICATE, version)
    start = 9 if version >= sasl.FLEXIBLE else 8
    assert entity_reader(older)(frame, start) == (convert(response, older), len(frame) - start)


@pytest.mark.parametrize("version", AUTHENTICATIONS)
@given(data=st.data())
def test_requests_that_are_cut_are_refused(version: int, data: st.DataObject) -> None:
    raw = written(data.draw(messages(codec.request_class(ApiKey.SASL_AUTHENTICATE, version))))
    with pytest.raises(InvalidFrame):
        sasl.read_message(memoryview(raw)[: data.draw(st.integers(0, len(raw) - 1))], 0, version)
    raw = written(data.draw(messages(codec.request_class(ApiKey.SASL_HANDSHAKE, 1))))
    with pytest.raises(InvalidFrame):
        sasl.read_mechanism(memoryview(raw)[: data.draw(st.integers(0, len(raw) - 1))], 0)


@settings(max_examples=500)
@given(raw=st.binary(max_size=40), version=st.sampled_from(AUTHENTICATIONS))
def test_any_bytes_are_read_as_kio_reads_them_or_refused_as_well(raw: bytes, version: int) -> None:
    data = memoryview(raw)

    def read_by_kio(key: ApiKey, number: int) -> Any:
        try:
            return bounds.read(codec.request_class(key, number), data, 0, bounds.MAX_ELEMENTS)
        except InvalidFrame:
            return None

    message = read_by_kio(ApiKey.SASL_AUTHENTICATE, version)
    if message is None:
        with pytest.raises(InvalidFrame):
            sasl.read_message(data, 0, version)
    else:
        assert sasl.read_message(data, 0, version) == message.auth_bytes
    handshake = read_by_kio(ApiKey.SASL_HANDSHAKE, 1)
    if handshake is None:
        with pytest.raises(InvalidFrame):
            sasl.read_mechanism(data, 0)
    else:
        assert sasl.read_mechanism(data, 0) == handshake.mechanism
