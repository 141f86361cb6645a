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
AT_ONCE_SECONDS: Final = 2.0
"""How long a command may take that ends at once, on a machine that is busy."""


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
    stopped = 0
    if (starter := several.starter(directory)) is not None:
        if not _end(starter, directory, several.starter, 2 * options.timeout):
            raise Failed(f"the brokers in {directory} (process {starter}) did not end within {2 * options.timeout:g} s")
        click.echo(f"Stopped the brokers in {directory} (process {starter}).")
        return
    folders = (directory, *several.folders(directory))
    told: set[int] = set()
    failures = [failure for folder in folders if (failure := _end_restart(folder, options.timeout, told)) is not None]
    for folder, result in service.stop_together(folders, options.timeout):
        if isinstance(result, Failed):
            failures.append(str(result))
        elif result is not None:
            stopped += 1
            click.echo(f"Stopped the broker on {folder} (process {result}).")
    if failures:
        raise Failed("\n".join(failures))
    if not stopped:
        click.echo(f"No broker is running on {directory}.")


def _end_restart(directory: Path, timeout: float, told: set[int]) -> str | None:
    """End the command that restarts brokers in the background, which would start again what others stop.

    It first has the broker at hand started, which may take for ever: the second signal ends it, and that broker, at
    once. It holds the folders of all its brokers; whoever was `told` is not waited for again. Returns why it goes on.
    """
    from barnabas.cli.start import service, several

    if (pid := several.restarter(directory)) is None or pid in told:
        return None
    told.add(pid)
    seconds = max(2 * timeout, AT_ONCE_SECONDS)
    for _ in range(2):
        if _end(pid, directory, several.restarter, seconds):
            return None
        seconds = max(timeout, AT_ONCE_SECONDS) + service.END_SECONDS
    return f"the restart of the brokers in {directory} (process {pid}) did not end: see whether it runs, and try again"


def _end(pid: int, directory: Path, find: Callable[[Path], int | None], seconds: float) -> bool:
    """End the command that runs brokers in a terminal, and stops them then, or one that restarts them.

    `find` tells whether it is still there. Returns whether it has ended in time.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)  # one that was suspended by Ctrl-Z would hear it when nobody expects it any more
    end = time.monotonic() + seconds
    while find(directory) == pid:
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
