"""Tasks that saw different records of JSON come to one schema, and no value gets lost on the way there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.pipelines.decode.contract import METADATA
from barnabas.pipelines.decode.json import Json
from barnabas.pipelines.loading.agreement import agree
from barnabas.pipelines.loading.task import Done
from barnabas.pipelines.offsets import OffsetRange
from barnabas.pipelines.rows import record_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.loading.plan import Piece

    Document = dict[str, Any]

NAMES = st.sampled_from("abC")
LEAVES = st.sampled_from([None, True, 5, 1.5, "text"])
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
    return {row.pop("_offset"): told(row) for row in found.rows.to_pylist()}


def told(value: Any) -> Any:
    """A value without what tells nothing: null, and what is empty."""
    if isinstance(value, dict):
        return {name: inner for name, each in value.items() if (inner := told(each)) not in (None, {}, [])}
    if isinstance(value, list):
        return [inner for each in value if (inner := told(each)) not in (None, {}, [])]
    return value


@given(TASKS)
@example([[{"a": {"x": 1}}], [{"a": 5}, {"a": {"y": 7}}]])
def test_every_value_is_in_a_row_or_dead(tasks: list[list[Document]]) -> None:
    rows: dict[int, dict[int, Document]] = {}

    def run(pieces: Sequence[Piece], schema: pa.Schema) -> list[Done]:
        done = []
        for piece in pieces:
            decoder = Json().bound(schema)
            rows[piece[0].partition] = decoded(tasks[piece[0].partition], decoder)
            done.append(Done(piece, decoder.schema))
        return done

    pieces = [(OffsetRange("t", index, 0, len(documents)),) for index, documents in enumerate(tasks)]
    results, schema = agree(METADATA, run(pieces, METADATA), run)
    for done, documents in zip(results, tasks, strict=True):
        assert all(schema.field(field.name).type == field.type for field in done.schema), "a value without a column"
        assert all(row == told(documents[offset]) for offset, row in rows[done.piece[0].partition].items())
