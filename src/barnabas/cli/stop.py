"""`barnabas stop`: end the broker of a data directory, cleanly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.broker_options import config_option, data_option, load_config
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import Decimal

if TYPE_CHECKING:
    from pathlib import Path

DAY_SECONDS: Final = 86_400


@click.command(
    cls=Command,
    examples=[
        ("the broker with its data in ./data", "barnabas stop"),
        ("another", "barnabas stop --data /var/lib/barnabas"),
    ],
)
@data_option
@config_option
@option(
    "--timeout",
    type=Decimal(0, DAY_SECONDS),
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="How long to wait for it to end.",
)
def command(data: Path | None, config: Path | None, timeout: float) -> None:
    """Stop the broker of a data directory and wait until it has ended.

    It gets SIGTERM: it finishes what it was doing, writes everything to disk and marks the stop as clean. To stop a
    broker that was not running is no error.
    """
    from barnabas.cli import service

    directory = load_config(config=config, data=data).log_dirs[0]
    pid = service.stop(directory, timeout)
    if pid is None:
        click.echo(f"No broker is running on {directory}.")
    else:
        click.echo(f"Stopped the broker on {directory} (process {pid}).")
