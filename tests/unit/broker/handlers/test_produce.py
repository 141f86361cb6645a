"""Produce over real logs: what is stored, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.handlers.produce import produce
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import HANG_UP, Parked
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Codec
from barnabas.protocol.records.records import Record
from tests.support.images import CALLER
from tests.support.parts import answer_of, make_topic, run, running_parts
from tests.support.produce_fetch import produce_request, produced
from tests.support.producing import NOW, batch, send, stored

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext

VERSIONS = [3, 7, 8, 9, 12, 13]


@pytest.mark.parametrize("version", VERSIONS)
async def test_batches_get_offsets_and_are_stored_as_they_are(tmp_path: Path, version: int) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        sent = [batch(3), batch(2, codec=Codec.LZ4), batch(1)]
        bases = [produced(version, send(broker, version, one))[0].base_offset for one in sent]
        assert bases == [0, 3, 5]
        assert [one[16:] for one in stored(broker)] == [one[16:] for one in sent]
        assert [read_header(one).base_offset for one in stored(broker)] == bases

    await run(tmp_path, story)


@pytest.mark.parametrize(
    ("records", "request_fields", "error"),
    [
        (None, {}, ErrorCode.invalid_record),
        (b"", {}, ErrorCode.invalid_record),
        (batch()[:-1], {}, ErrorCode.invalid_record),
        (batch()[:-1] + b"?", {}, ErrorCode.corrupt_message),
        (batch(), {"acks": 2}, ErrorCode.invalid_required_acks),
        (
            batch(2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            {},
            ErrorCode.transactional_id_authorization_failed,
        ),
        (batch(control=True), {}, ErrorCode.invalid_record),
    ],
)
async def test_what_is_refused_and_leaves_nothing(
    tmp_path: Path, records: bytes | None, request_fields: Any, error: ErrorCode
) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        (result,) = produced(12, send(broker, 12, records, **request_fields))
        assert result.error_code is error
        assert result.error_message
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        assert partition.log.log_end_offset == 0

    await run(tmp_path, story)


async def test_each_partition_has_its_own_result(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t", partitions=2)
        request = {("t", topic.topic_id, 7): batch(), ("t", topic.topic_id, 1): batch(), ("x", topic.topic_id, 0): b"?"}
        results = produced(12, produce(broker, CALLER, 12, 5, produce_request(12, request), 0))
        assert [(result.index, result.error_code) for result in results] == [
            (7, ErrorCode.unknown_topic_or_partition),
            (1, ErrorCode.none),
            (0, ErrorCode.unknown_topic_or_partition),
        ]

    await run(tmp_path, story)


async def test_an_unknown_topic_id(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t")
        await broker.controller.delete_topics(["t"])
        frame = produce_request(13, {("t", topic.topic_id, 0): batch()})
        (result,) = produced(13, produce(broker, CALLER, 13, 5, frame, 0))
        assert result.error_code is ErrorCode.unknown_topic_id

    await run(tmp_path, story)


async def test_acks_0_has_no_answer_and_an_error_ends_the_connection(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        assert send(broker, 12, batch(), acks=0) is None
        assert send(broker, 12, b"?" * 100, acks=0) is HANG_UP
        assert len(stored(broker)) == 1

    await run(tmp_path, story)


async def test_a_repeated_batch_is_answered_with_its_first_offset_and_a_gap_is_refused(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        first, second, gap = (batch(2, producer_id=9, producer_epoch=0, base_sequence=n) for n in (0, 2, 6))
        results = [produced(12, send(broker, 12, one))[0] for one in (first, second, first, gap)]
        assert [(result.error_code, result.base_offset) for result in results] == [
            (ErrorCode.none, 0),
            (ErrorCode.none, 2),
            (ErrorCode.none, 0),
            (ErrorCode.out_of_order_sequence_number, -1),
        ]
        assert len(stored(broker)) == 2

    await run(tmp_path, story)


async def test_a_topic_with_a_codec_of_its_own_recompresses(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", compression_type="zstd")
        answer = send(broker, 12, batch(50))
        assert isinstance(answer, Parked)
        assert not answer.overtakable
        (result,) = produced(12, await answer_of(answer))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        (only,) = stored(broker)
        assert read_header(only).codec == Codec.ZSTD

    await run(tmp_path, story)


async def test_compacted_topics_need_keys(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", cleanup_policy="compact")
        keyless = build_batch([Record(0, 0, None, b"value")], base_timestamp=NOW)
        (result,) = produced(12, await answer_of(send(broker, 12, keyless)))
        assert result.error_code is ErrorCode.invalid_record
        (result,) = produced(12, await answer_of(send(broker, 12, batch())))
        assert result.error_code is ErrorCode.none

    await run(tmp_path, story)


async def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", message_timestamp_type="LogAppendTime")
        (result,) = produced(12, send(broker, 12, batch()))
        assert result.log_append_time is not None
        (only,) = stored(broker)
        assert read_header(only).max_timestamp == broker.clock.now_ms()
        assert round(result.log_append_time.timestamp() * 1000) == broker.clock.now_ms()

    await run(tmp_path, story)


async def test_clients_do_not_write_to_the_topics_of_brokers(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        made = await make_topic(broker, "__consumer_offsets")
        frame = produce_request(13, {("__consumer_offsets", made.topic_id, 0): batch()})
        answer = await answer_of(produce(broker, CALLER, 13, 5, frame, 0))
        assert [result.error_code for result in produced(13, answer)] == [ErrorCode.invalid_topic_exception]
        assert broker.replicas.find("__consumer_offsets", 0).log.log_end_offset == 0
