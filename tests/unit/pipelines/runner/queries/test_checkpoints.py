"""What is read from the files of Spark's checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.runner.queries.checkpoints import Checkpoint

if TYPE_CHECKING:
    from pathlib import Path

NO_SPARK = cast("Any", None)
"""Files of this machine are read without it."""


def write(folder: Path, name: str, *lines: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def test_nothing_is_known_of_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    checkpoint = Checkpoint(NO_SPARK, str(tmp_path / "none"))
    assert (checkpoint.id(), checkpoint.has_batches(), checkpoint.offsets(0)) == (None, False, None)


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("/tmp/a b%20c", "file:///tmp/a b%20c"),
        ("file:///tmp/a%20b", "file:///tmp/a b"),
        ("hdfs://host/checkpoints/a", "hdfs://host/checkpoints/a"),
    ],
)
def test_spark_looks_for_a_checkpoint_where_we_do(location: str, address: str) -> None:
    assert Checkpoint(NO_SPARK, location).address == address


def test_a_checkpoint_has_an_id_and_the_ends_of_its_batches(tmp_path: Path) -> None:
    write(tmp_path, "metadata", '{"id":"ef33b43c"}')
    write(tmp_path, "offsets/7", "v1", '{"batchWatermarkMs":0}', '{"orders":{"0":5,"1":3}}', "-", '{"orders":{"0":4}}')
    checkpoint = Checkpoint(NO_SPARK, tmp_path.as_uri())
    assert checkpoint.id() == "ef33b43c"
    assert checkpoint.offsets(7) == {TopicPartition("orders", 0): 4, TopicPartition("orders", 1): 3}
    assert not checkpoint.has_batches()
    write(tmp_path, "commits/.150.crc")
    assert not checkpoint.has_batches()
    write(tmp_path, "commits/150", "v1", "{}")
    assert checkpoint.has_batches(), "the notes of earlier batches are gone"
