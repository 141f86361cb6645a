"""What is wrong with a pipeline is found before Spark starts, and what it needs is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipelines.spec import (
    FileSource,
    FunctionStep,
    Pipeline,
    SqlStep,
    TableSink,
    TopicSink,
    TopicSource,
    Watermark,
)
from barnabas.pipelines.spec.checks.pipeline import problems_of
from barnabas.pipelines.spec.flows import flow_to

HERE = Path(__file__)
ORDERS = TopicSource(name="orders", topics=["orders"], decode="json", schema="id BIGINT, at TIMESTAMP", bad="drop")
RETURNS = TopicSource(name="returns", topics=["returns"])
FILES = FileSource(name="customers", path=HERE.name, format="csv")
TABLE = TableSink(name="all", reads="orders", table="tables/all")
LATE = Watermark(column="at", delay="1 minute")


def pipeline(**changes: Any) -> Pipeline:
    whole: dict[str, Any] = {
        "name": "p",
        "kafka": {"bootstrap.servers": "localhost:9092"},
        "sources": [ORDERS, RETURNS, FILES],
        "sinks": [TABLE],
        **changes,
    }
    return Pipeline(**whole)


def sql(text: str, name: str = "made", **more: Any) -> SqlStep:
    return SqlStep(name=name, sql=text, **more)


def with_options(**options: str) -> TopicSource:
    return replace(ORDERS, options=options)


def messages(*pipelines: Pipeline) -> list[str]:
    return [problem.text for problem in problems_of(pipelines)]


def test_nothing_is_wrong_with_a_pipeline_that_can_run() -> None:
    assert messages(pipeline()) == []
    tuned = with_options(maxOffsetsPerTrigger="9", failondataloss="false")
    assert messages(pipeline(sources=[tuned])) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "a b"}, 'the name "a b" may have'),
        ({"kafka": {}}, "the broker is not named"),
        ({"kafka": {"auto.offset.reset": "latest"}}, '"auto.offset.reset" cannot be set in [kafka]: `start` of a'),
        ({"kafka": {"enable.auto.commit": "true"}}, "by each sink, to a group of its own"),
        ({"kafka": {"interceptor.classes": "a.B", "sasl.jaas.config": "a.B"}}, "names a login module that only Java"),
        ({"trigger": "soon"}, 'the trigger is a length of time or "available-now": "soon" is no length of time'),
        ({"metrics": "a topic"}, '"a topic" cannot be the name of a topic'),
        ({"sources": []}, "there is no source"),
        ({"sinks": []}, "there is no sink"),
        ({"sources": [ORDERS, replace(RETURNS, name="Orders")]}, 'view "Orders" is also made at'),
        ({"steps": [sql("SELECT 1 FROM orders", "Orders_bad")]}, 'view "Orders_bad" is also made at'),
        ({"sources": [replace(RETURNS, name="orders_bad"), ORDERS]}, 'view "orders_bad" is also made at'),
        ({"sources": [replace(ORDERS, name="my-orders")]}, 'the name "my-orders" may have'),
        ({"sources": [replace(ORDERS, topics=())]}, 'source "orders" needs either a topic or a pattern'),
        ({"sources": [replace(ORDERS, pattern=".*")]}, 'source "orders" needs either a topic or a pattern'),
        ({"sources": [replace(RETURNS, topics=(), pattern="[")]}, 'source "returns": [ is no regular expression: '),
        ({"sources": [replace(ORDERS, topics=["a/b"])]}, '"a/b" cannot be the name of a topic'),
        ({"sources": [replace(ORDERS, decode="jsn")]}, 'decode is "jsn". Did you mean "json"?'),
        ({"sources": [with_options(startingOffsets="earliest")]}, 'option "startingOffsets" cannot be set: the sink'),
        ({"sources": [with_options(STARTINGTIMESTAMP="0")]}, 'option "startingTimestamp" cannot be set: the sink'),
        ({"sources": [with_options(assign="{}")]}, 'option "assign" cannot be set: `topic` or `pattern` says'),
        ({"sources": [with_options(endingOffsets="latest")]}, 'option "endingOffsets" cannot be set: a stream has no'),
        ({"sources": [with_options(progressGroup="g")]}, 'option "progressGroup" cannot be set: each sink has'),
        ({"sources": [with_options(**{"kafka.client.id": "c"})]}, 'option "kafka.client.id" cannot be set here'),
        (
            {"sources": [with_options(maxOffsetPerTrigger="9")]},
            'source "orders": there is no option "maxOffsetPerTrigger". Did you mean "maxOffsetsPerTrigger"?',
        ),
        ({"sources": [with_options(minPartitions="few")]}, "option minPartitions is 'few', and should be a whole"),
        ({"sinks": [replace(TABLE, options={"a": "b"})]}, 'sink "all" has options, which are for delta and iceberg'),
        ({"sinks": [replace(TABLE, catalog="main")]}, 'sink "all" has a catalog, which is for iceberg'),
        ({"sources": [replace(ORDERS, start="end")]}, 'start is "end". There is earliest, latest.'),
        (
            {"sources": [replace(ORDERS, decode="raw", schema=None, bad="keep", mark_tombstones=True)]},
            '"orders" marks tombstones, which is for string, json, avro, protobuf: in a raw view their value is null',
        ),
        ({"sinks": [replace(TABLE, keep_snapshots=5)]}, "only an Iceberg table has snapshots to keep"),
        ({"sinks": [replace(TABLE, format="iceberg", keep_snapshots=1)]}, "1 is too few"),
        ({"sources": [replace(ORDERS, framing="avro")]}, 'framing is "avro". There is auto, none, confluent.'),
        ({"sources": [replace(ORDERS, framing="none")]}, '"orders" has a framing, which is for avro, protobuf'),
        ({"sources": [replace(ORDERS, schema=None)]}, 'source "orders" needs the fields of its JSON'),
        ({"sources": [replace(ORDERS, schema="id BIGIN, at TIMESTAMP")]},
         'source "orders": line 1 of the schema: there is no type BIGIN: did you mean BIGINT?'),
        ({"sources": [replace(ORDERS, schema="order.ddl")]}, "spec/order.ddl cannot be read"),
        ({"sources": [replace(ORDERS, watermark=Watermark(column="att", delay="5 s"))]},
         'source "orders" has no column "att" for its watermark. Did you mean "at"?'),
        ({"sources": [replace(ORDERS, decode="raw")]}, '"orders" has a schema, which is for json, avro, protobuf'),
        ({"sources": [replace(ORDERS, decode="avro", schema=None)]}, 'source "orders" needs the schema of its Avro'),
        ({"sources": [replace(ORDERS, decode="avro", schema="no.avsc")]}, "spec/no.avsc cannot be read"),
        ({"sources": [replace(ORDERS, decode="avro", schema=HERE.name)]}, 'source "orders": not an Avro schema'),
        ({"sources": [replace(ORDERS, decode="protobuf", schema="x")]}, "spec/x is not of the form FILE:MESSAGE"),
        ({"sources": [replace(ORDERS, decode="protobuf", schema="no.desc:shop.Order")]}, "spec/no.desc is not there"),
        ({"sources": [replace(ORDERS, watermark=Watermark(column="at", delay="5"))]}, 'the watermark of "orders"'),
        ({"sources": [ORDERS, replace(FILES, format="xml")]}, 'format is "xml"'),
        ({"sources": [ORDERS, replace(FILES, path="no*.csv")]}, "no*.csv, which is not there"),
        ({"steps": [sql("SELECT (a FROM orders")]}, 'step "made": a ( is opened here and never closed'),
        ({"steps": [sql("SELECT * FROM Order")]}, 'reads "Order", which nobody makes. Did you mean "orders"?'),
        ({"steps": [sql("SELECT 1", reads=["order"])]}, 'step "made" reads "order", which nobody makes'),
        ({"steps": [sql("SELECT * FROM orders, Returns", reads=["orders"])]},
         'step "made" reads "Returns", and its `reads` does not name it'),
        ({"steps": [sql("SELECT * FROM b", "a"), sql("SELECT * FROM a", "b")]}, "steps read each other in a circle: "),
        ({"steps": [sql("SELECT * FROM made")]}, "steps read each other in a circle: made → made"),
        ({"sinks": [replace(TABLE, reads="order")]}, 'writes "order", which nobody makes. Did you mean "orders"?'),
        ({"sinks": [replace(TABLE, format="orc")]}, 'format is "orc"'),
        ({"sinks": [replace(TABLE, reads="customers")]}, 'sink "all" depends on no topic'),
        ({"sinks": [TABLE, replace(TABLE, name="more")]}, 'sink "more" has the table'),
        ({"sinks": [TABLE, replace(TABLE, table="b", name="All")]}, 'sink "All" is also made at'),
        ({"sinks": [TopicSink(name="t", reads="orders", topic="a b", checkpoint="c")]}, '"a b" cannot be'),
        ({"sinks": [TopicSink(name="t", reads="orders", topic="t")]},
         'sink "t" needs a checkpoint, because it writes to a topic'),
        ({"sinks": [TopicSink(name="t", reads="orders", topic="t", checkpoint="c", mode="all")]}, 'mode is "all"'),
        ({"sinks": [TopicSink(name="t", reads="orders", topic="t", checkpoint="c", mode="update")]},
         'mode is "update". There is append, complete'),
        ({"sinks": [TopicSink(name="t", reads="orders", topic="t", checkpoint="c", encode="raw", key="id")]},
         "name the column `key` in the view instead"),
        ({"sinks": [replace(TABLE, checkpoint="c"), replace(TABLE, name="b", table="b", checkpoint="c")]},
         'sink "b" has the checkpoint'),
        ({"steps": [sql("SELECT id FROM orders GROUP BY id")], "sinks": [replace(TABLE, reads="made", checkpoint="c")]},
         'step "made" has GROUP BY, and without a watermark'),
    ],
)  # fmt: skip
def test_what_is_wrong(changes: dict[str, Any], expected: str) -> None:
    found = messages(pipeline(**changes))
    assert any(expected in each for each in found), found


@pytest.mark.parametrize(
    ("function", "reads", "expected"),
    [
        ("clean", ["orders"], "is not of the form file.py:function"),
        ("no.py:clean", ["orders"], "no.py, which is not there"),
        ("bad.py:clean", ["orders"], "bad.py is no Python: line 1"),
        ("good.py:claen", ["orders"], 'has no function "claen". Did you mean "clean"?'),
        ("good.py:clean", ["orders", "returns", "customers"], "clean takes 2 DataFrames, and `reads` names 3 views"),
        ("good.py:clean", [], "needs `reads`"),
        ("good.py:clean", ["orders"], None),
        ("good.py:clean", ["orders", "returns"], None),
        ("good.py:anything", ["orders", "returns"], None),
    ],
)
def test_functions_are_looked_for_without_running_them(
    tmp_path: Path, function: str, reads: list[str], expected: str | None
) -> None:
    (tmp_path / "bad.py").write_text("def (")
    (tmp_path / "good.py").write_text("def clean(orders, more=None): ...\ndef anything(*views): ...\nraise SystemExit")
    step = FunctionStep(name="cleaned", function=function, reads=reads)
    place = replace(step.place, file=tmp_path / "pipeline.toml")
    found = messages(pipeline(steps=[replace(step, place=place)], place=place, sources=[ORDERS, RETURNS]))
    assert (not found) if expected is None else any(expected in each for each in found)


@pytest.mark.parametrize("path", ["test_*.py", "test_check?.py", "test_{none,c[a-h]ecks}.py", "test_[^a]hecks.p*"])
def test_files_can_be_named_as_hadoop_names_them(path: str) -> None:
    assert messages(pipeline(sources=[ORDERS, replace(FILES, path=path)])) == []
    assert messages(pipeline(sources=[ORDERS, replace(FILES, path=f"no_{path}")])) != []


def test_a_table_belongs_to_one_sink_of_all_pipelines() -> None:
    found = messages(pipeline(), pipeline(name="other"))
    assert len(found) == 1 and "tables/all, which sink" in found[0]
    shop = replace(TABLE, table="shop.orders", format="iceberg")
    assert messages(pipeline(sinks=[shop, replace(shop, name="main", catalog="main")])) == []
    first, second = (replace(shop, name=name, options={"uri": f"http://me:secret@{name}"}) for name in ("a", "b"))
    assert messages(pipeline(sinks=[shop, first, second])) == []
    (again,) = messages(pipeline(sinks=[first, replace(first, name="b")]))
    assert "shop.orders, which sink" in again and "secret" not in again
    stores = [replace(shop, name=name, options={"uri": "http://c", "warehouse": name}) for name in ("a", "b")]
    assert messages(pipeline(sinks=stores)) == []
    folders = [replace(each, table="tables/orders") for each in stores]
    shared = [each for each in messages(pipeline(sinks=folders)) if "which sink" in each]
    assert len(shared) == 1, "a folder's catalog is beside it, whatever the options say"
    assert any('pipeline "p" is also made' in each for each in messages(pipeline(), pipeline()))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"options": {"uri": "u"}}, "tables/all is a folder, whose catalog is beside it: uri has no effect"),
        ({"catalog": "main"}, "tables/all is a folder, whose catalog is beside it: the catalog main has no effect"),
        ({"table": "s3://lake/orders"}, "s3://lake/orders is no table in a catalog: name it as namespace.table"),
        ({"table": "tables/all-orders"}, "all-orders cannot name an Iceberg table"),
        ({"table": "s3://lake/orders", "format": "parquet"}, "s3://lake/orders is not a folder of this machine"),
        ({"table": "tables/all-orders", "format": "parquet"}, None),
        ({"table": "shop.orders", "catalog": "main", "options": {"uri": "u"}}, None),
        ({"table": "s3://lake/orders", "format": "delta", "options": {"AWS_REGION": "r"}}, None),
    ],
)
def test_what_a_table_cannot_be_or_would_not_heed_is_found(changes: dict[str, Any], expected: str | None) -> None:
    found = messages(pipeline(sinks=[replace(TABLE, **{"format": "iceberg", **changes})]))
    assert found == [] if expected is None else len(found) == 1 and 'sink "all": ' in found[0] and expected in found[0]


def test_a_table_of_dead_letters_belongs_to_the_partitioned_table_beside() -> None:
    bad = replace(TABLE, name="bad", table=f"{TABLE.table}_dead/")
    assert messages(pipeline(sinks=[TABLE, bad])) == [], "a table without partitions has a place for every row"
    (found,) = messages(pipeline(sinks=[replace(TABLE, partition_by=["day"]), bad]))
    assert "tables/all_dead, which is for rows that the partitions of sink" in found


def test_values_that_do_not_fit_are_kept_unless_the_source_says_otherwise() -> None:
    keeping = {"sources": [replace(ORDERS, bad="keep"), RETURNS]}
    bad = TableSink(name="bad", reads="orders_BAD", table="tables/bad")
    vanish = [
        'values of source "orders" that cannot be decoded would vanish: add a sink with from = "orders_bad", or say '
        'bad = "drop"'
    ]
    assert messages(pipeline(**keeping)) == vanish
    assert messages(pipeline(**keeping, sinks=[TABLE, bad])) == []
    step = sql("SELECT reason FROM orders_bad")
    assert messages(pipeline(**keeping, steps=[step])) == vanish, "a step that no sink reads keeps nothing"
    assert messages(pipeline(**keeping, steps=[step], sinks=[TABLE, replace(bad, reads="made")])) == []
    assert messages(pipeline(**keeping, sinks=[replace(TABLE, reads="returns")])) == [], "its values are not asked for"
    texts = {"sources": [replace(ORDERS, decode="string", schema=None, bad="keep")]}
    assert messages(pipeline(**texts)) == vanish, "not every value is UTF-8"
    assert messages(pipeline(**texts, sinks=[TABLE, bad])) == []
    assert 'bad is "dorp". Did you mean "drop"?' in messages(pipeline(sources=[replace(ORDERS, bad="dorp")]))


@pytest.mark.parametrize(
    ("steps", "reads", "reason"),
    [
        ([], "orders", None),
        ([], "ORDERS_bad", None),
        ([sql("SELECT o.* FROM orders o JOIN customers c ON o.id = c.id")], "made", None),
        ([sql("SELECT id FROM orders UNION ALL SELECT 1 FROM returns")], "made", None),
        ([sql("SELECT id FROM customers GROUP BY id", "few"), sql("SELECT * FROM orders JOIN few")], "made", None),
        ([sql("SELECT * FROM orders JOIN returns")], "made", 'step "made" joins streams'),
        (
            [sql("WITH o AS (SELECT id FROM orders) SELECT a.id FROM o a JOIN o b ON a.id = b.id")],
            "made",
            'step "made" joins streams',
        ),
        ([sql("SELECT 1 FROM orders a JOIN Orders b", reads=["orders"])], "made", 'step "made" joins streams'),
        ([sql("SELECT 1 FROM orders JOIN customers a JOIN customers b", reads=["orders", "customers"])], "made", None),
        (
            [sql("WITH c AS (SELECT * FROM customers) SELECT 1 FROM orders JOIN c a JOIN c b")],
            "made",
            None,
        ),
        (
            [sql("WITH o AS (SELECT id FROM orders) SELECT id FROM o UNION ALL SELECT -id FROM o")],
            "made",
            'topic "orders" is read more than once',
        ),
        ([sql("SELECT id FROM orders GROUP BY id", watermark=LATE)], "made", 'step "made" has GROUP BY'),
        ([sql("SELECT count(*) FROM orders", watermark=LATE)], "made", 'step "made" has count()'),
        (
            [sql("SELECT DISTINCT id FROM orders", "once"), sql("SELECT id + 1 FROM once")],
            "made",
            'step "once" has DISTINCT',
        ),
        (
            [sql("SELECT id FROM orders UNION ALL SELECT -id FROM orders")],
            "made",
            'topic "orders" is read more than once',
        ),
        (
            [FunctionStep(name="made", function=lambda orders: orders, reads=["orders"])],
            "made",
            'step "made" is a function that did not promise to be stateless',
        ),
        ([FunctionStep(name="made", function=lambda orders: orders, reads=["orders"], stateless=True)], "made", None),
        (
            [sql("SELECT '", reads=["orders"])],
            "made",
            'step "made" has a query that only Spark understands',
        ),
    ],
)
def test_a_checkpoint_is_needed_only_where_rows_depend_on_earlier_ones(
    steps: list[Any], reads: str, reason: str | None
) -> None:
    sink = replace(TABLE, reads=reads)
    whole = pipeline(steps=steps, sinks=[sink])
    assert flow_to(whole, sink).keeps_state == reason
    assert flow_to(whole, sink).by_offsets == (reason is None)
    assert any(f"needs a checkpoint, because {reason}: " in each for each in messages(whole)) == (reason is not None)
    assert messages(replace(whole, checkpoints="c")) == []


def test_steps_come_after_what_they_read() -> None:
    steps = [sql("SELECT * FROM b JOIN C", "a"), sql("SELECT * FROM c", "b"), sql("SELECT * FROM orders", "c")]
    flow = flow_to(pipeline(steps=steps), replace(TABLE, reads="a"))
    assert [step.name for step in flow.steps] == ["c", "b", "a"]
    assert [source.name for source in flow.topics] == ["orders"]
