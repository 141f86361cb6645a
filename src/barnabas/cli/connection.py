"""Options that every command which talks to a broker shares, and the connection they describe."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.failures import Failed
from barnabas.cli.files import read_properties
from barnabas.cli.help import F, option
from barnabas.cli.numbers import POSITIVE32

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.clients.admin import Admin
    from barnabas.clients.groups import Groups
    from barnabas.clients.wire import Cluster, Node

    Connect = Callable[[], Cluster]
    """What a `connected` command is handed."""

DEFAULT_BOOTSTRAP_SERVER = "localhost:9092"


def connection_options(command: F) -> F:
    """`--bootstrap-server` and `--command-config`."""
    command = option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A properties file for the client, with librdkafka's names.",
        section="Connection",
        shared=True,
    )(command)
    return option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        default=DEFAULT_BOOTSTRAP_SERVER,
        show_default=True,
        help="Where to find the cluster; one broker is enough.",
        section="Connection",
        shared=True,
    )(command)


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """The connection's options for a command, which is handed, before all else, what opens the connection."""

    @connection_options
    @wraps(command)
    def with_connection(bootstrap_server: str, command_config: Path | None, **options: Any) -> None:
        command(lambda: open_cluster(bootstrap_server, command_config), **options)

    return with_connection


def connected_group(group: Callable[[], None]) -> Callable[..., None]:
    """The connection's options for a group of commands that take them too: those before a command are handed on."""

    @connection_options
    @wraps(group)
    def with_options(**_: Any) -> None:
        group()

    return with_options


def timeout_option(command: F) -> F:
    """`--timeout`, in milliseconds."""
    return option(
        "--timeout",
        type=POSITIVE32,
        metavar="MS",
        default=30_000,
        help="How long to wait for each answer.  [default: 30000]",
        section="Connection",
        shared=True,
    )(command)


def open_admin(bootstrap_server: str, command_config: Path | None) -> Admin:
    """An admin client with the options' settings."""
    from barnabas.clients.admin import Admin

    return Admin(bootstrap_server, config=client_properties(command_config))


def open_groups(bootstrap_server: str, command_config: Path | None, timeout_ms: int) -> Groups:
    """The cluster's consumer groups, with the options' settings."""
    from barnabas.clients.groups import Groups
    from barnabas.clients.wire import Cluster

    properties = _checked_properties(command_config)
    return Groups(Cluster(bootstrap_server, properties=properties, timeout=timeout_ms / 1000))


def open_cluster(bootstrap_server: str, command_config: Path | None) -> Cluster:
    """A connection to the cluster for single requests, with the options' settings."""
    from barnabas.clients.wire import Cluster

    return Cluster(bootstrap_server, properties=_checked_properties(command_config))


def find_brokers(cluster: Cluster, wanted: Collection[int]) -> dict[int, Node]:
    """These brokers, in their order, or all that are up if none is named; raises Failed if one is not up."""
    nodes = {node.id: node for node in cluster.nodes()}
    if missing := set(wanted) - nodes.keys():
        names = ", ".join(map(str, sorted(missing)))
        raise Failed(f"There is no broker {names}; those that are up: {', '.join(map(str, nodes))}.")
    return {broker: nodes[broker] for broker in sorted(wanted or nodes)}


def find_broker(cluster: Cluster, wanted: int | None) -> Node | None:
    """This broker; None stands for any. Raises Failed if it is not up."""
    return None if wanted is None else find_brokers(cluster, [wanted])[wanted]


def client_properties(command_config: Path | None) -> dict[str, str]:
    """What the file of --command-config says; the address comes from --bootstrap-server."""
    if command_config is None:
        return {}
    properties = read_properties(command_config)
    properties.pop("bootstrap.servers", None)
    return properties


def _checked_properties(command_config: Path | None) -> dict[str, str]:
    """As `client_properties`, for what reads those about security alone, and would pass over a misspelt one."""
    properties = client_properties(command_config)
    if properties:
        from barnabas.clients import config, security

        security.from_properties(properties)  # it says more of what is wrong than librdkafka does
        config.check(properties)
    return properties
