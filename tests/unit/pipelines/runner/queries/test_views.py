"""Which views a source makes, and how its values are decoded for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from barnabas.pipelines.loading.tasks.task import COLUMNS
from barnabas.pipelines.runner.failures import classify_failure
from barnabas.pipelines.runner.queries import decoding, views
from barnabas.pipelines.runner.queries.decoding import Views
from barnabas.pipelines.spark.read.rows import record_schema
from barnabas.pipelines.spec.flows import Flow
from barnabas.pipelines.spec.model import FunctionStep, Pipeline, TableSink, TopicSource
from barnabas.pipelines.spec.places import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.pipelines.decode.contract import Decoded, Decoder


def made_of(source: TopicSource, values: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> Decoded:
    """What the views of a source hold, without Spark."""
    used: list[Decoder] = []
    made: list[str] = []

    def decode_views(_: object, decoder: Decoder) -> Views:
        used.append(decoder)
        return Views(*(view(name) for name in ("rows", "bad")))

    def view(name: str) -> Any:
        frame = MagicMock(name=name)
        frame.createOrReplaceTempView = made.append
        return frame

    monkeypatch.setattr(views, "decode_views", decode_views)
    sink = TableSink(name="all", reads=source.name, table="t")
    pipeline = Pipeline(name="p", kafka={"bootstrap.servers": "x"}, sources=[source], sinks=[sink])
    views.make_views(MagicMock(), pipeline, sink, Flow((), (source,), None), {source.name: "earliest"})
    assert made == [source.name, f"{source.name}_bad"]
    schema = record_schema(columns=COLUMNS)
    records = [{"value": value, "topic": "t", "partition": 0, "offset": at} for at, value in enumerate(values)]
    return decoding._decode(used[0], pa.RecordBatch.from_pylist(records, schema=schema))


def test_what_follows_an_object_of_json_makes_it_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    source = TopicSource(name="orders", topics=["t"], decode="json", schema="id BIGINT")
    found = made_of(source, [b'{"id": 1}', b'{"id": 2} rubbish', b'{"id": 3}{"id": 4}', None], monkeypatch)
    assert found.rows.column("id").to_pylist() == [1]
    reasons = dict(zip(found.dead.column("offset").to_pylist(), found.dead.column("reason").to_pylist(), strict=True))
    assert sorted(reasons) == [1, 2, 3]
    assert "Extra data" in reasons[1] and "Extra data" in reasons[2] and reasons[3] == "there is no value"


@pytest.mark.parametrize("decode", ["json", "string"])
def test_records_without_a_value_are_rows_where_they_are_marked(decode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = "id BIGINT" if decode == "json" else None
    source = TopicSource(name="orders", topics=["t"], decode=decode, schema=schema, mark_tombstones=True)
    found = made_of(source, [b'{"id": 1}', None, b"{}", b"\xff"], monkeypatch)
    told = dict(zip(found.rows.column("_offset").to_pylist(), found.rows.column("_tombstone").to_pylist(), strict=True))
    assert told == {0: False, 1: True, 2: False}
    assert found.dead.column("offset").to_pylist() == [3]


def test_what_is_no_text_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made_of(TopicSource(name="lines", topics=["t"], decode="string"), [b"a", b"\xff"], monkeypatch)
    assert found.rows.column("value").to_pylist() == ["a"]
    assert found.dead.column("value").to_pylist() == [b"\xff"]
    assert found.dead.column("reason").to_pylist() == ["not UTF-8: invalid start byte at byte 0"]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda orders: None, '"made" gives None, and should return a DataFrame'),
        (lambda orders: orders[0].no, "\"made\": AttributeError: 'str' object has no attribute 'no'"),
        (lambda orders: orders[1], '"made": IndexError: list index out of range'),
    ],
)
def test_a_mistake_of_a_function_is_told_at_its_step(function: Callable[..., Any], expected: str) -> None:
    """And nothing is tried again."""
    step = FunctionStep(name="made", function=function, reads=["orders"], stateless=True)
    sink = TableSink(name="all", reads="made", table="t")
    pipeline = Pipeline(name="p", kafka={"bootstrap.servers": "x"}, sources=[], steps=[step], sinks=[sink])
    spark = MagicMock()
    spark.table = lambda name: [name]
    with pytest.raises(SpecError) as caught:
        views.make_views(spark, pipeline, sink, Flow((step,), (), None), {})
    assert caught.value.problems == (Problem(step.place, expected),)
    assert not classify_failure(caught.value).passes
