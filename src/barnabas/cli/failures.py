"""How a command fails: one line that says what happened and what to do next, and an exit code.

    0  done
    1  it did not work (or, for a check, something is wrong)
    2  the command line was not understood
    130  interrupted

Whatever Barnabas raises on purpose, and what the operating system refuses, becomes such a line. Anything else is a
defect, and shows where it happened.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTED: Final = 130


class Failed(click.ClickException):
    """The command did not work; printed as one line, which a terminal gets broken between words."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Say what happened, on standard error."""
        text = f"Error: {self.format_message()}"
        click.echo(_wrapped(text) if file is None and sys.stderr.isatty() else text, file=file, err=True)


def _wrapped(text: str) -> str:
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, break_on_hyphens=False, break_long_words=False) for line in text.splitlines()
    )


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn the errors of Barnabas and of the operating system into `Failed`, and Ctrl-C into its exit code."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            click.echo(err=True)  # the shell's prompt does not belong behind ^C
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Failed(f"{where}{error.strerror or error}") from error
    except Exception as error:
        # Imported only now: the classes bring kio's error codes, and most commands do not fail.
        from barnabas.model.base_error import BarnabasError

        if not isinstance(error, BarnabasError):
            raise
        raise Failed(f"{error}{_next_step(error)}") from error


def _next_step(error: Exception) -> str:
    from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, LoginFailed

    if isinstance(error, LoginFailed):
        return ". Look at the properties of the connection: security.protocol, ssl.* and sasl.*."
    if isinstance(error, BrokerSilent):
        return (
            ". Is that the right port, and does the listener speak the security protocol you use? "
            "If the broker is busy, its log says so."
        )
    if isinstance(error, BrokerUnreachable):
        return ". Start one with `barnabas start`, or name another with --bootstrap-server HOST:PORT."
    if unknown := re.fullmatch(r"Unknown topic config name: (\S+)", str(error)):
        return _nearest_config(unknown[1])
    return ""


def _nearest_config(name: str) -> str:
    import difflib

    from barnabas.model.config.keys import TOPIC_KEYS

    near = difflib.get_close_matches(name, TOPIC_KEYS, n=1)
    return f". Did you mean {near[0]}?" if near else ""
