"""Options that every command which talks to a broker shares, and the connection they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.help import F, option

if TYPE_CHECKING:
    from barnabas.clients.admin import Admin
    from barnabas.clients.groups import Groups
    from barnabas.clients.wire import Cluster

DEFAULT_BOOTSTRAP_SERVER = "localhost:9092"


def connection_options(command: F) -> F:
    """`--bootstrap-server` and `--command-config`."""
    command = option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A properties file for the client, with librdkafka's names.",
        section="Connection",
    )(command)
    return option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        default=DEFAULT_BOOTSTRAP_SERVER,
        show_default=True,
        help="Where to find the cluster; one broker is enough.",
        section="Connection",
    )(command)


def timeout_option(command: F) -> F:
    """`--timeout`, in milliseconds."""
    return option(
        "--timeout",
        type=click.IntRange(min=1),
        metavar="MS",
        default=30_000,
        help="How long to wait for each answer.  [default: 30000]",
        section="Connection",
    )(command)


def open_admin(bootstrap_server: str, command_config: Path | None) -> Admin:
    """An admin client with the options' settings."""
    from barnabas.clients.admin import Admin

    return Admin(bootstrap_server, config=client_properties(command_config))


def open_groups(bootstrap_server: str, command_config: Path | None, timeout_ms: int) -> Groups:
    """The cluster's consumer groups, with the options' settings."""
    from barnabas.clients.groups import Groups
    from barnabas.clients.wire import Cluster

    properties = client_properties(command_config)
    return Groups(Cluster(bootstrap_server, properties=properties, timeout=timeout_ms / 1000))


def open_cluster(bootstrap_server: str, command_config: Path | None) -> Cluster:
    """A connection to the cluster for single requests, with the options' settings."""
    from barnabas.clients.wire import Cluster

    return Cluster(bootstrap_server, properties=client_properties(command_config))


def client_properties(command_config: Path | None) -> dict[str, str]:
    """What the file of --command-config says; the address comes from --bootstrap-server."""
    if command_config is None:
        return {}
    from barnabas.model.config.properties import parse_properties

    properties = parse_properties(command_config.read_text(encoding="utf-8"))
    properties.pop("bootstrap.servers", None)
    return properties
