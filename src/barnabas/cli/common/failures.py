"""How a command fails: one line that says what happened and what to do next, and an exit code.

    0  done
    1  it did not work (or, for a check, something is wrong)
    2  the command line was not understood
    130  interrupted

Whatever Barnabas raises on purpose, and what the operating system refuses, becomes such a line. Anything else is a
defect, and shows where it happened.
"""

from __future__ import annotations

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
def errors_in_one_line() -> Iterator[None]:
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
        from barnabas.cli.common.remedies import with_remedy

        raise Failed(with_remedy(str(error), error.remedy)) from error
