"""Logs that are set aside and taken back while one call to the file system fails: what they hold and know stays."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.model.clock import ManualClock
from barnabas.model.errors import BarnabasError
from barnabas.model.log_config import LogConfig
from barnabas.storage.manager import LogManager
from tests.failing_calls.files import FailingFiles, Fault
from tests.support.logs import NOW, TOPIC_ID, TP, UnsyncedFiles, append, batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.storage.files import FileSystem

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=1000)
OTHER = UUID(int=99)


def start(data: Path, files: FileSystem) -> LogManager:
    manager = LogManager([data], clock=ManualClock(NOW), files=files, max_open_files=32)
    manager.load(broker_id=1, cluster_id="test", configs={TP.topic: CONFIG})
    return manager


def attempt(step: Callable[[], object]) -> None:
    """Do something, again if it fails, as a broker does."""
    for _ in range(2):
        with suppress(BarnabasError, OSError):
            step()
            return


def set_aside(manager: LogManager) -> None:
    for log in manager.logs():
        manager.set_aside(log)
    manager.write_stray_offsets(manager.strays())


@pytest.mark.parametrize("fault", [Fault.NO_ROOM, Fault.BAD_DISK], ids=lambda fault: fault.name)
def test_nothing_is_lost(tmp_path: Path, fault: Fault) -> None:
    calls, hit = 0, True
    while hit:
        data = tmp_path / str(calls)
        data.mkdir()
        files = FailingFiles(data)
        manager = start(data, files)
        log = manager.create(TP, TOPIC_ID, CONFIG)
        append(log, *(batch(2, size=300) for _ in range(10)))
        log.high_watermark = 20
        log.delete_records_before(5)
        log.flush()
        manager.checkpoint()
        files.arm(fault, calls)
        for topic_id in (OTHER, TOPIC_ID):
            attempt(partial(set_aside, manager))
            attempt(partial(manager.create, TP, topic_id, CONFIG, is_new=False))
            attempt(manager.checkpoint)
        files.disarm()
        hit = files.hit
        manager.close(clean=calls % 2 == 0)
        again = start(data, UnsyncedFiles())
        log = again.create(TP, TOPIC_ID, CONFIG, is_new=False)
        assert (log.log_start_offset, log.log_end_offset) == (5, 20), f"call {calls}"
        again.close(clean=False)
        calls += 1
    assert calls > 20
