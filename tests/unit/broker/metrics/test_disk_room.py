"""How much room disks have, also while one of them does not answer."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

from barnabas.broker.metrics.series import storage
from barnabas.broker.metrics.series.storage import DiskRoom
from tests.support.waiting import pass_time, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_disk_that_hangs_holds_one_thread_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each scrape left a thread behind, until none was left for anything else, and told of no disk at all."""
    hanging, well = tmp_path / "hanging", tmp_path / "well"
    well.mkdir()
    monkeypatch.setattr(storage, "ROOM_SECONDS", 300)
    answers = threading.Event()
    asked: list[Path] = []
    statvfs = os.statvfs

    def slow(path: Path) -> Any:
        asked.append(path)
        if path == hanging:
            assert answers.wait(30)
            return statvfs(tmp_path)
        return statvfs(path)

    monkeypatch.setattr(os, "statvfs", slow)
    room = DiskRoom()
    for _ in range(5):
        asking = asyncio.ensure_future(room.of([hanging, well]))
        await until(lambda: room._asked[well].done())
        await pass_time(301)
        assert set(await asking) == {well}
    assert asked.count(hanging) == 1
    answers.set()
    monkeypatch.setattr(storage, "ROOM_SECONDS", 30)
    assert set(await room.of([hanging, well])) == {hanging, well}


async def test_a_disk_that_has_failed_is_left_out(tmp_path: Path) -> None:
    assert set(await DiskRoom().of([tmp_path, tmp_path / "gone"])) == {tmp_path}
