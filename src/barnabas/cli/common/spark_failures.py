"""How commands that run Spark end before their time: in one line, and with no process left behind.

Spark says in pages why it failed; which line tells what it was depends on who said it.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.failures import INTERRUPTED, Failed
from barnabas.cli.common.help import F, option
from barnabas.cli.common.output import remark

if TYPE_CHECKING:
    from collections.abc import Iterator

END_SECONDS: Final = 3.0
GONE: Final = "Spark's Java process has ended."


def verbose_option(command: F) -> F:
    """`--verbose`."""
    return option("--verbose", "-v", is_flag=True, help="Show the log of Spark.", section="Job")(command)


@contextmanager
def ended_by_signals(farewell: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM interrupt what is done, with a farewell in a line; Java ends with it, whatever it is doing.

    What does not end in time, or is interrupted a second time, is left as a crash would leave it.
    """

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    root = logging.getLogger()  # which py4j uses itself
    try:
        yield
    except KeyboardInterrupt as interruption:
        from barnabas.pipelines.loading.stopping import Abandoned
        from barnabas.pipelines.spark.java import end_java

        for number in before:
            signal.signal(number, signal.SIG_IGN)
        root.addFilter(_is_not_of_py4j)
        abandoned = isinstance(interruption, Abandoned)
        end_java(0 if abandoned else END_SECONDS)
        remark(farewell)
        if abandoned:  # a thread may be in the middle of anything, and would be waited for
            os._exit(INTERRUPTED)
        raise click.exceptions.Exit(INTERRUPTED) from None
    finally:
        root.removeFilter(_is_not_of_py4j)
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a line is not one that py4j logs of a call that fails, as all do when Java has ended."""
    return Path(record.pathname).parent.name != "py4j"


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
    if _condition(error) == "JAVA_GATEWAY_EXITED":
        from barnabas.pipelines.errors import SparkNotStarted

        return Failed(str(SparkNotStarted.because("it says above why")))
    from barnabas.pipelines.spark.error_texts import java_error, python_error

    if raised := python_error(str(error)):  # by a worker, as that the disk is full
        return Failed(f"{raised.rstrip('.')}. {advice}")
    return Failed(f"Spark: {java_error(str(error)) or type(error).__name__}. {advice}")


def _condition(error: Exception) -> str | None:
    """Spark's own name for what happened, if it has one."""
    name: str | None = getattr(error, "getCondition", lambda: None)()
    return name
