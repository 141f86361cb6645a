"""`barnabas stop`: end the broker of a data directory, or the brokers below it, cleanly."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.broker_options import BrokerCommandOptions, broker_options
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.values.numbers import Decimal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, kw_only=True)
class StoppingOptions(BrokerCommandOptions):
    """The options of `barnabas stop` and `barnabas restart`."""

    timeout: float


stop_timeout: Final = option(
    "--timeout",
    type=Decimal(0, DAY_SECONDS),
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="How long to wait for a broker to end.",
)


@click.command(
    cls=Command,
    examples=[
        ("the broker with its data in ./data, or the cluster of `barnabas start --brokers 3`", "barnabas stop"),
        ("the broker with its data elsewhere", "barnabas stop --data /var/lib/barnabas"),
        (
            "the brokers that `barnabas start` with the same options has started",
            "barnabas stop --config server.properties --brokers 3",
        ),
    ],
)
@broker_options(
    brokers="Stop the cluster of `barnabas start --brokers N`, with its data in DIR/0, DIR/1 and so on.",
    daemon="Has no effect, so that the options of `barnabas start` can be repeated.",
    secure="Has no effect, and is accepted like --daemon.",
    console="Has no effect: a console ends with its broker.",
    metrics="Has no effect, and is accepted like --daemon.",
)
@stop_timeout
@takes(StoppingOptions)
def command(options: StoppingOptions) -> None:
    """Stop the broker of a data directory, or the cluster that has its data there, and wait until it has ended.

    A broker gets SIGTERM: it finishes what it was doing, writes everything to disk and marks the stop as clean. Brokers
    of one cluster are stopped together. If no broker is running, nothing happens.
    """
    from barnabas.cli.start import service, several

    directory = several.root(options.data) if options.brokers is not None else options.load().log_dirs[0]
    stopped, failures = 0, []
    if (starter := several.starter(directory)) is not None:
        _end(starter, directory, several.starter, options.timeout)
        click.echo(f"Stopped the brokers in {directory} (process {starter}).")
        return
    if (restarter := several.restarter(directory)) is not None:
        _end(restarter, directory, several.restarter, options.timeout)
    for folder, result in service.stop_together((directory, *several.folders(directory)), options.timeout):
        if isinstance(result, Failed):
            failures.append(str(result))
        elif result is not None:
            stopped += 1
            click.echo(f"Stopped the broker on {folder} (process {result}).")
    if failures:
        raise Failed("\n".join(failures))
    if not stopped:
        click.echo(f"No broker is running on {directory}.")


def _end(pid: int, directory: Path, find: Callable[[Path], int | None], timeout: float) -> None:
    """End the command that runs brokers in a terminal, and stops them then, or one that restarts them.

    It would start again what others stop. `find` tells whether it is still there.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 2 * timeout  # it may first have to wait for one that it was restarting
    while find(directory) == pid:
        if time.monotonic() > end:
            raise Failed(f"the brokers in {directory} (process {pid}) did not end within {2 * timeout:g} s")
        time.sleep(0.02)
