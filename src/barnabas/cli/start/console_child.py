"""The console that `barnabas start --console` runs beside brokers: a process of its own, which ends with this one.

It holds on to a pipe from this process. However this process ends, the pipe closes, and the console ends too. A console
that cannot start, or that ends, leaves the brokers alone.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 5.0
SUFFIX: Final = ".console"
"""Of the folder beside the data directory, in which the console has its history."""
ENDPOINT: Final = "telemetry.otlp.endpoint"
INTERVAL: Final = "telemetry.interval.ms"
PATH: Final = "/v1/metrics"
PUSH_MS: Final = 10_000
"""How often clients push to a console that was started with its broker: somebody looks at it."""
OWN_HOSTS: Final = {
    "localhost": "localhost",
    "127.0.0.1": "127.0.0.1",
    "[::1]": "[::1]",
    "0.0.0.0": "127.0.0.1",
    "[::]": "[::1]",
}
"""Hosts that a console may listen on, and how brokers on this machine reach it there."""


def telemetry_settings(listen: str, given: Collection[str]) -> tuple[str, ...]:
    """What brokers need beside the keys that were `given`, so that metrics of clients come to the console there.

    Nothing where they go elsewhere already, or where the console cannot be reached on this machine's own address: it
    takes them without a token from there alone.
    """
    host, _, port = listen.rpartition(":")
    if ENDPOINT in given or host not in OWN_HOSTS or not port.isdecimal() or not int(port):
        return ()
    interval = () if INTERVAL in given else (f"{INTERVAL}={PUSH_MS}",)
    return (f"{ENDPOINT}=http://{OWN_HOSTS[host]}:{port}{PATH}", *interval)


def arguments(
    listen: str,
    bootstrap_servers: str,
    data: Path,
    command_config: Path | None,
    *,
    telemetry: bool,
    start_again: str | None = None,
    brokers: Iterable[int] = (),
) -> list[str]:
    """The words of its `barnabas console`; `start_again` is the command that starts one of these brokers again."""
    words = ["console", "--listen", listen, "--bootstrap-server", bootstrap_servers.replace("*:", "localhost:")]
    words += ["--telemetry"] if telemetry else []
    words += ["--data", str(data.with_name(f"{data.name}{SUFFIX}")), "--ends-with-input"]
    if start_again is not None:
        words += ["--start-again", start_again, *(f"--started-broker={each}" for each in brokers)]
    return words if command_config is None else [*words, "--command-config", str(command_config)]


class ConsoleChild:
    """The console's process, once it was started."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, words: list[str]) -> None:
        """Start it; what it says goes where this process's words go."""
        command = [sys.executable, "-P", "-m", "barnabas.cli.main", *words]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            log.warning("The console cannot be started: %s", error)

    def tell_end(self) -> str | None:
        """How it has ended by itself, in words and once; None while it runs, and without a console."""
        if self._process is None or self._process.poll() is None:
            return None
        process, self._process = self._process, None
        return f"The console (process {process.pid}) has ended. The brokers go on. Start one with: barnabas console"

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def console_child() -> Iterator[ConsoleChild]:
    """A console that may be started in the block, and ends with it."""
    child = ConsoleChild()
    try:
        yield child
    finally:
        child.stop()
