"""A broker as a service: its pid file, its start in the background, its end.

The pid file `barnabas.pid` lies in the first data directory and is written when the broker is ready. It is only a hint.
What counts is the lock that a running broker holds on its data directory: without it there is no broker, and a signal
goes only to a process that has the lock file open. So a pid that the system has given to another process since, or
that a broker left behind when it was killed, harms nobody.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from barnabas.cli.common.failures import Failed
from barnabas.model.environment import READY_FD, STARTER_FD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

PID_FILE = "barnabas.pid"
LOG_FILE = "barnabas.log"
LOCK_FILE = ".lock"
KILL_SECONDS = 30.0
"""How long a process that is killed may take to be gone: the system first ends what it writes to disk."""
END_SECONDS = 5.0
"""How long a broker that is not ready yet may take to end before it is killed."""


def is_running(data: Path) -> bool:
    """Whether some process holds the lock on this data directory."""
    try:
        lock = os.open(data / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def read_pid(data: Path) -> int | None:
    """The pid in the pid file, None when there is none or it is not a number."""
    try:
        return int((data / PID_FILE).read_text(encoding="ascii"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def write_pid(data: Path) -> None:
    """Write this process's pid, all of it or nothing."""
    draft = data / f"{PID_FILE}.tmp"
    draft.write_text(f"{os.getpid()}\n", encoding="ascii")
    draft.replace(data / PID_FILE)


def seconds_ready(data: Path) -> float:
    """For how long a broker has been ready, as its pid file has it; as if for ever where there is none."""
    try:
        return max(0.0, time.time() - (data / PID_FILE).stat().st_mtime)
    except OSError:
        return inf


def remove_pid(data: Path) -> None:
    """Remove the pid file if it is this process's."""
    if read_pid(data) == os.getpid():
        (data / PID_FILE).unlink(missing_ok=True)


def tell_starter(line: str) -> None:
    """Tell the command that started this process in the background, if one did, that the broker is ready.

    That command may have ended, with the terminal that it was typed in: the broker goes on.
    """
    descriptor = os.environ.pop(READY_FD, None)
    if descriptor is not None:
        with suppress(BrokenPipeError), os.fdopen(int(descriptor), "w", encoding="utf-8") as pipe:
            pipe.write(line)


def stop_with_starter() -> bool:
    """Have this process stop, as by SIGTERM, when the command that started it as one of several has ended.

    Returns whether there is such a command.
    """
    descriptor = os.environ.pop(STARTER_FD, None)
    if descriptor is None:
        return False

    def wait() -> None:
        while os.read(int(descriptor), 1):
            continue
        logger.warning("The command that started this broker has ended. The broker stops.")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="barnabas-starter", daemon=True).start()
    return True


