"""`barnabas top`: throughput, lag and slow requests of brokers, as they happen."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import Options as CommonOptions
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json
from barnabas.cli.common.values.files import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from barnabas.cli.top.figures import Figures
    from barnabas.clients.scraping import MetricsAccess

DEFAULT = "localhost:9404"
SHORTEST = 0.2


@dataclass(frozen=True, kw_only=True)
class TopOptions(CommonOptions):
    """The options of `barnabas top`."""

    metrics: tuple[str, ...]
    token_file: Path | None
    ca_file: Path | None
    interval: float
    once: bool
    as_json: bool

    def targets(self) -> list[str]:
        """Where the metrics listeners are."""
        words = [each.strip() for word in self.metrics or (DEFAULT,) for each in word.split(",")]
        return [f"localhost:{each}" if each.isdecimal() else each.rstrip("/") for each in words if each]

    def access(self) -> MetricsAccess:
        """What the listeners want of those who read them."""
        from barnabas.clients.scraping import MetricsAccess

        token = None if self.token_file is None else self.token_file.read_text(encoding="utf-8").strip()
        return MetricsAccess(token, self.ca_file)


@click.command(
    cls=Command,
    examples=[
        ("watch a broker that was started with --metrics 9404", "barnabas top"),
        ("watch three brokers", "barnabas top --metrics 9404,9405,9406"),
        (
            "watch a broker whose metrics need TLS and a token",
            "barnabas top --metrics https://broker1:9404 --token-file token --ca-file ca.pem",
        ),
        ("print the figures once, for a program", "barnabas top --once --json"),
    ],
)
@option(
    "--metrics",
    metavar="HOST:PORT,...",
    multiple=True,
    help=f"The metrics listeners of the brokers: HOST:PORT, a port of this machine, or a URL.  [default: {DEFAULT}]",
)
@option("--token-file", type=FILE, help="A file with the token of the metrics listeners (metrics.token).")
@option("--ca-file", type=FILE, help="The CA certificates, in PEM, to trust for metrics listeners with TLS.")
@option(
    "--interval",
    type=click.FloatRange(SHORTEST, 3600),
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    help="The time between two measurements.",
)
@option("--once", is_flag=True, help="Show the figures of one interval, then exit.")
@json_option
@takes(TopOptions)
def command(options: TopOptions) -> None:
    """Watch brokers: throughput, lag, slow requests, and what is wrong.

    The brokers must have been started with --metrics, or with metrics.listener. It ends with Ctrl-C.
    """
    style = choose_style(as_json=options.as_json)
    looks = _looks(options)
    if style is Style.TABLE and not options.once:
        _show_live(looks)
        return
    for figures in looks:
        _show(figures, style)
        if options.once:
            if all(row.failure is not None for row in figures.brokers):
                raise Failed("No broker has answered.")
            return


def _looks(options: TopOptions) -> Iterator[Figures]:
    """Figures of one interval after another."""
    from barnabas.cli.top.figures import compare
    from barnabas.cli.top.reading import read_all

    targets, access = options.targets(), options.access()
    before = read_all(targets, access)
    while True:
        time.sleep(options.interval)
        now = read_all(targets, access)
        yield compare(before, now)
        before = now


def _show(figures: Figures, style: Style) -> None:
    if style is Style.JSON:
        print_json(figures.as_json())
    elif style is Style.TABLE:
        from rich.console import Console

        from barnabas.cli.top.screen import screen

        Console(highlight=False, markup=False).print(screen(figures))
    else:
        from barnabas.cli.top.screen import lines

        for line in lines(figures):
            click.echo(line)
    sys.stdout.flush()


def _show_live(looks: Iterator[Figures]) -> None:
    """Show figures in place until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from barnabas.cli.top.screen import screen

    console = Console(highlight=False, markup=False)
    try:
        with Live(Text("Reading …"), console=console, screen=True, auto_refresh=False) as live:
            for figures in looks:
                live.update(screen(figures), refresh=True)
    except KeyboardInterrupt:
        return
