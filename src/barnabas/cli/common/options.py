"""How a command takes its options: as one frozen dataclass, which is checked before the command runs.

    @dataclass(frozen=True, kw_only=True)
    class Options(ConnectionOptions):
        topic: str | None
        as_json: bool

    @click.command(cls=Command)
    @option("--topic", metavar="NAME", help="The topic.")
    @connection_options
    @json_option
    @takes(Options)
    def command(options: Options) -> None:
        with options.connect() as cluster:
            ...

All commands of Barnabas are written in this way. `combinations.py` has the rules about options that go together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class Options:
    """A command line, one field per option."""

    def check(self) -> None:
        """Raise UsageError for options that do not go together; a command without such options has nothing to check."""


T = TypeVar("T", bound=Options)


def takes(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Call a command with its options as one value; a group whose command was named has nothing to do itself."""

    def decorate(command: Callable[[T], None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            if click.get_current_context().invoked_subcommand is not None:
                return
            options = kind(**values)
            options.check()
            command(options)

        return run

    return decorate
