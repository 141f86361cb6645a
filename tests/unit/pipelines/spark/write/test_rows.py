"""Rows as records, and what cannot be one."""

from __future__ import annotations

from itertools import permutations

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from barnabas.pipelines.errors import InvalidOption, SinkRefused
from barnabas.pipelines.spark.read.rows import HEADERS
from barnabas.pipelines.spark.write.batch import BatchWriter
from barnabas.pipelines.spark.write.options import sink_options
from barnabas.pipelines.spark.write.rows import Fingerprint, FingerprintSum, SinkRecord, check_schema, outgoing

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def rows(*columns: StructField) -> StructType:
    return StructType(list(columns))


def fingerprint(*records: SinkRecord) -> Fingerprint:
    tally = FingerprintSum()
    for record in records:
        tally.add(record)
    return tally.fingerprint()


VALUE = StructField("value", BinaryType())
TOPIC = StructField("topic", StringType())


def test_text_becomes_bytes_and_an_option_goes_before_the_column() -> None:
    batch = pa.record_batch({"value": ["ä", None], "topic": ["a", None], "other": [1, 2]})
    assert list(outgoing([batch], "t")) == [
        SinkRecord("t", None, "ä".encode(), None, -1),
        SinkRecord("t", None, None, None, -1),
    ]


def test_all_columns() -> None:
    batch = pa.record_batch(
        {
            "partition": pa.array([3, None], pa.int32()),
            "topic": ["a", "b"],
            "key": [b"k", None],
            "value": [b"v", b"w"],
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], HEADERS),
        }
    )
    assert list(outgoing([batch], None)) == [
        SinkRecord("a", b"k", b"v", [("h", b"1")], 3),
        SinkRecord("b", None, b"w", None, -1),
    ]


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(SinkRefused, match="a row has no topic"):
        list(outgoing([pa.record_batch({"value": [b"v"], "topic": pa.array([None], pa.string())})], None))


def test_a_negative_partition_is_refused() -> None:
    with pytest.raises(SinkRefused, match="partition -1"):
        list(outgoing([pa.record_batch({"value": [b"v"], "partition": pa.array([-1], pa.int32())})], "t"))


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_key_is_refused(header: dict[str, object] | None) -> None:
    headers = pa.array([[{"key": "h", "value": None}, header]], HEADERS)
    with pytest.raises(SinkRefused, match="a header needs a key"):
        list(outgoing([pa.record_batch({"value": [b"v"], "headers": headers})], "t"))


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        (rows(TOPIC), "t", "no column value to write, only topic"),
        (rows(VALUE), None, "set the option topic, or add a column"),
        (rows(StructField("value", LongType())), "t", "column value is bigint, and should be binary or string"),
        (rows(VALUE, StructField("partition", LongType())), "t", "column partition is bigint, and should be int"),
        (rows(VALUE, StructField("headers", ArrayType(StringType()))), "t", "column headers is array<string>"),
    ],
)
def test_schemas_that_cannot_be_written(schema: StructType, topic: str | None, message: str) -> None:
    with pytest.raises(SinkRefused, match=message):
        check_schema(schema, topic)


def test_schemas_that_can() -> None:
    check_schema(rows(StructField("value", StringType()), StructField("other", LongType())), "t")
    check_schema(rows(VALUE, TOPIC, StructField("partition", IntegerType())), None)


def test_a_fingerprint_knows_rows_in_any_order() -> None:
    records = [SinkRecord("t", None, value, None, -1) for value in (b"a", b"a", b"b", None)]
    found = set()
    for order in permutations(records):
        found.add(fingerprint(*order))
    assert len(found) == 1
    assert found != {fingerprint(records[0])}


def test_every_part_of_a_record_counts() -> None:
    record = SinkRecord("t", b"k", b"v", [("h", b"1")], 0)
    others = [
        record._replace(topic="u"),
        record._replace(key=None),
        record._replace(value=b"w"),
        record._replace(value=None),
        record._replace(headers=None),
        record._replace(partition=1),
    ]
    assert len({fingerprint(each) for each in (record, *others)}) == 7


def test_a_batch_is_neither_overwritten_nor_written_exactly_once() -> None:
    with pytest.raises(SinkRefused, match=r'use mode\("append"\)'):
        BatchWriter(sink_options(SERVERS | {"topic": "t"}), rows(VALUE), overwrite=True)
    with pytest.raises(InvalidOption, match="is for streams"):
        BatchWriter(sink_options(SERVERS | {"deliveryGuarantee": "exactly-once"}), rows(VALUE), overwrite=False)


def test_a_wrong_option_of_the_sink_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidOption, match=r"did you mean deliveryGuarantee\?"):
        sink_options(SERVERS | {"deliveryGuarantees": "exactly-once"})
    with pytest.raises(InvalidOption, match="should be at-least-once or exactly-once"):
        sink_options(SERVERS | {"deliveryGuarantee": "twice"})
