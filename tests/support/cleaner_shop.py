"""Some compacted logs and a cleaner for them, whose clock the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.clock import ManualClock
from barnabas.model.ids import TopicPartition
from barnabas.storage.cleaner.manager import CleanerManager
from barnabas.storage.cleaner.process import InThisProcess
from tests.support.compaction import LIMITS, compacted, keyed, seen, settle
from tests.support.logs import NOW, TOPIC_ID, StepManager, append

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from barnabas.model.log_config import LogConfig
    from barnabas.storage.cleaner.task import CleanedGroup, CleanedLog, CleaningTask
    from barnabas.storage.files import FileSystem
    from barnabas.storage.log.log import Log


class Shop:
    """Some compacted logs, and a cleaner for them."""

    def __init__(
        self, path: Path, configs: Mapping[str, LogConfig] | None = None, files: FileSystem | None = None
    ) -> None:
        self.path = path
        self.clock = ManualClock(NOW)
        self.logs = StepManager(path, files, self.clock).start(configs)
        self.cleaner = CleanerManager(self.logs, self.clock)
        self.worker = InThisProcess(self.logs.pool.files)

    def make(self, name: str, *batches: bytes, config: LogConfig | None = None) -> Log:
        log = self.logs.create(TopicPartition(name, 0), TOPIC_ID, config or compacted())
        append(log, *batches)
        settle(log)
        return log

    def again(self, config: LogConfig | None = None, files: FileSystem | None = None) -> Shop:
        """Stop cleanly, and start anew."""
        names = [log.tp.topic for log in self.logs.logs()]
        self.logs.close()
        return Shop(self.path, dict.fromkeys(names, config or compacted()), files)

    def find(self, name: str) -> Log:
        log = self.logs.get(TopicPartition(name, 0))
        assert log is not None
        return log

    def clean(self) -> bool:
        return self.cleaner.clean_next(self.worker, LIMITS)


class Refusing:
    """A worker that fails in its own way."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def clean(self, task: CleaningTask, on_group: Callable[[CleanedGroup], bool]) -> CleanedLog:
        self.calls += 1
        raise self.error

    def end(self) -> None:
        pass


def values(log: Log) -> list[bytes | None]:
    """The values in a log."""
    return [record.value for record in seen(log)]


def old_and_new(key: bytes = b"a") -> list[bytes]:
    """Two batches for one key."""
    return [keyed([(key, b"old")]), keyed([(key, b"new")])]
