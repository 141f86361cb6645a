"""Pipelines from files, run by Spark against a broker: what they write is exact, also after they were interrupted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from examples.orders.day import orders, revenue
from examples.orders.job import TABLE, load_customers, pipelines
from examples.orders.picture import draw

from barnabas.cli.pipeline.init import write_example
from barnabas.clients.protobuf_files import message_class
from barnabas.pipelines.runner.analysis import analyse
from barnabas.pipelines.runner.queries.table_sink import TableBatches
from barnabas.pipelines.runner.running import run_pipelines
from barnabas.pipelines.runner.status import statuses
from barnabas.pipelines.runner.supervisor import QueryFailed
from barnabas.pipelines.spec import (
    FunctionStep,
    Pipeline,
    Sink,
    SpecError,
    SqlStep,
    TableSink,
    TopicSink,
    TopicSource,
    Watermark,
    load_pipelines,
)
from barnabas.pipelines.spec.model import AVAILABLE_NOW
from barnabas.pipelines.tables.iceberg.table import IcebergTable
from tests.support.decoding import ORDER_AVSC, avro_bytes, order_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from barnabas.testing.kafka import KafkaForTest

pytestmark = pytest.mark.timeout(400)  # on a busy machine every query takes its time to start

LONG_IF = "repeat('x', if({}, 300, 1))"
"""What no folder can be named by, where something holds."""
PNG = b"\x89PNG\r\n\x1a\n"


def rows(table: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return found


def test_a_day_of_orders_from_a_topic_to_a_picture(
    spark_process: SparkSession, kafka: KafkaForTest, tmp_path: Path
) -> None:
    """The demo, in two runs: the second goes on where the first ended."""
    write_example(tmp_path)
    topic = kafka.topic()
    file = tmp_path / "pipeline.toml"
    file.write_text(file.read_text().replace('topic = "orders"', f'topic = "{topic}"'))
    countries = load_customers(tmp_path)
    day = list(orders(1_000, countries))
    with kafka.producer() as producer:
        for value in ("this is no order", *day[:400]):
            producer.send(topic, value)
    run_pipelines(pipelines(tmp_path, kafka.bootstrap_servers), spark=spark_process)
    with kafka.producer() as producer:
        for value in (*day[400:], '{"id": "no number"}', '{"id": 1} and more'):
            producer.send(topic, value)
    [again] = pipelines(tmp_path, kafka.bootstrap_servers)
    run_pipelines([again], spark=spark_process)

    assert sorted(row["id"] for row in rows(tmp_path / "tables/orders")) == list(range(1, 1_002))
    found = {(row["hour"], row["country"]): (row["orders"], round(row["revenue"], 2)) for row in rows(tmp_path / TABLE)}
    expected = {key: (count, round(sum, 2)) for key, (count, sum) in revenue(iter(day[:-1]), countries).items()}
    assert found == expected
    bad = sorted(bytes(row["value"]) for row in rows(tmp_path / "tables/bad_orders"))
    assert bad == [b"this is no order", b'{"id": "no number"}', b'{"id": 1} and more']

    draw(tmp_path / TABLE, tmp_path / "revenue.png")
    assert (tmp_path / "revenue.png").read_bytes().startswith(PNG)

    for status in statuses(again):
        assert status.lag == 0
        assert status.last is not None and status.last.lag == 0 and status.last.rows_per_second >= 0


def numbers(kafka: KafkaForTest, topic: str, values: range) -> None:
    """Numbered records, a second apart by their own clock."""
    with kafka.producer() as producer:
        for number in values:
            at = f"2026-01-31T10:{number // 60:02}:{number % 60:02}Z"
            producer.send(topic, json.dumps({"number": number, "at": at}))


def counting(kafka: KafkaForTest, topic: str, folder: Path, **changes: Any) -> Pipeline:
    """Counts numbers by the minute, and keeps each of them too; neither table has a place for one of its rows."""
    whole: dict[str, Any] = {
        "name": "counting",
        "kafka": {"bootstrap.servers": kafka.bootstrap_servers},
        "trigger": AVAILABLE_NOW,
        "checkpoints": str(folder / "checkpoints"),
        "sources": [
            TopicSource(
                name="numbers",
                topics=[topic],
                decode="json",
                schema="number INT, at TIMESTAMP",
                watermark=Watermark(column="at", delay="10 seconds"),
                options={"maxOffsetsPerTrigger": "100"},
            )
        ],
        "steps": [
            SqlStep(name="named", sql=f"SELECT *, {LONG_IF.format('number = 130')} AS name FROM numbers"),
            SqlStep(
                name="minutes",
                sql="SELECT window.start AS minute, count(*) AS count, sum(number) AS sum, "
                f"{LONG_IF.format('min(number) = 60')} AS name FROM numbers GROUP BY window(at, '1 minute')",
            ),
        ],
        "sinks": [
            TableSink(name=name, reads=view, table=str(folder / name), format="delta", partition_by=["name"])
            for name, view in (("each", "named"), ("minutes", "minutes"))
        ],
        **changes,
    }
    return Pipeline(**whole)


def test_interrupted_batches_add_nothing_twice_and_a_lost_checkpoint_nothing_wrong(
    spark_process: SparkSession, kafka: KafkaForTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run dies after commits that Spark does not know of, also after one of a batch without records.

    A row that a table has no place for is among its dead letters, once.
    Then the checkpoints are gone: where state is kept that is refused, and where offsets say everything it is nothing.
    """
    topic = kafka.topic()
    numbers(kafka, topic, range(301))
    commit = TableBatches.__call__
    failures: list[tuple[str, int]] = []

    def commit_and_fail(self: TableBatches, frame: DataFrame, batch: int) -> None:
        commit(self, frame, batch)
        here = (self._table.location, batch)
        if here not in failures and len(failures) < 6:
            failures.append(here)
            raise ConnectionResetError("the line went dead after the commit")

    with monkeypatch.context() as patched:
        patched.setattr(TableBatches, "__call__", commit_and_fail)
        run_pipelines([counting(kafka, topic, tmp_path)], spark=spark_process)
    assert len(failures) == 6
    assert sorted(row["number"] for row in rows(tmp_path / "each")) == [*range(130), *range(131, 301)]
    found = sorted((row["minute"].minute, row["count"], row["sum"]) for row in rows(tmp_path / "minutes"))
    assert found == [(minute, 60, sum(range(60 * minute, 60 * minute + 60))) for minute in (0, 2, 3)], found
    [letter] = rows(tmp_path / "each_dead")
    assert (letter["topic"], letter["offset"], json.loads(letter["value"])["number"]) == (topic, 130, 130)
    [letter] = rows(tmp_path / "minutes_dead")
    assert (letter["topic"], json.loads(letter["value"])["sum"]) == (None, sum(range(60, 120)))
    assert letter["reason"] == "name would make the name of a folder 305 bytes long, and 255 are possible"

    numbers(kafka, topic, range(301, 320))
    elsewhere = counting(kafka, topic, tmp_path, checkpoints=str(tmp_path / "elsewhere"))
    with pytest.raises(QueryFailed, match="was filled with a checkpoint, and there is none at"):
        run_pipelines([replace(elsewhere, sinks=elsewhere.sinks[1:])], spark=spark_process)
    run_pipelines([replace(elsewhere, sinks=elsewhere.sinks[:1], checkpoints=None)], spark=spark_process)
    assert sorted(row["number"] for row in rows(tmp_path / "each")) == [*range(130), *range(131, 320)]

    each = replace(elsewhere, sinks=elsewhere.sinks[:1])
    with pytest.raises(QueryFailed, match='belongs to the pipeline "counting", not to "another"'):
        run_pipelines([replace(each, name="another")], spark=spark_process)
    kafka.admin.delete_topics(topic)
    with pytest.raises(QueryFailed, match="there is no topic or partition"):
        run_pipelines([each], spark=spark_process)
    kafka.admin.create_topic(topic, 1)
    with pytest.raises(QueryFailed, match="was deleted and created again"):
        run_pipelines([each], spark=spark_process)


