"""Tasks that saw different records of JSON come to one schema, and no value gets lost on the way there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.pipelines.decode.contract import METADATA
from barnabas.pipelines.decode.json import JsonDecoder
from barnabas.pipelines.loading.tasks.agreement import agree
from barnabas.pipelines.loading.tasks.task import TaskResult
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.spark.read.rows import record_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.spark.read.offsets import Piece

    Document = dict[str, Any]

NAMES = st.sampled_from("abC")
LARGE = 2**53 + 1
"""A whole number that DOUBLE would round."""
LEAVES = st.sampled_from([None, True, 5, 1.5, LARGE, "text"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)
TASKS = st.lists(st.lists(st.dictionaries(NAMES, VALUES, max_size=2), min_size=1, max_size=3), min_size=2, max_size=3)


def decoded(documents: Sequence[Document], decoder: Decoder) -> dict[int, Document]:
    """The rows by offset, as far as they tell anything; each document is a row or a dead letter."""
    schema = record_schema()
    columns = {field.name: pa.nulls(len(documents), field.type) for field in schema}
    columns["value"] = pa.array([json.dumps(document).encode() for document in documents], pa.binary())
    columns["offset"] = pa.array(range(len(documents)), pa.int64())
    found = decoder.decode(pa.record_batch(columns, schema=schema))
    assert found.rows.num_rows + found.dead.num_rows == len(documents)
    return {row.pop("_offset"): without_nulls(row) for row in found.rows.to_pylist()}


def without_nulls(value: Any) -> Any:
    """A value without what tells nothing: null, and what is empty."""
    if isinstance(value, dict):
        return {name: inner for name, each in value.items() if (inner := without_nulls(each)) not in (None, {}, [])}
    if isinstance(value, list):
        return [inner for each in value if (inner := without_nulls(each)) not in (None, {}, [])]
    return value


@given(TASKS)
@example([[{"a": {"x": 1}}], [{"a": 5}, {"a": {"y": 7}}]])
def test_every_value_is_in_a_row_or_dead(tasks: list[list[Document]]) -> None:
    results, schema, rows = agreed(tasks, batch=3)
    for done, documents in zip(results, tasks, strict=True):
        assert all(schema.field(field.name).type == field.type for field in done.schema), "a value without a column"
        assert all(row == without_nulls(documents[offset]) for offset, row in rows[done.piece[0].partition].items())


@given(TASKS)
@example([[{"a": LARGE}, {"a": 1.5}]])
@example([[{"a": 1.5}, {"a": LARGE}, {"a": 2}]])
@example([[{"a": 1}], [{"a": LARGE}, {"b": 1}], [{"b": 1.5, "a": 1.5}]])
@example([[{"a": [5]}, {"b": [], "a": [1.5]}], [{"b": True}]])
@example([[{"a": [1.5, True]}, {"a": [5]}]])
@example([[{"a": [1, LARGE]}, {"a": [{}, 2.5]}]])
def test_batches_decide_nothing(tasks: list[list[Document]]) -> None:
    """Where one ends is a matter of chance: of how fast records arrive. Only the order of columns may differ."""
    _, schema, rows = agreed(tasks, batch=3)
    _, same_schema, same_rows = agreed(tasks, batch=1)
    assert by_name(pa.struct(list(same_schema))) == by_name(pa.struct(list(schema)))
    assert same_rows == rows


def by_name(kind: pa.DataType) -> pa.DataType:
    """The type with its fields in the order of their names."""
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, by_name(each.type)) for each in sorted(kind, key=lambda each: str(each.name))])
    return pa.list_(by_name(kind.value_type)) if pa.types.is_list(kind) else kind


def agreed(
    tasks: list[list[Document]], *, batch: int
) -> tuple[list[TaskResult], pa.Schema, dict[int, dict[int, Document]]]:
    """What tasks come to that decode so many records at once: results, schema, and rows by partition and offset."""
    rows: dict[int, dict[int, Document]] = {}

    def run(pieces: Sequence[Piece], schema: pa.Schema) -> list[TaskResult]:
        done = []
        for piece in pieces:
            decoder = JsonDecoder().bound(schema)
            assert isinstance(decoder, JsonDecoder)
            documents = tasks[piece[0].partition]
            found: dict[int, Document] = {}
            for start in range(0, len(documents), batch):
                part = decoded(documents[start : start + batch], decoder)
                found |= {start + offset: row for offset, row in part.items()}
            rows[piece[0].partition] = found
            done.append(TaskResult(piece, decoder.schema, decoder.inferred))
        return done

    pieces = [(OffsetRange("t", index, 0, len(documents)),) for index, documents in enumerate(tasks)]
    results, schema = agree(METADATA, run(pieces, METADATA), run)
    return results, schema, rows
