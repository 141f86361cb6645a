"""`barnabas log strays`: logs that a broker set aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.combinations import needs
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_tabbed, print_table, remark
from barnabas.cli.log.folders import FolderOptions, folders_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.storage.strays import FoundStray

COLUMNS: Final = ("PATH", "TOPIC", "PARTITION", "TOPIC-ID", "BYTES")


@dataclass(frozen=True, kw_only=True)
class Options(FolderOptions):
    """The options of `barnabas log strays`."""

    topic: str | None
    remove: bool
    yes: bool
    as_json: bool

    def check(self) -> None:
        """Refuse an answer to a question that is not asked."""
        needs(self, "yes", "remove")


@click.command(
    cls=Command,
    short_help="Show or remove logs that were set aside.",
    examples=[
        ("list logs that were set aside", "barnabas log strays ./data"),
        ("remove all of them, after a question", "barnabas log strays ./data --remove"),
        ("remove those of one topic, without a question", "barnabas log strays ./data --topic orders --remove --yes"),
    ],
)
@folders_argument
@option("--topic", metavar="NAME", help="Only logs of this topic.", section="What")
@option("--remove", is_flag=True, help="Delete these logs.", section="What")
@option("--yes", is_flag=True, help="Do not ask for confirmation.", section="What")
@json_option
@takes(Options)
def strays(options: Options) -> None:
    """Show logs that were set aside in data directories, or remove them.

    A broker sets a log aside (as TOPIC-PARTITION.ID-stray) when the metadata does not assign the replica to it. It
    removes the log when the metadata says that the topic was deleted, and uses it again when the replica is assigned to
    it again. Other logs stay until they are removed with this command. The broker may be running.
    """
    from barnabas.storage.strays import list_strays

    found = [
        each
        for directory in options.directories
        for each in list_strays(directory)
        if options.topic in (None, each.topic)
    ]
    show(found, as_json=options.as_json)
    if not found:
        remark("Nothing is set aside.")
    elif options.remove:
        remove(found, ask=not options.yes)


def show(found: Sequence[FoundStray], *, as_json: bool) -> None:
    """A line per log."""
    rows = [(str(each.path), each.topic, each.partition, each.topic_id_text, each.size) for each in found]
    match choose_style(as_json=as_json):
        case Style.JSON:
            names = ("path", "topic", "partition", "topicId", "bytes")
            print_json([dict(zip(names, row, strict=True)) for row in rows])
        case Style.TABLE if rows:
            print_table(COLUMNS, rows)
        case Style.PLAIN if rows:
            print_tabbed((COLUMNS, *rows))


def remove(found: Sequence[FoundStray], *, ask: bool) -> None:
    """Remove logs, and say how many; a broker may take one back meanwhile."""
    from barnabas.storage.strays import remove_stray

    if ask:
        size = sum(each.size for each in found)
        click.confirm(f"Remove these {len(found)} logs with {size} bytes for good?", abort=True, err=True)
    removed = [each for each in found if remove_stray(each.path)]
    remark(f"Removed {len(removed)} logs with {sum(each.size for each in removed)} bytes.")
    if len(removed) < len(found):
        remark(f"{len(found) - len(removed)} others are not there any more: a broker took them back or removed them.")