def test_a_view_goes_to_all_formats_and_to_a_topic(
    spark_process: SparkSession, kafka: KafkaForTest, tmp_path: Path
) -> None:
    """A Python step between; the stream begins at the end, and what came before is left out.

    The second run is of the same pipeline in Python.
    """
    topic, out = kafka.topic(partitions=2), kafka.topic()
    numbers(kafka, topic, range(5))
    file = tmp_path / "pipeline.toml"
    (tmp_path / "doubling.py").write_text(
        "from pyspark.sql.functions import udf\n\n"
        "def twice(number):\n    return 2 * number\n\n"
        "def double(numbers):\n    return numbers.withColumn('double', udf(twice, 'INT')('number'))\n"
    )
    file.write_text(
        f'''
name = "formats"
trigger = "{AVAILABLE_NOW}"
checkpoints = "checkpoints"
[kafka]
"bootstrap.servers" = "{kafka.bootstrap_servers}"
[sources.numbers]
topic = "{topic}"
decode = "json"
schema = "number INT"
bad = "drop"
start = "latest"
[steps.doubled]
python = "doubling.py:double"
reads = "numbers"
stateless = true
[steps.wanted]
sql = "SELECT number, double FROM doubled WHERE number < 1000"
[sinks.parquet]
from = "wanted"
table = "lake/parquet"
format = "parquet"
[sinks.iceberg]
from = "wanted"
table = "lake/iceberg"
format = "iceberg"
[sinks.topic]
from = "wanted"
topic = "{out}"
key = "number"
'''
    )
    run_pipelines(load_pipelines([file]), spark=spark_process)
    numbers(kafka, topic, range(5, 25))
    (tmp_path / "in_python.py").write_text(in_python(kafka, topic, out))
    run_pipelines(load_pipelines([tmp_path / "in_python.py"]), spark=spark_process)
    expected = [{"number": number, "double": 2 * number} for number in range(5, 25)]
    parquet = pq.read_table(tmp_path / "lake/parquet").to_pylist()
    iceberg = IcebergTable(str(tmp_path / "lake/iceberg")).read().to_pylist()
    records = kafka.records(out, 20)
    for found in (parquet, iceberg, [json.loads(record.value or b"") for record in records]):
        assert sorted(found, key=lambda row: row["number"]) == expected
    assert {record.key for record in records} == {str(number).encode() for number in range(5, 25)}

    shutil.rmtree(tmp_path / "checkpoints/topic")
    [pipeline] = load_pipelines([file])
    with pytest.raises(QueryFailed, match=r"formats\.topic shows that this query has run before"):
        run_pipelines([replace(pipeline, sinks=pipeline.sinks[2:])], spark=spark_process)


