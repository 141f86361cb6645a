"""The broker's end of a worker: starts the process when it is first needed, gives it tasks, and ends it.

A worker that dies in the middle of a task is told of by WorkerDied; the next task starts a new one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Protocol

from barnabas.model.errors import BarnabasError, StorageFailed
from barnabas.storage.cleaner.task import CleanedGroup, CleanedLog
from barnabas.storage.cleaner.worker.cleaning import Cleaning, CleaningAborted
from barnabas.storage.cleaner.worker.process import GO, STOP

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.cleaner.task import CleaningTask
    from barnabas.storage.files import FileSystem


class CleaningFailed(BarnabasError):
    """The file system did not do what was asked; another time it may."""


class Uncleanable(BarnabasError):
    """The log cannot be cleaned: its data is damaged, or the cleaner is."""


class WorkerDied(BarnabasError):
    """The process ended in the middle of its work."""


class Cleans(Protocol):
    """Whoever carries out tasks."""

    def clean(self, task: CleaningTask, on_group: Callable[[CleanedGroup], bool]) -> CleanedLog:
        """Carry out a task; `on_group` is called with every new segment, and says whether to go on.

        Raises CleaningAborted, CleaningFailed, Uncleanable or WorkerDied.
        """
        ...

    def end(self) -> None:
        """There is nothing more to do for now."""
        ...


class InThisProcess:
    """Carries out tasks where it is called: for tests, whose files may be no real ones."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def clean(self, task: CleaningTask, on_group: Callable[[CleanedGroup], bool]) -> CleanedLog:
        """See Cleans."""
        try:
            return Cleaning(task, self._files).run(on_group)
        except FileNotFoundError as error:
            raise CleaningAborted(str(error)) from error
        except OSError as error:
            raise CleaningFailed(str(error)) from error
        except (CleaningAborted, StorageFailed):  # the latter is of `on_group`
            raise
        except BarnabasError as error:
            raise Uncleanable(str(error)) from error

    def end(self) -> None:
        """See Cleans."""


class WorkerProcess:
    """Carries out tasks in a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process that runs, if one does."""
        process = self._process
        return None if process is None else process.pid

    def clean(self, task: CleaningTask, on_group: Callable[[CleanedGroup], bool]) -> CleanedLog:
        """See Cleans."""
        process = self._running()
        self._say(process, f"task {task.encode()}")
        while True:
            word, _, text = self._hear(process).partition(" ")
            match word:
                case "group":
                    try:
                        going_on = on_group(CleanedGroup.decode(text))
                    except Exception:
                        self.end()  # it waits for a word that does not come, and would take the next task for it
                        raise
                    self._say(process, GO if going_on else STOP)
                case "done":
                    return CleanedLog.decode(text)
                case "aborted":
                    raise CleaningAborted(text)
                case "failed":
                    raise CleaningFailed(text)
                case _:
                    raise Uncleanable(text)

    def end(self) -> None:
        """End the process, if it runs."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            _reap(process)

    def close(self) -> None:
        """End the process for good, also from another thread than the one that waits for it."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def _running(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise CleaningAborted("the broker is stopping")
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "barnabas.storage.cleaner.worker.process"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                )
            return self._process

    def _say(self, process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._death_of(process) from None

    def _hear(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.endswith("\n"):
            raise self._death_of(process)
        return line.rstrip("\n")

    def _death_of(self, process: subprocess.Popen[str]) -> BarnabasError:
        with self._lock:
            self._process = None
            stopping = self._closed
        code = _reap(process)
        if stopping:
            return CleaningAborted("the broker is stopping")
        return WorkerDied(f"the cleaner's process ended {f'by signal {-code}' if code < 0 else f'with code {code}'}")


def _reap(process: subprocess.Popen[str]) -> int:
    """Wait for a process that ends, and close the pipes to it."""
    code = process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:  # what was not read any more
                continue
    return code
