"""What becomes of a batch: of one without records, one that another job has brought, one with rows without a place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.runner.queries import table_sink
from barnabas.pipelines.runner.queries.checkpoints import Checkpoint
from barnabas.pipelines.runner.queries.table_sink import TableBatches, WrittenFiles, write_rows
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.contract import BATCHES
from barnabas.pipelines.tables.errors import Fenced, TopicReplaced
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import dead_letters_location, open_table
from tests.support.tables import content

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.tables.table import Table

pytestmark = pytest.mark.slow

PLACE = TopicPartition("orders", 0)
IDS = {"orders": "topic-id"}
SCHEMA = pa.schema([("n", pa.int64())])
NO_FRAME = cast("Any", None)


def batches(table: Table, folder: Path, *, begun: int, end: int, quiet: int | None = None) -> TableBatches:
    """The sink of a query whose batch 0 has these offsets; a second partition gives no records."""
    noted = folder / "checkpoint" / "offsets" / "0"
    noted.parent.mkdir(parents=True)
    noted.write_text(f'v1\n{{}}\n{{"orders":{{"0":{end}}}}}')
    checkpoint = Checkpoint(cast("Any", None), str(folder / "checkpoint"))
    begins = {PLACE: begun} | ({} if quiet is None else {TopicPartition("orders", 1): quiet})
    return TableBatches(table, None, "p", checkpoint, SCHEMA, begun=begins, topic_ids=lambda _: IDS, by_offsets=True)


def test_a_batch_without_records_is_no_commit(tmp_path: Path) -> None:
    with open_table(str(tmp_path / "table"), "parquet") as table:
        batches(table, tmp_path, begun=5, end=5)(NO_FRAME, 0)
        assert table.position("p") is None


def test_the_first_commit_notes_where_partitions_begin_that_gave_nothing_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that one that the table does not know is a new one, all of whose records are to be read."""
    monkeypatch.setattr(table_sink, "written", lambda *_, **__: WrittenFiles([]))
    quiet = TopicPartition("orders", 1)
    with open_table(str(tmp_path / "table"), "parquet") as table:
        sink = batches(table, tmp_path, begun=5, end=9, quiet=500)
        sink(NO_FRAME, 0)
        sink(NO_FRAME, 0)
        position = table.position("p")
        assert position is not None
        assert (position.offsets, position.version) == ({PLACE: 9, quiet: 500}, 1)


def test_a_job_whose_batch_another_one_brought_meanwhile_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_table(str(tmp_path / "table"), "parquet") as table:

        def written_while_another_commits(*_: object, **__: object) -> WrittenFiles:
            table.commit("p", [OffsetRange(*PLACE, 5, 9)], IDS, [], SCHEMA)
            return WrittenFiles([])

        monkeypatch.setattr(table_sink, "written", written_while_another_commits)
        sink = batches(table, tmp_path, begun=5, end=9)
        with pytest.raises(Fenced, match=r'another job has just loaded the same records into .* as "p"'):
            sink(NO_FRAME, 0)
        sink(NO_FRAME, 0)


DAYS = pa.schema([("n", pa.int64()), ("day", pa.date32())])
FAR = 3_000_000
"""A day beyond the year 9999."""


