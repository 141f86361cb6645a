"""How long the first epoch of a stream has been unfinished, as its checkpoint tells."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import pytest

from barnabas.pipelines.errors import MarkerRefused
from barnabas.pipelines.spark.write import first_epoch
from barnabas.pipelines.spark.write.first_epoch import check_first_epoch, unfinished_for
from barnabas.pipelines.spark.write.options import SinkOptions
from barnabas.pipelines.tables.delta import store as delta_files
from barnabas.pipelines.tables.delta.store import delta_store
from barnabas.pipelines.tables.errors import UnusableTarget

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow import fs


class Retention:
    """A cluster that keeps offsets so long, or does not tell."""

    def __init__(self, kept: timedelta | None) -> None:
        self._kept = kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def offsets_retention(self) -> timedelta | None:
        return self._kept


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """One whose first epoch began an hour ago."""
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "0").touch()
    began = time.time() - 3600
    os.utime(tmp_path / "offsets" / "0", (began, began))
    return tmp_path


def test_the_first_epoch_is_as_old_as_its_offsets(checkpoint: Path) -> None:
    for location in (str(checkpoint), checkpoint.as_uri()):
        age = unfinished_for(location)
        assert age is not None
        assert timedelta(hours=1) <= age < timedelta(hours=2)


def test_any_finished_epoch_is_the_end_of_the_first(checkpoint: Path) -> None:
    (checkpoint / "commits" / ".0.crc").touch()
    assert unfinished_for(str(checkpoint)) is not None
    (checkpoint / "commits" / "17").touch()
    assert unfinished_for(str(checkpoint)) is None


@pytest.mark.parametrize(
    ("kept", "text"),
    [(timedelta(minutes=30), r"for 0:30:00: offsets\.retention"), (None, "no broker tells its offsets")],
)
def test_notes_that_may_have_expired_are_not_trusted(
    monkeypatch: pytest.MonkeyPatch, checkpoint: Path, kept: timedelta | None, text: str
) -> None:
    options = SinkOptions(client={}, topic="t", exactly_once=True, checkpoint=str(checkpoint))
    monkeypatch.setattr(first_epoch, "ClusterView", lambda _: Retention(kept))
    with pytest.raises(MarkerRefused, match=text):
        check_first_epoch(options)
    monkeypatch.setattr(first_epoch, "ClusterView", lambda _: Retention(timedelta(days=7)))
    check_first_epoch(options)


def test_a_checkpoint_on_hdfs_is_looked_at_too(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def there(address: str, _: object) -> fs.FileSystem:
        assert address == "hdfs://host:8020/checkpoint"
        return delta_store(checkpoint.as_uri(), None)

    def nowhere(*_: object) -> fs.FileSystem:
        raise UnusableTarget("no such host")

    monkeypatch.setattr(delta_files, "delta_store", there)
    age = unfinished_for("hdfs://host:8020/checkpoint")
    assert age is not None
    assert timedelta(hours=1) <= age < timedelta(hours=2)
    (checkpoint / "commits" / "0").touch()
    assert unfinished_for("hdfs://host:8020/checkpoint") is None
    (checkpoint / "commits" / "0").unlink()
    monkeypatch.setattr(delta_files, "delta_store", nowhere)
    assert unfinished_for("hdfs://host:8020/checkpoint") is None


def test_nothing_is_known_of_other_checkpoints(tmp_path: Path) -> None:
    for location in (None, str(tmp_path / "new"), "s3://bucket/checkpoint"):
        assert unfinished_for(location) is None
