"""The command line of `barnabas transactions`: a group of commands, in the modules beside this one."""

from __future__ import annotations

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.help import CommandGroup
from barnabas.cli.common.options import takes
from barnabas.cli.transactions.ending import abort, force_terminate
from barnabas.cli.transactions.hanging import find_hanging
from barnabas.cli.transactions.showing import describe, describe_producers, list_transactions


@click.group(
    cls=CommandGroup,
    examples=[
        ("list open transactions and their coordinators", "barnabas transactions list"),
        ("show one transactional id in full", "barnabas transactions describe --transactional-id billing-1"),
        ("show who writes to a partition", "barnabas transactions describe-producers --topic orders --partition 0"),
        ("find transactions that no coordinator would end", "barnabas transactions find-hanging --broker-id 1"),
        (
            "end one of them, so that read_committed consumers go on",
            "barnabas transactions abort --topic orders --partition 0 --start-offset 1200",
        ),
    ],
)
@connection_options
@takes(ConnectionOptions)
def command(options: ConnectionOptions) -> None:
    """Show transactions, and end those that hang. The flags are those of kafka-transactions."""


for one in (list_transactions, describe, describe_producers, find_hanging, abort, force_terminate):
    command.add_command(one)
