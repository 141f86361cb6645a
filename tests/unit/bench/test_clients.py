"""The bytes that the socket clients send and expect are Kafka's; the perf tool's words are understood."""

from __future__ import annotations

import io
import socket
import struct
import sys

import crc32c
import pytest
from bench.clients import tools, traffic, wire
from bench.clients.java import parse_rate
from bench.clients.pulse import longest_gap
from kio.schema.errors import ErrorCode
from kio.schema.produce.v9 import request, response
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i64

from barnabas.protocol.records.batch import BatchHeader

SUMMARY = (
    "5000 records sent, 1000.0 records/sec (0.98 MB/sec), 3.0 ms avg latency, 9.0 ms max latency.\n"
    "9000 records sent, 3000.5 records/sec (2.93 MB/sec), 5.00 ms avg latency, 9.00 ms max latency, "
    "5 ms 50th, 8 ms 95th, 9 ms 99th, 9 ms 99.9th.\n"
)


def test_the_longest_gap_is_between_two_neighbours() -> None:
    assert longest_gap([1.0, 1.5, 4.0, 4.25]) == 2.5
    assert longest_gap([1.0]) == 0


def test_a_fetch_of_the_traffic_asks_for_the_last_batches_of_its_producer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        producer = traffic._Producer(ours, "topic", 2, b"")
        producer.last = 160
        traffic._Fetcher(ours, "topic", 2, producer).send()
        assert theirs.recv(1 << 16) == wire.fetch_request("topic", 2, 160 + 16 - 64, 64 * 1024)


def test_a_batch_has_a_true_header() -> None:
    batch = wire.batch([b"x" * 100, b"y" * 300])
    header = BatchHeader._make(struct.unpack_from(">qiibIhiqqqhii", batch))
    assert header.size == len(batch)
    assert header.crc == crc32c.crc32c(batch[21:])
    assert (header.magic, header.record_count, header.last_offset_delta, header.producer_id) == (2, 2, 1, -1)
    assert batch.endswith(b"y" * 300 + b"\0")


def test_a_produce_request_holds_the_batch() -> None:
    batch = wire.batch([b"value"])
    frame = wire.produce_request("topic", 3, batch)
    assert struct.unpack_from(">ihh", frame) == (len(frame) - 4, 0, 9)
    client_id_and_tags = 2 + len("bench") + 1
    body, _ = entity_reader(request.ProduceRequest)(frame, 4 + 8 + client_id_and_tags)
    (topic,) = body.topic_data
    assert (topic.name, topic.partition_data[0].index, topic.partition_data[0].records) == ("topic", 3, batch)


def test_the_error_code_is_where_it_is_looked_for() -> None:
    partition = response.PartitionProduceResponse(
        index=i32(2), error_code=ErrorCode.message_too_large, base_offset=i64(7), record_errors=()
    )
    topic = response.TopicProduceResponse(name=TopicName("some-topic"), partition_responses=(partition,))
    body = io.BytesIO()
    entity_writer(response.ProduceResponse)(body, response.ProduceResponse(responses=(topic,)))
    frame = b"size" + b"corr" + b"\0" + body.getvalue()
    assert frame[wire.produce_error_at("some-topic")] == struct.pack(">h", ErrorCode.message_too_large)


def test_the_perf_tools_summary_is_read() -> None:
    assert parse_rate(SUMMARY, 0, 9000) == 3000.5


@pytest.mark.parametrize(
    ("output", "status", "records"),
    [
        (SUMMARY, 1, 9000),
        (SUMMARY, 0, 9001),
        ("org.apache.kafka.common.errors.TimeoutException: Topic t not present\n" + SUMMARY, 0, 9000),
        ("", 0, 9000),
    ],
)
def test_a_failed_perf_tool_is_an_error(output: str, status: int, records: int) -> None:
    with pytest.raises(RuntimeError, match="kafka-producer-perf-test failed"):
        parse_rate(output, status, records)


CONSUMED = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
    "2026-03-07 15:04:05:067, 2026-03-07 15:04:08:067, 97.6563, 32.5521, 100000, 33333.3333, 2000, 1000, 97.6563, "
    "100000.5\n"
)


def test_the_rate_of_a_consumers_tool_is_read() -> None:
    assert tools.consumed(CONSUMED, 100_000) == 100_000.5


@pytest.mark.parametrize("output", [CONSUMED.replace("100000,", "99999,"), "WARNING: Exiting before consuming", ""])
def test_a_consumers_tool_that_read_too_little_is_told(output: str) -> None:
    with pytest.raises(RuntimeError, match="did not read 100000 records"):
        tools.consumed(output, 100_000)


def test_a_tool_is_timed_and_must_succeed() -> None:
    done = tools.run([sys.executable, "-c", "print('done')"])
    assert done.output == "done\n"
    assert done.cpu >= 0
    assert done.seconds > 0
    with pytest.raises(RuntimeError, match="ended with 3"):
        tools.run([sys.executable, "-c", "raise SystemExit(3)"])
