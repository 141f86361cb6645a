"""The story of a compacted log that is cleaned while records are written to it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from barnabas.broker.cleaner_threads import CleanerThread
from barnabas.model.errors import StorageFailed
from barnabas.storage.cleaner.process import InThisProcess
from tests.failing_calls.files import FailingFiles
from tests.failing_calls.log_story import TRIES, NeedsRestart
from tests.support.compaction_run import CompactionRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.broker.cleaner_threads import CleanerThreads
    from barnabas.broker.settings import Settings
    from barnabas.storage.cleaner.manager import CleanerManager
    from barnabas.storage.cleaner.process import WorkerProcess


class Cleaned:
    """A compacted log is cleaned by a cleaner thread while records are written: it equals its dictionary."""

    def __init__(self, seed: int, root: Path, files: FailingFiles) -> None:
        self._run = CompactionRun(root, seed)
        self._run.files = files
        self._log = self._run.start()

    @property
    def needs_restart(self) -> bool:
        """See Story."""
        return bool(self._run.manager.failed_directories)

    def prepare(self) -> None:
        """Records in several segments, and a clean restart, after which nobody has used the log."""
        self._run.live(self._log, 40)
        self._settle()
        self.stop()
        self.start()

    def tell(self) -> None:
        """Clean, write more over the same keys, and clean again."""
        with suppress(NeedsRestart):
            for _ in range(3):
                self._clean()
                for _ in range(6):
                    self._attempt(lambda: self._run.append(self._log))
                self._attempt(self._settle)
            self._run.manager.delete_due(self._run.clock.now_ms())
            self._look_for_room()

    def _clean(self) -> None:
        """As long as there is something to clean, and the cleaner has not put it off."""
        now = self._run.clock.now_ms()
        for offset in range(self._log.log_end_offset):
            self._run.seen_by_cleaner.setdefault(offset, now)
        CleanerOnThisThread(self._run).run()
        assert not self._run.cleaner.uncleanable
        self._look_for_room()

    def _attempt(self, work: Callable[[], object]) -> None:
        for _ in range(TRIES):
            history, chance = list(self._run.history), self._run.chance.getstate()
            try:
                work()
            except StorageFailed:
                self._run.history = history
                self._run.chance.setstate(chance)
                self._look_for_room()
            else:
                return
        raise NeedsRestart

    def _look_for_room(self) -> None:
        self._run.clock.advance(120_000)
        self._run.manager.try_failed_directories()

    def _settle(self) -> None:
        self._log.roll(self._run.clock.now_ms())
        self._log.flush()
        self._run.manager.drain()
        self._run.certain = max(self._run.certain, self._log.recovery_point)

    def check(self) -> None:
        """See Story."""
        if self.needs_restart:  # what its files hold is not known
            assert self._log.log_end_offset == self._end
            return
        self._run.check(self._log)

    @property
    def _end(self) -> int:
        return self._run.history[-1].last_offset + 1

    def stop(self) -> None:
        """See Story."""
        self._run.manager.drain()
        self._run.manager.close()

    def start(self, *, lost_power: bool = False) -> None:
        """See Story."""
        end = self._run.certain if lost_power else self._end
        self._log = self._run.start()
        assert self._log.log_end_offset >= end, "what was acknowledged is lost"

    def go_on(self) -> None:
        """More is written and cleaned; nothing stays that should have gone."""
        for _ in range(6):
            self._run.append(self._log)
        self._run.finish(self._log)
        self._log = self._run.start()


class CleanerOnThisThread(CleanerThread):
    """A cleaner's thread that is run here: it looks three times, and cleans in this process."""

    def __init__(self, run: CompactionRun) -> None:
        self._compaction = run
        self._looks = 3
        super().__init__(cast("CleanerThreads", self), cast("Settings", self), "cleaner")

    def manager(self) -> CleanerManager:
        """See CleanerThreads."""
        return self._compaction.cleaner

    def number(self, name: str) -> int:
        """See Settings."""
        return 1 if name == "log.cleaner.threads" else self._compaction.limits.memory

    def ratio(self, name: str) -> float:
        """See Settings."""
        return 1.0 if name == "log.cleaner.io.buffer.load.factor" else self._compaction.limits.bytes_per_second

    def _start_worker(self) -> WorkerProcess | None:
        files = self._compaction.files
        assert isinstance(files, FailingFiles)
        files.start_worker()
        return cast("WorkerProcess", InThisProcess(files))

    def _wait(self) -> bool:
        self._looks -= 1
        return self._looks >= 0