def in_python(kafka: KafkaForTest, topic: str, out: str) -> str:
    """The pipeline of the test above; a function of the file itself goes to the executors."""
    return f"""
from pyspark.sql.functions import udf

from barnabas.pipelines.spec import FunctionStep, Pipeline, SqlStep, TableSink, TopicSink, TopicSource

def twice(number):
    return 2 * number

def double(numbers):
    return numbers.withColumn("double", udf(twice, "INT")("number"))

pipeline = Pipeline(
    name="formats",
    trigger="{AVAILABLE_NOW}",
    checkpoints="checkpoints",
    kafka={{"bootstrap.servers": "{kafka.bootstrap_servers}"}},
    sources=[
        TopicSource(name="numbers", topics=["{topic}"], decode="json", schema="number INT", bad="drop", start="latest")
    ],
    steps=[
        FunctionStep(name="doubled", function=double, reads=["numbers"], stateless=True),
        SqlStep(name="wanted", sql="SELECT number, double FROM doubled WHERE number < 1000"),
    ],
    sinks=[
        TableSink(name="parquet", reads="wanted", table="lake/parquet", format="parquet"),
        TableSink(name="iceberg", reads="wanted", table="lake/iceberg", format="iceberg"),
        TopicSink(name="topic", reads="wanted", topic="{out}", key="number"),
    ],
)
"""


