"""How long the first epoch of a stream has been unfinished, as its checkpoint tells."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.first_epoch import unfinished_for

if TYPE_CHECKING:
    from pathlib import Path


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


def test_nothing_is_known_of_other_checkpoints(tmp_path: Path) -> None:
    for location in (None, str(tmp_path / "new"), "s3://bucket/checkpoint"):
        assert unfinished_for(location) is None
