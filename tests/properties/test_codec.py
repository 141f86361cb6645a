"""Every API in every version: what kio writes passes the bounds walk, and converts to the newest version and back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from barnabas.broker.serving.registry import APIS, Api
from barnabas.model.errors import InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import bounds, codec
from barnabas.protocol.wire.varint import read_uvarint, uvarint
from tests.support.kio_messages import messages, written

EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.key.name}-v{version}")
    for api in APIS
    for version in range(api.oldest, api.newest + 1)
]
CONVERTED = [
    pytest.param(api, version, id=f"{api.key.name}-v{version}")
    for api in APIS
    if not api.raw
    and api.key is not ApiKey.OFFSET_COMMIT
    and not api.format.up
    and not api.format.down  # see their own tests
    for version in range(api.oldest, api.newest + 1)
]
FEW = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@FEW
@given(data=st.data())
def test_real_requests_pass_the_bounds_walk(api: Api, version: int, data: st.DataObject) -> None:
    message_class = codec.request_class(api.key, version)
    raw = written(data.draw(messages(message_class)))
    assert bounds.check(message_class, memoryview(raw), 0, 10_000) == raw


@pytest.mark.parametrize(("api", "version"), CONVERTED)
@FEW
@given(data=st.data())
def test_requests_reach_the_handler_as_the_newest_version(api: Api, version: int, data: st.DataObject) -> None:
    raw = written(data.draw(messages(codec.request_class(api.key, version))))
    request = codec.decode(api.key, version, api.newest, memoryview(raw), 0)
    assert isinstance(request, codec.handled_request_class(api.key, api.newest))


@pytest.mark.parametrize(("api", "version"), CONVERTED)
@FEW
@given(data=st.data())
def test_responses_of_the_newest_version_can_be_sent_in_any(api: Api, version: int, data: st.DataObject) -> None:
    response = data.draw(messages(codec.response_class(api.key, api.newest)))
    frame = codec.encode(api.key, version, 77, response)
    prefix = 9 if codec.has_flexible_header(api.key, version) else 8
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    read: Any = entity_reader(codec.response_class(api.key, version))(frame, prefix)[0]
    assert written(read) == frame[prefix:]
    if version == api.newest:
        assert read == response


@pytest.mark.parametrize(("api", "version"), CONVERTED)
@settings(max_examples=12, deadline=None)
@given(raw=st.binary(max_size=60))
def test_garbage_is_an_invalid_frame(api: Api, version: int, raw: bytes) -> None:
    with suppress(InvalidFrame):
        codec.decode(api.key, version, api.newest, memoryview(raw), 0)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_damaged_request_is_refused_or_read_and_never_worse(api: Api, data: st.DataObject) -> None:
    key: ApiKey = api.key
    raw = bytearray(written(data.draw(messages(codec.request_class(key, api.newest)))))
    for _ in range(data.draw(st.integers(1, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidFrame):
        codec.decode(key, api.newest, api.newest, memoryview(bytes(raw)), 0)


@given(st.integers(0, 2**32 - 1))
def test_varints_round_trip(value: int) -> None:
    assert read_uvarint(uvarint(value), 0) == (value, len(uvarint(value)))
