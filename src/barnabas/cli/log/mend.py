"""`barnabas log mend`: repair the data directories of a broker that is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import remark
from barnabas.cli.log.folders import FolderOptions, folders_argument

if TYPE_CHECKING:
    from barnabas.storage.recovery.mending import Mended


@dataclass(frozen=True, kw_only=True)
class Options(FolderOptions):
    """The options of `barnabas log mend`."""

    accept_loss: bool


@click.command(
    cls=Command,
    short_help="Repair data directories of a stopped broker.",
    examples=[
        ("before the data goes to Apache Kafka", "barnabas log mend ./data"),
        ("give up records that are lost", "barnabas log mend --accept-loss ./data"),
    ],
)
@folders_argument
@option(
    "--accept-loss",
    is_flag=True,
    help="Give up records that were lost from disk.",
    section="What",
)
@takes(Options)
def mend(options: Options) -> None:
    """Repair the data directories of a stopped broker, and print what was done.

    Batches of offsets that were committed in transactions get a sequence number, as in Apache Kafka. Earlier versions
    of Barnabas wrote none, and Kafka's cleaner stops at such a partition.

    A broker does not serve a log that has lost records from disk. --accept-loss gives these records up: their offsets
    are not used again, and the log continues after them. The exit code is 1 if a log was left as it is.
    """
    from barnabas.storage.recovery.mending import mend

    left = False
    for directory in options.directories:
        count = 0
        for mended in mend(directory, accept_loss=options.accept_loss):
            count += 1
            left = left or not mended.done
            click.echo(f"{directory}: {mended.partition}: {mended.what}{_if_accepted(mended)}")
        if not count:
            remark(f"{directory}: there is nothing to mend.")
    if left:
        raise click.exceptions.Exit(1)


def _if_accepted(mended: Mended) -> str:
    return "" if mended.goes_on_at is None else f"; with --accept-loss, the log goes on at {mended.goes_on_at}"
