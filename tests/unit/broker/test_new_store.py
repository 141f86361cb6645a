"""What is looked at before a metadata store is made."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.new_store import check_before_making
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import StartupError
from barnabas.storage.files import FileSystem

if TYPE_CHECKING:
    from pathlib import Path

TOO_LONG = "x" * 300


def check(folder: Path, *directories: Path) -> None:
    settings = {"log.dirs": ",".join(map(str, directories)), "metadata.store": str(folder / "metadata")}
    check_before_making(BrokerConfig.load(settings), FileSystem())


def test_one_log_directory_that_cannot_even_be_looked_at_is_no_reason_to_refuse_a_start(tmp_path: Path) -> None:
    """A path that is locked, or whose disk has failed, was an OSError that nobody caught."""
    check(tmp_path, tmp_path / "good", tmp_path / TOO_LONG / "logs")
    with pytest.raises(StartupError, match=r"no log directory can be used: .*File name too long"):
        check(tmp_path, tmp_path / TOO_LONG / "logs")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_looked_at_is_left_to_who_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(self: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(type(tmp_path), "exists", locked)
    check(tmp_path, tmp_path / "data")
