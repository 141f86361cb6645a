"""EndTxn, packed by hand, is what kio reads and writes, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import end_txn
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.conversion import convert
from tests.support.kio_messages import messages, written

VERSIONS = range(6)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_a_request_is_read_as_kio_reads_it(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(codec.request_class(ApiKey.END_TXN, version)))
    raw = b"\7\7" + written(message)
    newest = codec.request_class(ApiKey.END_TXN, VERSIONS[-1])
    assert end_txn.unpack(memoryview(raw), 2, version) == convert(message, newest)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_a_response_is_written_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    response: Any = data.draw(messages(codec.response_class(ApiKey.END_TXN, VERSIONS[-1])))
    frame = end_txn.pack(77, version, response)
    assert (int.from_bytes(frame[:4], "big"), int.from_bytes(frame[4:8], "big")) == (len(frame) - 4, 77)
    older = codec.response_class(ApiKey.END_TXN, version)
    start = 9 if version >= end_txn.FLEXIBLE else 8
    assert entity_reader(older)(frame, start) == (convert(response, older), len(frame) - start)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_a_request_that_is_cut_is_refused(version: int, data: st.DataObject) -> None:
    raw = written(data.draw(messages(codec.request_class(ApiKey.END_TXN, version))))
    with pytest.raises(InvalidFrame):
        end_txn.unpack(memoryview(raw)[: data.draw(st.integers(0, len(raw) - 1))], 0, version)
