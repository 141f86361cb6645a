"""Which table a sink of a pipeline has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from barnabas.pipelines.runner.table_query import table_of
from barnabas.pipelines.spec import load_pipelines
from barnabas.pipelines.spec.model import TableSink
from barnabas.pipelines.tables.opening import open_table

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = pa.schema([("n", pa.int64())])


def test_a_table_can_be_in_any_catalog(tmp_path: Path) -> None:
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/warehouse"}
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'''
name = "p"
[kafka]
"bootstrap.servers" = "localhost:9092"
[sources.numbers]
topic = "numbers"
[sinks.all]
from = "numbers"
table = "shop.numbers"
format = "iceberg"
catalog = "main"
options = {{ type = "sql", uri = "{options["uri"]}", warehouse = "{options["warehouse"]}" }}
'''
    )
    [pipeline] = load_pipelines([file])
    [sink] = pipeline.sinks
    assert isinstance(sink, TableSink)
    with table_of(pipeline, sink) as table:
        table.commit("p", [], {}, [], NUMBERS)
    with open_table("shop.numbers", "iceberg", catalog="main", options=options) as table:
        assert table.position("p") is not None
