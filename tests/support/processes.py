"""Real processes for tests: started, watched, and always ended.

A process's output goes to a file of its own. While it runs it is listed in `running`; a test that fails shows the
ends of those files (see tests/conftest.py), so a broken broker is never a mystery.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Final, Self

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WITHOUT_HYPOTHESIS: Final = "import sys; sys.modules['hypothesis'] = None\n"
"""A program that begins so starts as fast as at a user's: kio loads hypothesis wherever that is installed."""

running: Final[list[Process]] = []
_PORTS: Final = range(10_000, 20_000)
"""Below those that `barnabas.testing` chooses from, whose brokers run in all workers."""
_WORKERS: Final = 8
_chosen: Final[set[int]] = set()
"""Ports that were given to somebody in this process."""


class Process:
    """A child process. As a context manager it is killed at the end, whatever it was doing."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        *,
        listens: bool = False,
    ) -> None:
        """With `listens` it can be told something, line by line."""
        self.name = name
        self.log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        running.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended yet."""
        return self._child.poll() is None

    def output(self) -> str:
        """What this process wrote so far (a file that is shared with earlier runs is read from this run's start)."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def wait_for_output(self, pattern: str, seconds: float = 60) -> re.Match[str]:
        """Wait until a line of the output matches; fails at once when the process ends before."""
        line = re.compile(pattern, re.MULTILINE)

        def found() -> re.Match[str] | None:
            ended = not self.alive
            match = line.search(self.output())
            if match is None and ended:
                code = self._child.returncode
                raise AssertionError(f"{self.name} ended with {code} before /{pattern}/:\n{self.tail()}")
            return match

        return wait_until(found, f"/{pattern}/ in the output of {self.name}:\n{self.tail()}", seconds)

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._child.stdin is not None, f"{self.name} does not listen"
        self._child.stdin.write(f"{line}\n".encode())
        self._child.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._child.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP: the process hangs, its sockets stay open."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)

    def stop(self, seconds: float = 60) -> int:
        """End the process by SIGTERM and return its exit code."""
        self.send(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = 60) -> int:
        """Wait for the process to end and return its exit code; one that does not end is killed, and the test fails."""
        try:
            code = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {seconds:g} s:\n{self.tail()}") from None
        self._forget()
        return code

    def kill(self) -> None:
        """kill -9: the process gets no chance to tidy up."""
        self._child.kill()
        self._child.wait()
        self._forget()

    def tail(self, lines: int = 60) -> str:
        """The last lines of the output."""
        return "\n".join(self.output().splitlines()[-lines:])

    def anonymous_memory(self) -> int:
        """Bytes of memory that the process holds for itself (RssAnon; page cache and mapped files are not in it)."""
        with open(f"/proc/{self.pid}/status") as status:  # noqa: PTH123  (a path of the kernel, not of ours)
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError(f"{self.name} has no RssAnon: it ended, or this is not Linux")

    def _forget(self) -> None:
        if self._child.stdin is not None:
            self._child.stdin.close()
        if self in running:
            running.remove(self)


def free_port(count: int = 1) -> int:
    """A free TCP port below those that the system hands out to outgoing connections, the first of `count` in a row.

    A broker that comes back to the same port must find it free. Ports given for port 0 come from the range of
    outgoing connections; while the broker is down, a client that tries to reconnect may be given that very port, and
    may even connect to itself.

    Nobody listens there yet, so workers of one run choose from ranges of their own, and none chooses a port twice.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    share = len(_PORTS) // _WORKERS
    mine = _PORTS[worker * share : (worker + 1) * share - count]
    for port in random.SystemRandom().sample(mine, 100):  # hypothesis seeds the other one, in all workers alike
        wanted = set(range(port, port + count))
        if not wanted & _chosen and all(map(_is_free, wanted)):
            _chosen.update(wanted)
            return port
    raise AssertionError(f"a hundred ports between {mine[0]} and {mine[-1]} were all taken")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
