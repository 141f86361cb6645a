"""What Spark says in pages, in one line: which of them tells what it was depends on who said it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from barnabas.cli.failures import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator

GONE: Final = "Spark's Java process has ended."
NOT_STARTED: Final = (
    "Spark could not start, and says above why. Is Java 17 or newer on the PATH, or in JAVA_HOME, and is the master "
    "one that Spark knows?"
)


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
        return Failed(NOT_STARTED)
    from barnabas.pipelines.runner.failures import said_by_python

    if told := said_by_python(str(error)):  # by a worker, as that the disk is full
        return Failed(f"{told.rstrip('.')}. {advice}")
    # Where Python called Java, the first line names the call, and Java's exception begins the next one.
    said = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
    return Failed(f"Spark: {said.rstrip('.')}. {advice}")
