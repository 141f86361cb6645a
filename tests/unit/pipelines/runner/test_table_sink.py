"""What becomes of a batch that has no records: nothing, and no table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.runner.checkpoints import Checkpoint
from barnabas.pipelines.runner.table_sink import TableBatches
from barnabas.pipelines.tables.opening import open_table

if TYPE_CHECKING:
    from pathlib import Path

PLACE = TopicPartition("orders", 0)


def test_a_batch_without_records_is_no_commit(tmp_path: Path) -> None:
    nothing = cast("Any", None)
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{}\n{"orders":{"0":5}}')
    with open_table(str(tmp_path / "table"), "parquet") as table:
        batches = TableBatches(
            table,
            "p",
            Checkpoint(nothing, str(tmp_path / "checkpoint")),
            pa.schema([("n", pa.int64())]),
            begun={PLACE: 5},
            topic_ids=lambda topics: dict.fromkeys(topics, "topic-id"),
            by_offsets=True,
        )
        batches(nothing, 0)
        assert table.position("p") is None
