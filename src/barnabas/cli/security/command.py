"""The command line of `barnabas security`."""

from __future__ import annotations

import click

from barnabas.cli.common.help import CommandGroup
from barnabas.cli.common.options import Options, takes
from barnabas.cli.security.certificate import certificate
from barnabas.cli.security.init import init


@click.group(
    cls=CommandGroup,
    examples=[
        ("make all that a secured broker needs, and say what to type next", "barnabas security init"),
        ("make another certificate, for a client", "barnabas security certificate alice --out alice.pem"),
    ],
)
@takes(Options)
def command(options: Options) -> None:
    """Make certificates, users and settings, for development and tests."""


for one in (init, certificate):
    command.add_command(one)
