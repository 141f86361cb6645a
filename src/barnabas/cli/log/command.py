"""The command line of `barnabas log`: a group of commands, in the modules beside this one. No broker is asked.

All but `mend` and `strays --remove` only read.
"""

from __future__ import annotations

import click

from barnabas.cli.common.help import CommandGroup
from barnabas.cli.common.options import Options, takes
from barnabas.cli.log.check import check
from barnabas.cli.log.cleaner import cleaner
from barnabas.cli.log.dump import dump
from barnabas.cli.log.mend import mend
from barnabas.cli.log.strays import strays


@click.group(
    cls=CommandGroup,
    examples=[
        ("check the data of a broker", "barnabas log check ./data"),
        ("show what a segment holds", "barnabas log dump ./data/orders-0/00000000000000000000.log"),
        ("show what compaction did", "barnabas log cleaner ./data"),
        ("show logs that were set aside", "barnabas log strays ./data"),
        ("repair what an earlier version wrote", "barnabas log mend ./data"),
    ],
)
@takes(Options)
def command(options: Options) -> None:
    """Look into log files, check and repair them, and see what was compacted or set aside."""


for one in (dump, check, mend, cleaner, strays):
    command.add_command(one)
