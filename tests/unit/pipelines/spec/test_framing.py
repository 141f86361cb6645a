"""A pipeline file can say whether a schema registry's id comes before its values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from barnabas.pipelines.spark.read.rows import RECORD_SCHEMA
from barnabas.pipelines.spec import TopicSource, load_pipelines
from barnabas.pipelines.spec.decoders import decoder_of

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = [{"name": "id", "type": "long"}, {"name": "phone", "type": "string"}]
SCHEMA = {"type": "record", "name": "Call", "fields": FIELDS}
EITHER = b"\x00" + bytes([29 * 2]) + b"0" * 29
"""An id of 0 and a text; or a registry's five bytes, an id of 24 and a text of the 24 zeros that are left."""
FILE = """
name = "calls"
[kafka]
"bootstrap.servers" = "localhost:9092"
[sources.calls]
topic = "calls"
decode = "avro"
schema = "call.avsc"
bad = "drop"
{framing}
[sinks.calls]
from = "calls"
table = "calls"
"""


@pytest.mark.parametrize(
    ("framing", "ids"),
    [("", []), ('framing = "auto"', []), ('framing = "none"', [0]), ('framing = "confluent"', [24])],
)
def test_what_the_file_says_of_framing_is_how_values_are_read(tmp_path: Path, framing: str, ids: list[int]) -> None:
    (tmp_path / "call.avsc").write_text(json.dumps(SCHEMA))
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE.format(framing=framing))
    [pipeline] = load_pipelines([path])
    [source] = pipeline.sources
    assert isinstance(source, TopicSource)
    record = {"value": EITHER, "topic": "calls", "partition": 0, "offset": 0}
    found = decoder_of(source, pipeline).decode(pa.RecordBatch.from_pylist([record], schema=RECORD_SCHEMA))
    assert found.rows.column("id").to_pylist() == ids
    assert found.dead.num_rows == 1 - len(ids), "what can be read in two ways is not guessed at"
