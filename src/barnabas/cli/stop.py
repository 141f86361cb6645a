"""`barnabas stop`: end the broker of a data directory, or the brokers below it, cleanly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.broker_options import (
    brokers_option,
    config_option,
    data_option,
    listen_option,
    load_config,
    set_option,
)
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import Decimal

if TYPE_CHECKING:
    from pathlib import Path

DAY_SECONDS: Final = 86_400


@click.command(
    cls=Command,
    examples=[
        ("the broker with its data in ./data, or the cluster of `barnabas start --brokers 3`", "barnabas stop"),
        ("another", "barnabas stop --data /var/lib/barnabas"),
        ("what a start with these words began", "barnabas stop --config server.properties --brokers 3"),
    ],
)
@data_option
@config_option
@set_option
@listen_option
@brokers_option("The words of a start may be repeated: its brokers' data is in DIR/0, DIR/1 and so on.")
@option("--daemon", is_flag=True, help="Changes nothing: the words of a start may be repeated.")
@option(
    "--timeout",
    type=Decimal(0, DAY_SECONDS),
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="How long to wait for each broker to end.",
)
def command(
    data: Path | None,
    config: Path | None,
    settings: tuple[str, ...],
    listen: str | None,
    brokers: int | None,
    daemon: bool,
    timeout: float,
) -> None:
    """Stop the broker of a data directory, or the cluster that has its data there, and wait until it has ended.

    A broker gets SIGTERM: it finishes what it was doing, writes everything to disk and marks the stop as clean. Brokers
    of one cluster are stopped one after the other, so that each hands over what it leads. To stop a broker that was not
    running is no error.
    """
    from barnabas.cli import service, several
    from barnabas.cli.failures import Failed

    directory = several.root(data) if brokers else load_config(config, settings, listen, data).log_dirs[0]
    stopped, failures = 0, []
    for folder in (directory, *several.folders(directory)):
        try:
            pid = service.stop(folder, timeout)
        except Failed as failure:
            failures.append(str(failure))
            continue
        if pid is not None:
            stopped += 1
            click.echo(f"Stopped the broker on {folder} (process {pid}).")
    if failures:
        raise Failed("\n".join(failures))
    if not stopped:
        click.echo(f"No broker is running on {directory}.")
