"""The command line of `barnabas pipeline`: a group of commands, in the modules beside this one.

`init`, `check` and `status` start no Spark; `run` does, and `check --spark`.
"""

from __future__ import annotations

import click

from barnabas.cli.common.help import CommandGroup
from barnabas.cli.common.options import takes
from barnabas.cli.pipeline.check import check
from barnabas.cli.pipeline.files import ServerOptions, server_options
from barnabas.cli.pipeline.init import init
from barnabas.cli.pipeline.run import run
from barnabas.cli.pipeline.status import status


@click.group(
    cls=CommandGroup,
    examples=[
        ("write an example", "barnabas pipeline init"),
        ("check it", "barnabas pipeline check pipeline.toml"),
        ("process the records that are there, and end", "barnabas pipeline run pipeline.toml --available-now"),
        ("show how far it is", "barnabas pipeline status pipeline.toml"),
    ],
)
@server_options
@takes(ServerOptions)
def command(options: ServerOptions) -> None:
    """Run pipelines on Spark that are written in files: topics in, SQL or Python between, tables and topics out."""


for one in (init, check, run, status):
    command.add_command(one)