def start_in_background(arguments: Sequence[str], data: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Run `barnabas ARGUMENTS` on its own; returns the process and its ready line once it is ready.

    Its output goes to the log file. Raises Failed with its last words when it ends before it is ready. Ctrl-C ends it.
    """
    data.mkdir(parents=True, exist_ok=True)
    log = data / LOG_FILE
    with log.open("ab") as output, _pipe() as (reader, writer):
        began = output.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "barnabas.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writer,),
            env={**os.environ, READY_FD: str(writer)},
            start_new_session=True,
        )
        os.close(writer)
        with _ended_by_interrupt(child), os.fdopen(os.dup(reader), encoding="utf-8") as pipe:
            ready = pipe.read()
    if ready:
        return child, ready
    code = child.wait()
    raise Failed(_last_words(log, began) or f"the broker ended with code {code} before it was ready: see {log}")


@contextmanager
def _ended_by_interrupt(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Have a broker that is not ready yet end with the command that waits for it, which was told to by Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        child.terminate()
        try:
            child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:  # it hears that once it has recovered its logs; nobody uses it yet
            child.kill()
            child.wait()
        raise


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(reader)


def _last_words(log: Path, began: int) -> str | None:
    """The last error line after position `began`."""
    with log.open("rb") as file:
        file.seek(began)
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.removeprefix("Error: ") for line in reversed(lines) if line.startswith("Error: ")), None)


def stop_or_kill(data: Path, deadline: float) -> int | None:
    """End the broker of a data directory by SIGTERM and wait; kill one that has not ended then.

    That is for who starts it again: one that hangs would keep all others from their restart. What it acknowledged is
    recovered. Returns the pid of one that was killed.
    """
    pid = _find(data)
    if pid is None:
        return None
    with _killer(pid, data) as kill:  # before the signal: nothing that fails here may leave a broker that was stopped
        _send_stop(pid)
        try:
            _wait_for_end(data, pid, deadline, time.monotonic() + deadline)
        except Failed:
            if not kill():
                raise
            _wait_for_end(data, pid, KILL_SECONDS, time.monotonic() + KILL_SECONDS)
            return pid
    return None


@contextmanager
def _killer(pid: int, data: Path) -> Iterator[Callable[[], bool]]:
    """What kills a broker that was told to stop, and no other process that has its number by then.

    It may have let go of its lock, and hang all the same. Where the system has no handles of processes, the lock must
    tell that it is still this broker; the function returns whether it knew.
    """
    try:
        handle = _handle(pid)
    except ProcessLookupError:  # it has ended just now
        yield lambda: True
        return

    def kill() -> bool:
        with suppress(ProcessLookupError):
            if handle is not None:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            elif _holds_lock(pid, data):
                os.kill(pid, signal.SIGKILL)
            else:
                return False
        return True

    try:
        yield kill
    finally:
        if handle is not None:
            os.close(handle)


def _handle(pid: int) -> int | None:
    """A handle of a process; None where the system or this Python has none. Raises ProcessLookupError."""
    if sys.platform != "linux" or not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # an old kernel, or a sandbox
        return None


def stop_together(directories: Iterable[Path], deadline: float) -> Iterator[tuple[Path, int | Failed | None]]:
    """End the brokers of these data directories: all are told before the first is waited for.

    Gives each with its pid, None where none was running, or with why it did not end.
    """
    told = [(data, _failed_or(_stop, data)) for data in directories]
    end = time.monotonic() + deadline
    for data, pid in told:
        yield data, _failed_or(_wait_for_end, data, pid, deadline, end) if isinstance(pid, int) else pid


def _failed_or(function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T | Failed:
    try:
        return function(*given, **named)
    except Failed as failure:
        return failure


def _stop(data: Path) -> int | None:
    """Tell the broker of a data directory to stop; returns its pid, None when none is running."""
    pid = _find(data)
    if pid is not None:
        _send_stop(pid)
    return pid


def _send_stop(pid: int) -> None:
    with suppress(ProcessLookupError):  # it ends by itself just now
        os.kill(pid, signal.SIGTERM)


def _find(data: Path) -> int | None:
    """The pid of the broker of a data directory; None when none is running."""
    if not is_running(data):
        (data / PID_FILE).unlink(missing_ok=True)
        return None
    pid = read_pid(data)
    try:
        named = pid is not None and _holds_lock(pid, data)
    except PermissionError:
        raise Failed(f"the broker on {data} (process {pid}) belongs to another user: stop it as that user") from None
    if pid is None or not named:
        raise Failed(
            f"a process has locked {data}, but {PID_FILE} does not name it: it is a broker that is still starting, "
            f"or another program. Try again, or find it with: fuser -v {data / LOCK_FILE}"
        )
    return pid


def _wait_for_end(data: Path, pid: int, deadline: float, end: float) -> int:
    while is_running(data) or _exists(pid):
        if time.monotonic() > end:
            raise Failed(
                f"the broker (process {pid}) did not end within {deadline:g} s. It may still be writing to disk; "
                f"wait with `barnabas stop --data {data}`, or end it with `kill -9 {pid}`: "
                "what it acknowledged is recovered at the next start."
            )
        time.sleep(0.02)
    return pid


def _holds_lock(pid: int, data: Path) -> bool:
    """Whether the process has the lock file of a data directory open."""
    return has_open(pid, (data / LOCK_FILE).stat())


def has_open(pid: int, file: os.stat_result) -> bool:
    """Whether the process has this file open; where the system does not tell, whether it exists."""
    if sys.platform != "linux":
        return _exists(pid)
    with suppress(FileNotFoundError, ProcessLookupError):  # it ends just now
        for descriptor in Path(f"/proc/{pid}/fd").iterdir() if _exists(pid) else ():
            with suppress(FileNotFoundError):
                if os.path.samestat(descriptor.stat(), file):
                    return True
    return False


def _exists(pid: int) -> bool:
    """Whether the process is there and has not ended (a zombie has)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return sys.platform != "linux"
    return stat.rpartition(")")[2].split()[0] != "Z"
