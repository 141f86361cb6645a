"""What a process costs, read from /proc: processor time and private memory, of it and all its descendants.

Both are the kernel's own accounts, so that they mean the same for a JVM and for Python. Memory is Pss_Anon: pages
that processes made themselves, without files in the page cache, which belong to whoever reads them. A page that a
process shares with those it has forked, as Spark's Python workers do, is counted once for all of them together.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from pathlib import Path
from typing import Final, Self

PROC = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SAMPLE_EVERY: Final = 0.2


def parse_cpu(stat: str) -> float:
    """Seconds in a line of /proc/PID/stat: user and system time, with that of children already waited for."""
    after_name = stat[stat.rindex(")") + 2 :].split()
    return sum(map(int, after_name[11:15])) / _TICKS


def parse_memory(rollup: str) -> float:
    """MB of Pss_Anon in the text of /proc/PID/smaps_rollup; a process that is going away has none."""
    for line in rollup.splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def family(pid: int) -> list[int]:
    """The process and its living descendants."""
    members = [pid]
    for member in members:
        try:
            for task in (PROC / str(member) / "task").iterdir():
                members += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return members


def cpu_seconds(pid: int) -> float:
    """Processor time that the process and its descendants have used so far."""
    return sum(parse_cpu(_read(member, "stat")) for member in family(pid))


def memory_mb(pid: int) -> float:
    """Private memory of the process and its descendants now."""
    return sum(parse_memory(_read(member, "smaps_rollup")) for member in family(pid))


def open_files(pid: int) -> int:
    """Descriptors that the process holds."""
    return sum(1 for _ in (PROC / str(pid) / "fd").iterdir())


class Meter:
    """Measures processes, as one, while a `with` block runs: wall time, processor time, highest memory."""

    def __init__(self, *pids: int) -> None:
        self.seconds = 0.0
        self.cpu = 0.0
        self.peak_mb = 0.0
        self._pids = pids
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="memory sampler")

    def __enter__(self) -> Self:
        self._sampler.start()
        self.cpu = -sum(map(cpu_seconds, self._pids))
        self.seconds = -time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter()
        self.cpu += sum(map(cpu_seconds, self._pids))
        self._done.set()
        self._sampler.join()

    def _sample(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, sum(map(memory_mb, self._pids)))
            if self._done.wait(_SAMPLE_EVERY):
                return


def machine() -> dict[str, str]:
    """What the figures were taken on."""
    lines = (PROC / "cpuinfo").read_text().splitlines()
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": f"{os.cpu_count()} × {next(models, platform.machine())}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"Python {platform.python_version()}",
    }


def _read(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ") " + "0 " * 15