def test_avro_and_protobuf_are_decoded_in_two_pipelines_of_one_session(
    spark_process: SparkSession, kafka: KafkaForTest, tmp_path: Path
) -> None:
    """Views of the same name do not meet. A registry's prefix is passed over, and what does not fit is kept."""
    avro, protobuf = kafka.topic(), kafka.topic()
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER_AVSC))
    (tmp_path / "shop.desc").write_bytes(order_descriptors())
    order = {"id": 1, "note": "a", "price": Decimal("1.50"), "at": datetime(2026, 1, 31, tzinfo=UTC), "key": uuid4()}
    order |= {"kind": "LARGE", "lines": [{"sku": "x"}], "tags": {"n": 1}, "first": None}
    message = message_class(order_descriptors(), "shop.Order")(id=3, note="p", big=2**64 - 1, tags={"n": 1})
    kafka.send(avro, avro_bytes(order), b"\0\0\0\0\5" + avro_bytes({**order, "id": 2}), b"\xff")
    kafka.send(protobuf, message.SerializeToString(), None, b"\xff\xff")
    for name, topic, schema, bad, sinks in (
        ("avro", avro, "order.avsc", "drop", ("orders",)),
        ("protobuf", protobuf, "shop.desc:shop.Order", "keep", ("orders", "orders_bad")),
    ):
        text = f'''
name = "{name}"
trigger = "{AVAILABLE_NOW}"
[kafka]
"bootstrap.servers" = "{kafka.bootstrap_servers}"
[sources.orders]
topic = "{topic}"
decode = "{name}"
schema = "{schema}"
bad = "{bad}"
'''
        text += "".join(
            f'[sinks.{view}]\nfrom = "{view}"\ntable = "{name}_{view}"\nformat = "delta"\n' for view in sinks
        )
        (tmp_path / f"{name}.toml").write_text(text)
    run_pipelines(load_pipelines([tmp_path / "avro.toml", tmp_path / "protobuf.toml"]), spark=spark_process)

    found = sorted(rows(tmp_path / "avro_orders"), key=lambda row: row["id"])
    assert [(row["id"], row["note"], row["price"], row["at"], row["lines"], row["_offset"]) for row in found] == [
        (number, "a", order["price"], order["at"], order["lines"], number - 1) for number in (1, 2)
    ]
    [one] = rows(tmp_path / "protobuf_orders")
    assert (one["id"], one["note"], one["big"], one["tags"]) == (3, "p", 2**64 - 1, [("n", 1)])
    kept = {row["_offset"]: (row["value"], row["reason"]) for row in rows(tmp_path / "protobuf_orders_bad")}
    assert kept[1] == (None, "there is no value")
    assert kept[2][0] == b"\xff\xff" and "Error" in kept[2][1]
    assert len(kept) == 2


MARKED = """
name = "marked"
trigger = "available-now"
[kafka]
"bootstrap.servers" = "{servers}"
[sources.orders]
topic = "{topic}"
decode = "json"
schema = "id BIGINT"
mark_tombstones = true
bad = "drop"
[sinks.orders]
from = "orders"
table = "orders"
format = "iceberg"
keep_snapshots = 2
"""


def test_tombstones_are_rows_of_a_source_that_marks_them(
    spark_process: SparkSession, kafka: KafkaForTest, tmp_path: Path
) -> None:
    """And a sink keeps as many snapshots as its file says."""
    topic = kafka.topic()
    file = tmp_path / "marked.toml"
    file.write_text(MARKED.format(servers=kafka.bootstrap_servers, topic=topic))
    for number in range(3):
        with kafka.producer() as producer:
            producer.send(topic, json.dumps({"id": number}), key="a")
            producer.send(topic, None, key="a")
            producer.send(topic, "{}", key="a")
        run_pipelines(load_pipelines([file]), spark=spark_process)
    with IcebergTable(str(tmp_path / "orders")) as table:
        found = sorted(table.read().to_pylist(), key=lambda row: row["_offset"])
        assert [(row["id"], row["_tombstone"]) for row in found] == [
            each for number in range(3) for each in ((number, False), (None, True), (None, False))
        ]
        assert len(table._existing().snapshots()) == 2


