"""One of several brokers that a command runs as its children, which may be started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.environment import LOG_PREFIX, READY_FD, STARTER_FD

if TYPE_CHECKING:
    from collections.abc import Sequence

STOP_SECONDS: Final = 60.0
"""How long a broker may take to end before it is killed."""


class BrokerChild:
    """One broker, which may be started again."""

    def __init__(self, broker_id: int, words: list[str], starter_pipe: int) -> None:
        self.broker_id = broker_id
        self._words = words
        self._starter_pipe = starter_pipe
        self.report: dict[str, Any] | None = None
        """What it said of itself when it was ready."""
        self.ready_at = 0.0
        self.is_late = False
        """Whether nobody waits any more for it to be ready."""
        self._is_end_told = False
        self._start()

    def _start(self) -> None:
        self.ready_pipe, writer = os.pipe()
        told = {STARTER_FD: str(self._starter_pipe), READY_FD: str(writer), LOG_PREFIX: f"[{self.broker_id}] "}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.cli.main", *self._words],
                pass_fds=(self._starter_pipe, writer),
                env={**os.environ, **told},
                start_new_session=True,
            )
        finally:
            os.close(writer)
        self._is_end_told = self.is_late = False

    def tell_end(self) -> str | None:
        """How it has ended, in words and once; None while it runs."""
        if self.runs or self._is_end_told:
            return None
        self._is_end_told = True
        early = "" if self.report is not None or self.ready_pipe >= 0 else " before it was ready"
        return f"Broker {self.broker_id} (process {self._process.pid}) {how_it_ended(self._process.returncode)}{early}"

    @property
    def runs(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    @property
    def code(self) -> int:
        """Its exit code, after its end."""
        code: int = self._process.returncode
        return abs(code)

    def listen(self) -> None:
        """Read its report, which is there, or the end of the pipe."""
        with os.fdopen(self.ready_pipe, encoding="utf-8") as pipe:
            text = pipe.read()
        self.ready_pipe = -1
        self.report = json.loads(text) if text else None
        self.ready_at = time.monotonic()

    def ask_to_end(self) -> None:
        """Tell it to stop."""
        if self.runs:
            self._process.send_signal(signal.SIGTERM)

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, which is waited for so long."""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True

    def wait_for_end(self, until: float) -> None:
        """Wait for the end of one that was told to stop; kill it where it takes longer."""
        if self.runs and not self.ends_within(until - time.monotonic()):
            self._process.kill()
            self._process.wait()
        if self.ready_pipe >= 0:
            os.close(self.ready_pipe)
            self.ready_pipe = -1

    def start_again(self) -> None:
        """Start it after its end."""
        self.report = None
        self._start()


def how_it_ended(code: int) -> str:
    """The end of a process in words: `code` is its exit code, or the negative number of the signal that killed it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def end_all(children: Sequence[BrokerChild]) -> None:
    """Stop these together, and wait."""
    for child in children:
        child.ask_to_end()
    until = time.monotonic() + STOP_SECONDS
    for child in children:
        child.wait_for_end(until)
