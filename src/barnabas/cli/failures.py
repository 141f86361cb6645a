"""How a command fails: one line that says what happened and what to do next, and an exit code.

    0  done
    1  it did not work (or, for a check, something is wrong)
    2  the command line was not understood
    130  interrupted

Whatever Barnabas raises on purpose, and what the operating system refuses, becomes such a line. Anything else is a
defect, and shows where it happened.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator


class Failed(click.ClickException):
    """The command did not work; printed as one line."""

    exit_code = 1


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn the errors of Barnabas and of the operating system into `Failed`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Failed(f"{where}{error.strerror or error}") from error
    except Exception as error:
        # Imported only now: the classes bring kio's error codes, and most commands do not fail.
        from barnabas.model.errors import BarnabasError

        if not isinstance(error, BarnabasError):
            raise
        raise Failed(f"{error}{_next_step(error)}") from error


def _next_step(error: Exception) -> str:
    from barnabas.clients.errors import BrokerSilent, BrokerUnreachable

    if isinstance(error, BrokerSilent):
        return (
            ". Is that the right port, and does the listener speak the security protocol you use? "
            "If the broker is busy, its log says so."
        )
    if isinstance(error, BrokerUnreachable):
        return ". Start one with `barnabas start`, or name another with --bootstrap-server HOST:PORT."
    return ""
