"""Record batches that are not what they say: refused, and not stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import cramjam
import pytest

from tests.compat.bad_input.victim import MEMORY, OPENED, PRODUCE, THREE, TOPIC, end_offset, produce, watched
from tests.support.wire import Connection, batch, plain, read_response, request, varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.compat.bad_input.victim import Victim

REFUSED_BATCHES: Final = {
    "a damaged byte": batch(THREE)[:-1] + b"\x55",
    "a wrong CRC": batch(THREE, crc=1),
    "cut short": batch(THREE)[:-5],
    "cut within the header": batch(THREE)[:40],
    "a few bytes": b"\0" * 11,
    "a length beyond the end": batch(THREE, batch_length=10_000),
    "a length of nothing": batch(THREE, batch_length=0),
    "a negative length": batch(THREE, batch_length=-1),
    "a length shorter than a header": batch(THREE, batch_length=20),
    "the largest length": batch(THREE, batch_length=2**31 - 1),
    "too few records told": batch(THREE, record_count=2),
    "too many records told": batch(THREE, record_count=4),
    "two thousand million records told": batch(THREE, record_count=2**31 - 1, last_offset_delta=2**31 - 2),
    "no records told": batch(THREE, record_count=0),
    "a negative number of records": batch(THREE, record_count=-1),
    "more records told than are there": batch(THREE, record_count=5, last_offset_delta=4),
    "fewer records told than are there": batch(THREE, record_count=2, last_offset_delta=1),
    "a last offset that does not fit": batch(THREE, last_offset_delta=7),
    "a negative last offset": batch(THREE, last_offset_delta=-1),
    "no records at all": batch([]),
    "records that are noise": batch(THREE, records=b"\xff" * 30),
    "a record longer than its batch": batch([b"x"], records=varint(1_000_000) + bytes(20)),
    "a record of negative length": batch([b"x"], records=varint(-20) + bytes(20)),
    "magic 3": batch(THREE, magic=3),
    "magic 1": batch(THREE, magic=1),
    "magic 0": batch(THREE, magic=0),
    "a marker that only brokers write": batch(THREE, attributes=0x20),
    "a codec that does not exist": batch(THREE, attributes=0x07),
    "a second batch that is damaged": batch(THREE) + batch(THREE, crc=1),
    "a batch and noise behind it": batch(THREE) + b"\xab" * 30,
    "two batches": batch(THREE) + batch(THREE),
    "a producer without a sequence": batch(THREE, producer_id=5, producer_epoch=0, base_sequence=-1),
}


@pytest.mark.parametrize("records", REFUSED_BATCHES.values(), ids=REFUSED_BATCHES.keys())
def test_a_batch_that_is_wrong_is_refused_and_not_stored(broker: Victim, records: bytes) -> None:
    end = end_offset(broker.bystander)
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, records)["error_code"] != 0
    assert end_offset(broker.bystander) == end


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_noise_that_calls_itself_compressed_is_refused_where_it_is_opened(broker: Victim, codec: int) -> None:
    """Elsewhere compressed records stay closed, and what is in them is between the client and its readers."""
    end = end_offset(broker.bystander, OPENED)
    with Connection(broker.bootstrap) as connection:
        noise = batch(THREE, attributes=codec, records=b"\x13" * 50)
        assert produce(connection, noise, topic=OPENED)["error_code"] != 0
    assert end_offset(broker.bystander, OPENED) == end


@pytest.mark.parametrize(("codec", "compress"), [(1, cramjam.gzip.compress), (4, cramjam.zstd.compress)])
def test_a_small_batch_that_unpacks_to_a_huge_one_is_refused(
    broker: Victim, codec: int, compress: Callable[[bytes], Any]
) -> None:
    """200 MB of zeros take a fraction of a megabyte on the wire."""
    size = 200_000_000
    head = b"\0\0\0" + varint(-1) + varint(size)
    packed = bytes(compress(varint(len(head) + size + 1) + head + bytes(size + 1)))
    assert len(packed) < 500_000
    end = end_offset(broker.bystander, OPENED)
    before = broker.memory()
    with Connection(broker.bootstrap, seconds=60) as connection, watched(broker) as peak:
        answer = produce(connection, batch([b"x"], attributes=codec, records=packed), topic=OPENED)
        assert answer["error_code"] != 0
    assert max(peak) < before + MEMORY
    assert end_offset(broker.bystander, OPENED) == end


@pytest.mark.parametrize("records", [None, b""], ids=["null", "empty"])
def test_records_without_bytes_are_refused(broker: Victim, records: bytes | None) -> None:
    """Apache Kafka leaves the client of the first kind without an answer."""
    end = end_offset(broker.bystander)
    partition = {"index": 0, "records": records}
    body = {"acks": 1, "timeout": 1_000, "topic_data": [{"name": TOPIC, "partition_data": [partition]}]}
    with Connection(broker.bootstrap) as connection:
        connection.send_frame(request(PRODUCE, 9, 1, body))
        answer = connection.receive_frame()
        if answer is not None:
            [topic] = plain(read_response(PRODUCE, 9, answer, 1))["responses"]
            assert topic["partition_responses"][0]["error_code"] != 0
    assert end_offset(broker.bystander) == end
