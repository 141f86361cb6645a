"""The cluster that a command talks to: the options that name it, and the connection that they describe.

A command reaches a cluster by `options.connect()`, and by nothing else. `clients/admin/cluster_admin.py` says what can
be asked there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import F, option
from barnabas.cli.common.options import Options
from barnabas.cli.common.values.files import FILE, read_properties
from barnabas.cli.common.values.numbers import POSITIVE32

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.wire.connection import Node
    from barnabas.model.permissions import Action

DEFAULT_BOOTSTRAP_SERVER = "localhost:9092"
ADDRESS = "bootstrap.servers"


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(Options):
    """The options of a command that talks to a cluster."""

    bootstrap_server: str | None
    command_config: Path | None

    @property
    def address(self) -> str:
        """Where brokers are: what --bootstrap-server says, or else the file of --command-config."""
        return self.bootstrap_server or self.given_properties.get(ADDRESS, "").strip() or DEFAULT_BOOTSTRAP_SERVER

    def connect(self, timeout_ms: int | None = None) -> ClusterAdmin:
        """The cluster, to be used in a `with`; nothing is asked of it yet."""
        return open_cluster(self.address, self.client_properties(), timeout_ms)

    @cached_property
    def given_properties(self) -> dict[str, str]:
        """What the file of --command-config says, if there is one. It is read once: it may be a pipe."""
        return {} if self.command_config is None else read_properties(self.command_config)

    def client_properties(self) -> dict[str, str]:
        """The properties of a client that were given, without the address."""
        return without_address(self.given_properties)


def read_client_properties(file: Path | None) -> dict[str, str]:
    """The properties of a client in a file, if there is one, without the address."""
    return {} if file is None else without_address(read_properties(file))


def without_address(properties: dict[str, str]) -> dict[str, str]:
    """The properties of a client for a cluster whose address is known."""
    return {name: value for name, value in properties.items() if name != ADDRESS}


def connection_options(command: F) -> F:
    """`--bootstrap-server` and `--command-config`, the fields of `ConnectionOptions`."""
    command = option(
        "--command-config",
        type=FILE,
        help="A file with properties of the client, under librdkafka's names or Java's.",
        section="Connection",
        shared=True,
    )(command)
    return option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="Brokers of the cluster; one of them is enough.  [default: that of the properties, or "
        f"{DEFAULT_BOOTSTRAP_SERVER}]",
        section="Connection",
        shared=True,
    )(command)


def timeout_option(command: F) -> F:
    """`--timeout`, in milliseconds."""
    return option(
        "--timeout",
        type=POSITIVE32,
        metavar="MS",
        default=30_000,
        help="How long to wait for each response.  [default: 30000]",
        section="Connection",
        shared=True,
    )(command)


def open_cluster(
    bootstrap_server: str, properties: Mapping[str, str] | None = None, timeout_ms: int | None = None
) -> ClusterAdmin:
    """A cluster by its address."""
    from barnabas.clients.admin.cluster_admin import ClusterAdmin

    return ClusterAdmin(bootstrap_server, properties, None if timeout_ms is None else timeout_ms / 1000)


def refuse_forbidden(cluster: ClusterAdmin, topic: str, action: Action | None = None) -> None:
    """Raise RequestRefused for a topic that this user may not see: it is in no list, as if it were not there.

    The `action` is what is wanted of it, if that is more.
    """
    from barnabas.clients.errors import RequestRefused
    from barnabas.model.base_error import BarnabasError
    from barnabas.model.errors import ErrorCode

    try:
        cluster.topics.describe_topics([topic])
    except RequestRefused as error:
        if error.code is ErrorCode.topic_authorization_failed:
            if action is None:
                raise
            raise RequestRefused(error.code, str(error), action) from error
    except BarnabasError:
        return  # of which the next question tells


def find_brokers(cluster: ClusterAdmin, wanted: Collection[int]) -> dict[int, Node]:
    """These brokers, in their order, or all that are up if none is named; raises Failed if one is not up."""
    nodes = cluster.brokers.up()
    if missing := set(wanted) - nodes.keys():
        names = ", ".join(map(str, sorted(missing)))
        raise Failed(f"There is no broker {names}. The brokers that are up: {', '.join(map(str, nodes))}.")
    return {broker: nodes[broker] for broker in sorted(wanted or nodes)}


def find_broker(cluster: ClusterAdmin, wanted: int | None) -> Node | None:
    """This broker; None stands for any. Raises Failed if it is not up."""
    return None if wanted is None else find_brokers(cluster, [wanted])[wanted]
