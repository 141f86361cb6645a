"""How commands that run Spark end before their time: in one line, and with no process left behind.

Spark says in pages why it failed; which line tells what it was depends on who said it.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.failures import INTERRUPTED, Failed
from barnabas.cli.help import F, option
from barnabas.cli.output import remark

if TYPE_CHECKING:
    from collections.abc import Iterator

END_SECONDS: Final = 3.0
GONE: Final = "Spark's Java process has ended."


def verbose_option(command: F) -> F:
    """`--verbose`."""
    return option("--verbose", "-v", is_flag=True, help="Show what Spark writes to its log.", section="Job")(command)


@contextmanager
def ended_by_signals(told: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM interrupt what is done, and are told in a line; Java ends with it, whatever it is doing.

    What does not end in time, or is interrupted a second time, is left as a crash would leave it.
    """

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt as interruption:
        from barnabas.pipelines.java import end_java
        from barnabas.pipelines.loading.stopping import Abandoned

        for number in before:
            signal.signal(number, signal.SIG_IGN)
        abandoned = isinstance(interruption, Abandoned)
        end_java(0 if abandoned else END_SECONDS)
        remark(told)
        if abandoned:  # a thread may be in the middle of anything, and would be waited for
            os._exit(INTERRUPTED)
        raise click.exceptions.Exit(INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def in_one_line(advice: str) -> Iterator[None]:
    """Errors of Spark, and of the line to its Java process, become failures with advice; others are left alone."""
    try:
        yield
    except Exception as error:
        failure = _failure(error, advice)
        if failure is None:
            raise
        raise failure from error


def _failure(error: Exception, advice: str) -> Failed | None:
    if isinstance(error, ConnectionError) and not isinstance(error, BrokenPipeError):  # that is our output's
        return Failed(f"{GONE} {advice}")
    if not type(error).__module__.startswith(("py4j", "pyspark")):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if "JAVA_GATEWAY_EXITED" in lines[0]:
        from barnabas.pipelines.errors import SparkNotStarted

        return Failed(str(SparkNotStarted.because("it says above why")))
    from barnabas.pipelines.runner.failures import said_by_python

    if told := said_by_python(str(error)):  # by a worker, as that the disk is full
        return Failed(f"{told.rstrip('.')}. {advice}")
    # Where Python called Java, the first line names the call, and Java's exception begins the next one.
    said = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
    return Failed(f"Spark: {said.rstrip('.')}. {advice}")
