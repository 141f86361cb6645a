"""What one task makes of its records does not depend on which other tasks its worker ran before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.decode.contract import METADATA
from barnabas.pipelines.decode.json import JsonDecoder
from barnabas.pipelines.loading.tasks import task
from barnabas.pipelines.loading.tasks.task import TaskSettings, run_task
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.files.destinations import Destination
from tests.support.load_jobs import NAME, MemoryTopic, ranges_by

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_task_leaves_the_decoder_that_others_share_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = MemoryTopic(partitions=2)
    topic.send(b'{"id": 1.5}', b'{"of": "another field"}')
    topic.send(b'{"id": 1234567890123456781}', partition=1)
    monkeypatch.setattr(task, "read_ranges", ranges_by(topic.read))
    shared = JsonDecoder().bound(METADATA)
    settings = TaskSettings({}, shared, Destination(str(tmp_path / "rows")), Destination(str(tmp_path / "dead")))
    before = shared.schema
    first = run_task((OffsetRange(NAME, 0, 0, 2),), settings)
    second = run_task((OffsetRange(NAME, 1, 0, 1),), settings)
    assert shared.schema == before
    assert {"id", "of"} <= set(first.schema.names)
    assert [name for name in second.schema.names if not name.startswith("_")] == ["id"]


def test_a_task_tells_where_its_first_dead_letters_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = MemoryTopic()
    topic.send(b'{"id": 1}', *[b"no JSON"] * 10)
    monkeypatch.setattr(task, "read_ranges", ranges_by(topic.read))
    places = Destination(str(tmp_path / "rows")), Destination(str(tmp_path / "dead"))
    done = run_task((OffsetRange(NAME, 0, 0, 11),), TaskSettings({}, JsonDecoder().bound(METADATA), *places))
    assert sum(file.rows for file in done.dead_files) == 10
    assert list(done.letters) == [(NAME, 0, offset) for offset in range(1, 6)]
