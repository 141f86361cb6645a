"""The options that `barnabas groups` and `barnabas share-groups` both have, as decorators of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.common.help import option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.common.help import F

SCOPE: Final = "Groups and topics"
REPORT: Final = "What to show"
TARGET: Final = "Where to reset to"


def scope_options(command: F) -> F:
    """`--group`, `--all-groups` and `--topic`."""
    return _decorated(
        command,
        (
            option("--group", metavar="ID", multiple=True, help="The group; repeatable.", section=SCOPE),
            option("--all-groups", is_flag=True, help="All groups.", section=SCOPE),
            option(
                "--topic",
                metavar="NAME[:0,1,...]",
                multiple=True,
                help="A topic, or some of its partitions; repeatable.",
                section=SCOPE,
            ),
        ),
    )


def report_options(command: F) -> F:
    """`--offsets`, `--members` and `--verbose`."""
    return _decorated(
        command,
        (
            option(
                "--offsets", is_flag=True, help="Show offsets and lag of each partition.  [default]", section=REPORT
            ),
            option(
                "--members", is_flag=True, help="Show the members, and how many partitions each has.", section=REPORT
            ),
            option(
                "--verbose", is_flag=True, help="Show epochs, and which member has which partition.", section=REPORT
            ),
        ),
    )


def target_options(command: F) -> F:
    """`--to-earliest`, `--to-latest`, `--to-datetime`, `--dry-run` and `--execute`."""
    return _decorated(
        command,
        (
            option("--to-earliest", is_flag=True, help="To the first record.", section=TARGET),
            option("--to-latest", is_flag=True, help="To the end of the log.", section=TARGET),
            option(
                "--to-datetime",
                metavar="TIME",
                help="To the first record at or after YYYY-MM-DDThh:mm:ss.sss, in UTC unless +hh:mm follows.",
                section=TARGET,
            ),
            option("--dry-run", is_flag=True, help="Show the new offsets, and change nothing.", section=TARGET),
            option("--execute", is_flag=True, help="Set the new offsets.", section=TARGET),
        ),
    )


def _decorated(command: F, decorators: Sequence[Callable[[F], F]]) -> F:
    """The last decorator first, as if they stood above the command."""
    for decorate in reversed(decorators):
        command = decorate(command)
    return command
