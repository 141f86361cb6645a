"""What stories of logs have in common: a directory of logs, writes that are tried again, and what has to be stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

from barnabas.model.clock import ManualClock
from barnabas.model.errors import BarnabasError
from barnabas.model.log_config import LogConfig
from tests.support.logs import NOW, TP, StepManager

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from barnabas.storage.log.log import Log
    from tests.failing_calls.files import FailingFiles

CONFIG: Final = LogConfig(segment_bytes=700, index_interval_bytes=100, file_delete_delay_ms=0)
PLAIN, IDEMPOTENT, FIRST, SECOND = -1, 5, 7, 8
"""Producer ids; the last two write transactions."""
TRIES: Final = 4
OTHER: Final = TP._replace(topic="other")
ANOTHER_ID: Final = UUID(int=0x777)


class NeedsRestart(Exception):
    """The rest of the story has to wait for a restart."""


class LogStory(ABC):
    """A story of logs in one directory."""

    config = CONFIG

    def __init__(self, root: Path, files: FailingFiles) -> None:
        self.root = root
        self.files = files
        self.clock = ManualClock(NOW)
        self.manager = self.started()

    def started(self) -> StepManager:
        """A manager that has loaded the directory."""
        return StepManager(self.root, self.files, self.clock).start({TP.topic: self.config})

    @property
    def log(self) -> Log:
        """The partition that the story is about."""
        log = self.manager.get(TP)
        assert log is not None
        return log

    @property
    def needs_restart(self) -> bool:
        """See Story."""
        return bool(self.manager.failed_directories)

    def tell(self) -> None:
        """See Story."""
        try:
            for step in self.steps():
                self.attempt(step)
            self.look_for_room()
        except NeedsRestart:
            assert self.manager.failed_directories

    def attempt(self, step: Callable[[], object]) -> None:
        """Do a step, again and again like a client, with time for a full disk to be found to have room."""
        for _ in range(TRIES):
            try:
                step()
            except (BarnabasError, OSError) as error:
                refused = error
                with suppress(OSError):  # a reader that is refused tries again
                    self.check()
                self.look_for_room()
            else:
                return
        raise NeedsRestart from refused

    def look_for_room(self) -> None:
        """Time passes: what is to be done in the background is done, a full directory is found to have room."""
        self.manager.drain()
        self.clock.advance(60_000)
        self.manager.try_failed_directories()

    def stop(self) -> None:
        """See Story."""
        self.manager.drain()
        self.manager.close()

    def start(self, *, lost_power: bool = False) -> None:
        """See Story."""
        self.manager = self.started()

    @abstractmethod
    def steps(self) -> Sequence[Callable[[], object]]:
        """What is done while a call fails."""

    @abstractmethod
    def prepare(self) -> None:
        """See Story."""

    @abstractmethod
    def check(self) -> None:
        """See Story."""

    @abstractmethod
    def go_on(self) -> None:
        """See Story."""