def test_what_spark_does_not_understand_is_told_at_its_step(
    spark: SparkSession, kafka: KafkaForTest, tmp_path: Path
) -> None:
    good = counting(kafka, "topics are not asked for", tmp_path)
    assert analyse([good], spark) == {
        "counting.each": "number INT, at TIMESTAMP, _topic STRING, _partition INT, _offset BIGINT, "
        "_timestamp TIMESTAMP, _key BINARY, name STRING",
        "counting.minutes": "minute TIMESTAMP, count BIGINT, sum BIGINT, name STRING",
    }
    for sql, text in [
        ("SELECT nmber FROM numbers", "cannot be resolved. Did you mean one of the following? [`number`"),
        ("SELECT number,, at FROM numbers", "Syntax error at or near ','"),
    ]:
        step = SqlStep(name="minutes", sql=sql)
        with pytest.raises(SpecError) as caught:
            analyse([counting(kafka, "numbers", tmp_path, steps=[good.steps[0], step])], spark)
        assert caught.value.problems[0].place == step.place
        assert text in caught.value.problems[0].text
    wrong: list[tuple[Sink, str]] = [
        (TableSink(name="s", reads="numbers", table="t", partition_by=["nmber"]), 'no column "nmber" to partition by'),
        (TopicSink(name="s", reads="numbers", topic="t", key="nmber"), "`nmber` cannot be resolved"),
        (TopicSink(name="s", reads="numbers", topic="t", encode="raw"), "there is no column value to write"),
    ]
    for sink, text in wrong:
        with pytest.raises(SpecError) as caught:
            analyse([counting(kafka, "numbers", tmp_path, sinks=[sink])], spark)
        assert caught.value.problems[0].place == sink.place
        assert text in caught.value.problems[0].text


def test_a_promise_to_be_stateless_that_spark_finds_broken_is_refused(
    spark: SparkSession, kafka: KafkaForTest, tmp_path: Path
) -> None:
    """Its state would be gone with the run, since nobody asked for a checkpoint."""
    sink = TableSink(name="s", reads="made", table="t")

    def columns(function: Callable[[DataFrame], DataFrame]) -> dict[str, str]:
        step = FunctionStep(name="made", function=function, reads=["numbers"], stateless=True)
        return analyse([counting(kafka, "numbers", tmp_path, steps=[step], sinks=[sink])], spark)

    small = spark.range(3).toDF("id")
    for kept in [
        lambda numbers: numbers.join(small, numbers.number == small.id, "left").where("number > 1"),
        lambda numbers: numbers.join(small.distinct().limit(1), numbers.number == small.id),
        lambda numbers: numbers.selectExpr("explode(array(number, -number)) AS number", "at").repartition(2),
    ]:
        assert columns(kept)
    for function, reason in [
        (lambda numbers: numbers.dropDuplicates(["number"]), "keeps state for it (Deduplicate)"),
        (
            lambda numbers: numbers.dropDuplicatesWithinWatermark(["number"]),
            "state for it (DeduplicateWithinWatermark)",
        ),
        (lambda numbers: numbers.groupBy("at").count(), "keeps state for it (Aggregate)"),
        (lambda numbers: numbers.distinct(), "keeps state for it (D"),
        (lambda numbers: numbers.limit(1), "keeps state for it (GlobalLimit)"),
        (lambda numbers: numbers.crossJoin(numbers.select("at")), "keeps state for it (a join of streams)"),
        (lambda numbers: numbers.union(numbers), "reads 2 streams for it, of 1"),
    ]:
        with pytest.raises(SpecError) as caught:
            columns(function)
        assert caught.value.problems[0].place == sink.place
        assert reason in caught.value.problems[0].text
