"""The cluster and the client of a performance tool: their options, and what they say together.

A tool that measures takes its address from --bootstrap-server, else from the properties, else the usual one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.client_properties import SERIALIZERS, given_properties
from barnabas.cli.common.connection import DEFAULT_BOOTSTRAP_SERVER
from barnabas.cli.common.help import F, option
from barnabas.cli.common.options import Options
from barnabas.cli.common.values.files import FILE
from barnabas.cli.common.values.numbers import POSITIVE32, POSITIVE64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class PerfOptions(Options):
    """The options that all performance tools have."""

    bootstrap_server: str | None
    command_config: Path | None
    as_json: bool

    def client_properties(self, files: Sequence[str], pairs: Sequence[str] = ()) -> dict[str, Any]:
        """What files and pairs say, by the fields of their flags, with the address."""
        found: dict[str, Any] = given_properties(self, files, pairs)
        for name in SERIALIZERS:
            found.pop(name, None)
        return with_address(found, self.bootstrap_server)


def perf_options(command: F) -> F:
    """`--bootstrap-server` and `--command-config`."""
    command = option("--command-config", type=FILE, help="A file with properties of the client.", section="Connection")(
        command
    )
    return option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="Brokers of the cluster; one of them is enough.  [default: that of the properties, or "
        f"{DEFAULT_BOOTSTRAP_SERVER}]",
        section="Connection",
    )(command)


def report_options(command: F) -> F:
    """`--reporting-interval`, `--date-format` and `--hide-header`, of the tools that read."""
    command = option("--hide-header", is_flag=True, help="Do not print the header.", section="Report")(command)
    command = option(
        "--date-format",
        default="yyyy-MM-dd HH:mm:ss:SSS",
        metavar="FORMAT",
        help="The format of times, as in Java's SimpleDateFormat.  [default: yyyy-MM-dd HH:mm:ss:SSS]",
        section="Report",
    )(command)
    return option(
        "--reporting-interval",
        type=POSITIVE64,
        default=5000,
        metavar="MS",
        help="The interval of --show-detailed-stats.  [default: 5000]",
        section="Report",
    )(command)


def consumer_config_option(command: F) -> F:
    """`--consumer.config`, of the tools that read."""
    return option(
        "--consumer.config",
        "consumer_config",
        type=FILE,
        help="Older name of --command-config.",
        section="Connection",
    )(command)


def processes_option(text: str) -> Callable[[F], F]:
    """`--processes`, of the tools that are limited by the one core that a client uses."""
    return option("--processes", type=POSITIVE32, default=1, metavar="N", help=text, section="Load")


def check_processes(processes: int, records: int, metrics: bool) -> None:
    """Refuse more processes than there are records, and statistics of several clients; raises UsageError."""
    if processes > records:
        raise click.UsageError(f"--processes {processes} is more than --num-records {records}.")
    if processes > 1 and metrics:
        raise click.UsageError("--print-metrics is for one process; leave --processes out.")


def with_address(properties: dict[str, Any], bootstrap_server: str | None) -> dict[str, Any]:
    """The properties, at the address of --bootstrap-server if it is given, else at their own or the default one."""
    if bootstrap_server is not None:
        return properties | {"bootstrap.servers": bootstrap_server}
    return {"bootstrap.servers": DEFAULT_BOOTSTRAP_SERVER} | properties


def open_perf_client(kind: str, properties: dict[str, Any]) -> Any:
    """A client of librdkafka; one that could only wait for a broker that is not there is not made."""
    from barnabas.clients.config import open_client
    from barnabas.clients.library import load_kafka
    from barnabas.clients.logins import require_login

    client = open_client(load_kafka(), kind, properties)
    require_login(properties["bootstrap.servers"], properties)
    return client
