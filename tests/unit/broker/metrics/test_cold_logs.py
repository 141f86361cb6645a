"""Sizes of logs that are not loaded, also while one of the disks that they are on does not answer."""

from __future__ import annotations

import asyncio
import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker.metrics.scrape import Pace
from barnabas.broker.metrics.series import cold_logs
from barnabas.broker.metrics.series.cold_logs import ColdLogs, LogFiles
from tests.support.waiting import pass_time, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from barnabas.storage.log.log import Log


def a_log(directory: Path, name: str, *sizes: int) -> Log:
    """A log that is not loaded, with segments of these sizes."""
    (folder := directory / name).mkdir(parents=True)
    for number, size in enumerate(sizes):
        (folder / f"{number:020}.log").write_bytes(bytes(size))
    (folder / "partition.metadata").write_text("version: 0")
    return cast("Log", SimpleNamespace(path=str(folder), log_dir=directory, loaded=None, is_failed=False))


async def test_a_disk_that_hangs_holds_one_thread_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each scrape took a thread of those that read and write the broker's files, until there was none left."""
    monkeypatch.setattr(cold_logs, "WAIT_SECONDS", 300)
    hanging, well = a_log(tmp_path / "hanging", "a-0", 5), a_log(tmp_path / "well", "b-0", 10, 20)
    answers = threading.Event()
    asked: list[str] = []
    scandir = os.scandir

    def slow(path: str) -> Any:
        asked.append(path)
        if path == hanging.path:
            assert answers.wait(30)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", slow)
    cold = ColdLogs()

    async def look_up(*logs: Log) -> None:
        """Look up sizes until the time is over, and not before all have answered that do not hang."""
        looking = asyncio.ensure_future(cold.look_up([hanging, *logs], Pace()))
        while not looking.done():
            await until(lambda: all(each.done() for at, each in cold._asked.items() if at != hanging.log_dir))
            await pass_time(301)
        await looking

    for _ in range(3):
        await look_up(well)
        assert (cold.of(hanging), cold.of(well)) == (None, LogFiles(30, 2))
    await until(lambda: hanging.path in asked)
    assert sorted(asked) == [hanging.path, well.path]
    later = a_log(tmp_path / "well", "c-0", 7)
    await look_up(well, later)
    assert cold.of(later) == LogFiles(7, 1)
    answers.set()
    monkeypatch.setattr(cold_logs, "WAIT_SECONDS", 30)
    await cold.look_up([hanging, well], Pace())
    assert (cold.of(hanging), cold.of(later)) == (LogFiles(5, 1), None), "what is not asked for is forgotten"
    assert sorted(asked) == [hanging.path, well.path, later.path]


async def test_a_log_that_is_gone_or_loaded_is_passed_over(tmp_path: Path) -> None:
    gone, loaded = a_log(tmp_path / "one", "a-0", 5), a_log(tmp_path / "one", "b-0", 5)
    (tmp_path / "one" / "a-0").rename(tmp_path / "one" / "a-0.deleted")
    cast("Any", loaded).loaded = object()
    cold = ColdLogs()
    await cold.look_up([gone, loaded], Pace())
    assert (cold.of(gone), cold.of(loaded)) == (None, None)
