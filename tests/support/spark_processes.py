"""The processes of a Spark application on this machine, as /proc shows them: those that a test may kill."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class _Seen:
    """A process."""

    pid: int
    parent: int
    session: int
    words: str


@dataclass(frozen=True, slots=True)
class SparkProcesses:
    """A driver and all that works for it at one moment."""

    driver: int
    jvms: list[int]
    """The driver's own JVM."""
    executors: list[int]
    """JVMs on a standalone cluster."""
    workers: list[int]
    """Python below any of these JVMs: daemons and what they forked, for tasks and for streams."""

    @classmethod
    def of(cls, driver: int, nodes: Path) -> SparkProcesses:
        """Those of a driver that leads a session; executors run below workers whose folders are in `nodes`."""
        everybody = {seen.pid: seen for seen in _processes()}
        hosts = {seen.pid for seen in everybody.values() if "deploy.worker" in seen.words and str(nodes) in seen.words}
        jvms = _grown(seen for seen in everybody.values() if seen.session == driver and "SparkSubmit" in seen.words)
        executors = _grown(
            seen
            for seen in everybody.values()
            if "CoarseGrainedExecutorBackend" in seen.words and _above(seen, everybody) & hosts
        )
        workers = [
            seen.pid
            for seen in everybody.values()
            if "java" not in seen.words and "pyspark" in seen.words and _above(seen, everybody) & {*jvms, *executors}
        ]
        return cls(driver, jvms, executors, workers)


def kill_session(leader: int) -> None:
    """kill -9 of a process and of all that it started."""
    for seen in list(_processes()):
        if seen.session == leader:
            kill(seen.pid)


def kill(pid: int) -> None:
    """kill -9, unless it is gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[_Seen]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            yield _Seen(int(folder.name), int(fields[1]), int(fields[3]), words)


def _grown(found: Iterable[_Seen]) -> list[int]:
    """Those which none of the others has just forked: a child looks like its parent until it runs its own program."""
    parents = {seen.pid: seen.parent for seen in found}
    return [pid for pid, parent in parents.items() if parent not in parents]


def _above(seen: _Seen, everybody: dict[int, _Seen]) -> set[int]:
    """The processes that a process descends from."""
    found: set[int] = set()
    while seen.parent in everybody and seen.parent not in found:
        found.add(seen.parent)
        seen = everybody[seen.parent]
    return found


def pids_of_session(leader: int) -> list[int]:
    """A process that leads a session, and all that it started and that has not ended."""
    return [seen.pid for seen in _processes() if seen.session == leader and seen.words]
