"""Several clients as one measurement: `--processes` of the performance tools.

A client in Python uses one core and a bit, so one alone does not show what a broker can do. Each process has a client
of its own and is started anew, since librdkafka does not outlive a fork. All begin together, when the last of them is
ready; what they count they send to the command, which adds it up. The first that fails ends them all.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.cli.common.failures import Failed, errors_in_one_line
from barnabas.cli.perf.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnContext
    from multiprocessing.process import BaseProcess

    Work = Callable[..., None]
    """What a process does: with a function that waits until all are ready, one that sends, and its share."""

SPAWN: Final[SpawnContext] = get_context("spawn")
_ENDED: Final = "A process of --processes was ended by somebody else."


class SharedTally(Tally):
    """How many records the consumers of all processes have read."""

    def __init__(self) -> None:
        self._total = SPAWN.Value("q", 0)

    @property
    def total(self) -> int:
        """Of now."""
        return int(self._total.value)

    def add(self, count: int) -> int:
        """More were read; how many that makes."""
        with self._total.get_lock():
            self._total.value += count
            return int(self._total.value)


class _Ready(NamedTuple):
    """A process could begin."""


class _Done(NamedTuple):
    """A process has ended well."""


class _Stopped(NamedTuple):
    """A process has ended otherwise."""

    why: str


def run_together(
    work: Work,
    shares: Sequence[tuple[Any, ...]],
    take: Callable[[Any], None],
    begin: Callable[[], None] = lambda: None,
    end: Callable[[], None] = lambda: None,
) -> None:
    """Run `work` in a process for each share; `take` gets what they send. Raises Failed when one of them fails.

    `begin` is called when all are ready, `end` when all are done, before time goes by until they are gone.
    """
    with ExitStack() as stack:
        with _deaf_to_interrupts():
            lines = [stack.enter_context(_started(work, share)) for share in shares]
        for line in lines:
            _receive(line)
        begin()
        for line in lines:
            _let_begin(line)
        while lines:
            ready = wait(lines)
            for line in [each for each in lines if each in ready]:
                message = _receive(line)
                if isinstance(message, _Done):
                    lines.remove(line)
                else:
                    take(message)
        end()


def _let_begin(line: Connection) -> None:
    try:
        line.send(None)
    except OSError:
        raise Failed(_ENDED) from None


def _receive(line: Connection) -> Any:
    try:
        message = line.recv()
    except (EOFError, OSError):
        raise Failed(_ENDED) from None
    if isinstance(message, _Stopped):
        raise Failed(message.why)
    return message


@contextmanager
def _started(work: Work, share: tuple[Any, ...]) -> Iterator[Connection]:
    """A process that runs; at the end of the block it is gone."""
    ours, theirs = SPAWN.Pipe()
    process: BaseProcess = SPAWN.Process(target=_run, args=(work, theirs, share), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.kill()
        process.join()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that are started meanwhile leave Ctrl-C to the command, which ends them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run(work: Work, line: Connection, share: tuple[Any, ...]) -> None:
    """What a process does, for as long as the command lives."""
    threading.Thread(target=_end_with_the_command, daemon=True).start()

    def wait_for_all() -> None:
        line.send(_Ready())
        line.recv()

    try:
        try:
            with errors_in_one_line():
                work(wait_for_all, line.send, *share)
            line.send(_Done())
        except Failed as failure:
            line.send(_Stopped(failure.format_message()))
    except (BrokenPipeError, ConnectionResetError, EOFError):
        _end_with_the_command()


def _end_with_the_command() -> None:
    """When the command has ended, however it did, end at once: whatever a client has not sent yet is of no use."""
    command = parent_process()
    assert command is not None
    command.join()
    os._exit(1)
