"""The Java process of Spark that this process starts: how it is started, what it says, and how it is ended.

PySpark lets it write to the terminal as it likes, and waits for it to end by itself. Here it is heard by a thread,
which keeps its last lines for the case that it does not start; and it is ended, if it has to be, with all that it has
started itself.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from barnabas.pipelines.errors import SparkNotStarted
from barnabas.pipelines.spark.quiet import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KEPT_LINES: Final = 200
STARTED_BY_PYSPARK: Final = b"_PYSPARK_DRIVER_CONN_INFO_PATH="
"""What PySpark puts into the environment of the Java process that it starts, and of no other."""
END_SECONDS: Final = 5.0
"""How long Java may take to end by itself once it was told to."""
_NOISE: Final = re.compile(
    r"\s+at |\s*\.\.\. \d+ more|WARNING: |Setting default log level|To adjust logging level|\s*$"
)
"""Lines that do not say why Spark could not start: where, and what it says at every start."""


def launch_quietly(settings: Mapping[str, str]) -> None:
    """Start Java for the session to come, and keep what it writes to standard error. Raises SparkNotStarted.

    Nothing is done where there is a Java process already: that of another session, or spark-submit's.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    configuration = SparkConf()
    for name, value in settings.items():
        configuration.set(name, value)
    reader, writer = os.pipe()
    heard = _StderrReader(reader)
    try:
        with os.fdopen(writer, "wb") as pipe, _launch_environment():
            gateway = launch_gateway(configuration, popen_kwargs={"stderr": pipe})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        raise SparkNotStarted.because(heard.reason() or str(error)) from error
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _launch_environment() -> Iterator[None]:
    """What Spark's scripts would find out by starting programs: a Python to look for Spark, and a Java, which is told
    to be quick, to say how the other one is called. Not where somebody has set it.
    """
    wanted = {"SPARK_HOME": _find_spark_home(), "SPARK_LAUNCHER_OPTS": SHORT_LIVED}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


class _StderrReader:
    """Reads what Java writes, until Java ends; keeps the last lines."""

    def __init__(self, reader: int) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._reader = reader
        self._thread = threading.Thread(target=self._read, name="spark-stderr", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with os.fdopen(self._reader, encoding="utf-8", errors="replace") as lines:
            self._lines.extend(lines)

    def reason(self) -> str:
        """The lines in which Java says why it has ended, as one."""
        self._thread.join(END_SECONDS)
        return "; ".join(line.strip().rstrip(".") for line in list(self._lines) if not _NOISE.match(line))


def end_java(seconds: float = END_SECONDS) -> None:
    """End the Java process that PySpark has started here, and what that has started; wait until they are gone.

    They are asked first, and killed if they take longer than this. Other children of this process are nobody's business
    here.
    """
    _hush()
    pids = _java_processes()
    below = [pid for child in pids for pid in _descendants(child)]
    for pid in pids:
        _signal(pid, signal.SIGTERM)
    everybody = [*pids, *below]
    _wait_for_end(everybody, seconds)
    for pid in everybody:
        _signal(pid, signal.SIGKILL)
    _wait_for_end(everybody, END_SECONDS)


def _hush() -> None:
    """Say nothing of the lines that Java is about to drop: PySpark's server of accumulators prints a traceback each."""
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, client_address: None


def _wait_for_end(pids: Sequence[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(map(_runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)


def _java_processes() -> list[int]:
    """The Java process; while it starts PySpark does not know of it yet, but the system may."""
    process = getattr(SparkContext._gateway, "proc", None)
    known = [] if process is None or process.poll() is not None else [process.pid]
    return known + [pid for pid in _children(os.getpid()) if pid not in known and _is_of_pyspark(pid)]


def _is_of_pyspark(pid: int) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(each.startswith(STARTED_BY_PYSPARK) for each in environment.split(b"\0"))


def _children(parent: int) -> Iterator[int]:
    """Children of a process, where the system tells of them: on Linux."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, number, *_ = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if state != "Z" and int(number) == parent:
                yield int(path.parent.name)


def _descendants(parent: int) -> Iterator[int]:
    for child in _children(parent):
        yield child
        yield from _descendants(child)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _signal(pid: int, number: signal.Signals) -> None:
    if _runs(pid):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
