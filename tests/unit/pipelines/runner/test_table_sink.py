"""What becomes of a batch that has no records, and of one that another job has brought meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.offsets import OffsetRange
from barnabas.pipelines.runner import table_sink
from barnabas.pipelines.runner.checkpoints import Checkpoint
from barnabas.pipelines.runner.table_sink import TableBatches
from barnabas.pipelines.tables.errors import Fenced
from barnabas.pipelines.tables.opening import open_table

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.tables.contract import DataFile
    from barnabas.pipelines.tables.table import Table

PLACE = TopicPartition("orders", 0)
IDS = {"orders": "topic-id"}
SCHEMA = pa.schema([("n", pa.int64())])
NO_FRAME = cast("Any", None)


def batches(table: Table, folder: Path, *, begun: int, end: int) -> TableBatches:
    """The sink of a query whose batch 0 has these offsets."""
    noted = folder / "checkpoint" / "offsets" / "0"
    noted.parent.mkdir(parents=True)
    noted.write_text(f'v1\n{{}}\n{{"orders":{{"0":{end}}}}}')
    checkpoint = Checkpoint(cast("Any", None), str(folder / "checkpoint"))
    return TableBatches(table, "p", checkpoint, SCHEMA, begun={PLACE: begun}, topic_ids=lambda _: IDS, by_offsets=True)


def test_a_batch_without_records_is_no_commit(tmp_path: Path) -> None:
    with open_table(str(tmp_path / "table"), "parquet") as table:
        batches(table, tmp_path, begun=5, end=5)(NO_FRAME, 0)
        assert table.position("p") is None


def test_a_job_whose_batch_another_one_brought_meanwhile_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_table(str(tmp_path / "table"), "parquet") as table:

        def written_while_another_commits(_: object, __: object) -> list[DataFile]:
            table.commit("p", [OffsetRange(*PLACE, 5, 9)], IDS, [], SCHEMA)
            return []

        monkeypatch.setattr(table_sink, "written", written_while_another_commits)
        sink = batches(table, tmp_path, begun=5, end=9)
        with pytest.raises(Fenced, match=r'another job has just loaded the same records into .* as "p"'):
            sink(NO_FRAME, 0)
        sink(NO_FRAME, 0)