class Days:
    """A query whose batch N has the offsets 10 N to 10 N + 10, and in each the rows of which some fit the table."""

    def __init__(self, folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch, *, by_offsets: bool = True) -> None:
        self.place = str(folder / "table")
        self.beside = dead_letters_location(self.place)
        self._kind = kind
        self._by_offsets = by_offsets
        self._checkpoint = folder / "checkpoint"
        (self._checkpoint / "offsets").mkdir(parents=True)
        (self._checkpoint / "metadata").write_text('{"id":"the-checkpoint"}')
        monkeypatch.setattr(table_sink, "written", write_rows)

    def run(self, batch: int, *days: int) -> None:
        """Run a batch with these days, as a process that knows the tables alone."""
        offsets = f'v1\n{{}}\n{{"orders":{{"0":{10 * batch + 10}}}}}'
        (self._checkpoint / "offsets" / str(batch)).write_text(offsets)
        frame = MagicMock()
        frame.__iter__.return_value = [
            pa.record_batch([pa.array(days, pa.int64()), pa.array(days, pa.int32()).cast(pa.date32())], schema=DAYS)
        ]
        with (
            open_table(self.place, self._kind, partition_by=["day"]) as table,
            open_table(self.beside, self._kind) as dead,
        ):
            checkpoint = Checkpoint(cast("Any", None), str(self._checkpoint))
            sink = TableBatches(
                table,
                dead,
                "p",
                checkpoint,
                DAYS,
                begun={PLACE: 0},
                topic_ids=lambda _: IDS,
                by_offsets=self._by_offsets,
            )
            sink(frame, batch)

    def rows(self) -> list[int]:
        with open_table(self.place, self._kind) as table:
            return sorted(content(self._kind, self.place, table.schema()).column("n").to_pylist())

    def letters(self) -> list[int]:
        values = content(self._kind, self.beside).column("value").to_pylist()
        return sorted(json.loads(value)["n"] for value in values)


@pytest.mark.parametrize("by_offsets", [True, False])
@pytest.mark.parametrize("kind", FORMATS)
def test_rows_without_a_place_are_dead_letters_each_once(
    tmp_path: Path, kind: str, by_offsets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Days(tmp_path, kind, monkeypatch, by_offsets=by_offsets)
    query.run(0, 1, FAR, 2)
    query.run(0, 1, FAR, 2)
    query.run(1, 3, 4)
    query.run(2, FAR + 1, FAR + 2)
    assert query.rows() == [1, 2, 3, 4]
    assert query.letters() == [FAR, FAR + 1, FAR + 2]
    with open_table(query.beside, kind) as dead:
        position = dead.position("p")
    assert position is not None and position.offsets == {PLACE: 30} | ({} if by_offsets else {BATCHES: 3})


@pytest.mark.parametrize("again", [0, 1])
@pytest.mark.parametrize("by_offsets", [True, False])
def test_letters_that_a_crash_kept_back_are_delivered_before_the_next_commit(
    tmp_path: Path, by_offsets: bool, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies between the two; Spark knows of that batch, or runs it again."""
    query = Days(tmp_path, "delta", monkeypatch, by_offsets=by_offsets)
    with monkeypatch.context() as dying:
        dying.setattr(table_sink, "deliver", MagicMock(side_effect=SystemExit))
        with pytest.raises(SystemExit):
            query.run(0, 1, FAR)
    assert query.rows() == [1]
    for batch in range(again, 2):
        query.run(batch, batch + 1, FAR + batch)
    assert query.rows() == [1, 2]
    assert query.letters() == [FAR, FAR + 1]


def test_a_batch_is_refused_if_another_one_was_added_while_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's letters would be forgotten with its promise."""
    query = Days(tmp_path, "delta", monkeypatch)

    def written_while_another_commits(*arguments: Any, **named: Any) -> WrittenFiles:
        with open_table(query.place, "delta") as table:
            table.commit("p", [OffsetRange("orders", 1, 0, 5)], IDS, [], DAYS)
        return write_rows(*arguments, **named)

    query.run(0, 1)
    monkeypatch.setattr(table_sink, "written", written_while_another_commits)
    with pytest.raises(Fenced, match="was changed while records were read for it"):
        query.run(1, 2)
    assert query.rows() == [1]


def test_a_topic_that_is_made_again_while_a_batch_is_read_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = dict(IDS)
    with open_table(str(tmp_path / "table"), "parquet") as table:

        def written_meanwhile(*_: object, **__: object) -> WrittenFiles:
            ids["orders"] = "another"
            return WrittenFiles([])

        monkeypatch.setattr(table_sink, "written", written_meanwhile)
        sink = batches(table, tmp_path, begun=5, end=9)
        monkeypatch.setattr(sink, "_topic_ids", lambda _: dict(ids))
        with pytest.raises(TopicReplaced, match='"orders" was deleted and created again while it was read'):
            sink(NO_FRAME, 0)
        assert table.position("p") is None
