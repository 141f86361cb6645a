"""The command line of `barnabas table`: a group of commands, in the modules beside this one."""

from __future__ import annotations

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.help import CommandGroup
from barnabas.cli.common.options import takes
from barnabas.cli.table.describe import describe
from barnabas.cli.table.upkeep import compact, expire


@click.group(
    cls=CommandGroup,
    examples=[
        ("show what a table holds, and how far it lags behind its topic", "barnabas table describe lake/orders"),
        ("merge small files into large ones", "barnabas table compact lake/orders"),
        ("drop versions older than a month", "barnabas table expire lake/orders --older-than 30d"),
    ],
)
@connection_options
@takes(ConnectionOptions)
def command(options: ConnectionOptions) -> None:
    """Describe tables that `barnabas load` has written, compact and expire them."""


for one in (describe, compact, expire):
    command.add_command(one)
