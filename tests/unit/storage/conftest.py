"""Logs and log managers that the tests of storage begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.model.clock import ManualClock
from barnabas.model.log_config import LogConfig
from barnabas.storage.manager import LogManager
from tests.support.logs import NOW, SMALL, TP, UnsyncedFiles, new_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.storage.log.log import Log

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=1000)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A new log."""
    return new_log(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Log:
    """A new log whose segments are small."""
    return new_log(tmp_path, SMALL)


@pytest.fixture
def clock() -> ManualClock:
    """The clock of log managers."""
    return ManualClock(NOW)


@pytest.fixture
def start(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., LogManager]]:
    """Starts log managers over directories of the test."""
    started: list[LogManager] = []

    def start(
        *names: str, broker_id: int = 1, cluster_id: str = "test", threads: int = 1, config: LogConfig = CONFIG
    ) -> LogManager:
        manager = LogManager(
            [tmp_path / name for name in names or ("data",)],
            clock=clock,
            files=UnsyncedFiles(),
            recovery_threads=threads,
            max_open_files=32,
        )
        started.append(manager)
        manager.load(broker_id=broker_id, cluster_id=cluster_id, configs={TP.topic: config})
        return manager

    yield start
    for manager in started:
        manager.close(clean=False)
