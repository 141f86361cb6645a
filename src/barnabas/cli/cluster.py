"""`barnabas cluster`: kafka-cluster, which tells a cluster's id and its brokers, and unregisters a broker.

What kafka-cluster has for KRaft alone is left out: endpoints of controllers (here brokers are controllers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.help import Command, CommandGroup, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table
from barnabas.cli.common.values.numbers import INT32

if TYPE_CHECKING:
    from barnabas.clients.admin.brokers import ClusterDescription, RegisteredBroker

DEFAULT_RACK_WIDTH = 10


@dataclass(frozen=True, kw_only=True)
class IdOptions(ConnectionOptions):
    """The options of `cluster-id`."""

    as_json: bool


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(ConnectionOptions):
    """The options of `list-endpoints`."""

    include_fenced_brokers: bool
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class UnregisterOptions(ConnectionOptions):
    """The options of `unregister`."""

    broker_id: int


@click.group(
    cls=CommandGroup,
    examples=[
        ("show the id of the cluster", "barnabas cluster cluster-id"),
        ("list the brokers, where they listen, and which is the controller", "barnabas cluster list-endpoints"),
        ("list brokers that are down, too", "barnabas cluster list-endpoints --include-fenced-brokers"),
        ("unregister a broker that does not come back", "barnabas cluster unregister --id 3"),
        ("ask another cluster", "barnabas cluster list-endpoints --bootstrap-server broker1:9092 --json"),
    ],
)
@connection_options
@takes(ConnectionOptions)
def command(options: ConnectionOptions) -> None:
    """Show a cluster's id and its brokers. The commands are those of kafka-cluster."""


@command.command(
    "cluster-id",
    cls=Command,
    short_help="Show the cluster's id.",
    examples=[("of another cluster", "barnabas cluster cluster-id --bootstrap-server broker1:9092")],
)
@connection_options
@json_option
@takes(IdOptions)
def cluster_id(options: IdOptions) -> None:
    """Show the cluster's id."""
    with options.connect() as cluster:
        found = cluster.brokers.describe().cluster_id
    if options.as_json:
        print_json({"clusterId": found})
    else:
        click.echo(f"Cluster ID: {found}")


@command.command(
    "list-endpoints",
    cls=Command,
    short_help="List brokers and where they listen.",
    examples=[("print addresses for a script", "barnabas cluster list-endpoints --json | jq -r '.brokers[].host'")],
)
@option("--include-fenced-brokers", is_flag=True, help="Also list registered brokers that are down.")
@connection_options
@json_option
@takes(EndpointOptions)
def list_endpoints(options: EndpointOptions) -> None:
    """List the brokers that are up, and where clients reach them."""
    with options.connect() as cluster:
        found = cluster.brokers.describe(include_fenced=options.include_fenced_brokers)
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json(_document(found))
        case Style.PLAIN:
            _print_lines(found)
        case Style.TABLE:
            print_table(
                ("Broker", "Host", "Port", "Rack", ""),
                (
                    (one.id, one.host, one.port, one.rack or "-", _role(one, found.controller_id))
                    for one in found.brokers
                ),
            )


def _document(found: ClusterDescription) -> dict[str, object]:
    return {
        "clusterId": found.cluster_id,
        "controllerId": found.controller_id,
        "brokers": [
            {"id": one.id, "host": one.host, "port": one.port, "rack": one.rack, "state": _state(one)}
            for one in found.brokers
        ],
    }


def _print_lines(found: ClusterDescription) -> None:
    """As kafka-cluster prints it."""
    hosts = max(len(one.host) for one in found.brokers)
    racks = max((len(one.rack) for one in found.brokers if one.rack), default=DEFAULT_RACK_WIDTH)
    widths = (10, hosts, 10, racks, 10, 15)
    for words in (
        ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"),
        *((one.id, one.host, one.port, one.rack or "null", _state(one), "broker") for one in found.brokers),
    ):
        click.echo(" ".join(str(word).ljust(width) for word, width in zip(words, widths, strict=True)))


def _role(broker: RegisteredBroker, controller_id: int | None) -> str:
    return "controller" if broker.id == controller_id else "away" if broker.fenced else ""


def _state(broker: RegisteredBroker) -> str:
    return "fenced" if broker.fenced else "unfenced"


@command.command(
    "unregister",
    cls=Command,
    short_help="Unregister a broker that does not come back.",
    examples=[("broker 3 of another cluster", "barnabas cluster unregister --id 3 --bootstrap-server broker1:9092")],
)
@option("--id", "-i", "broker_id", type=INT32, required=True, metavar="ID", help="The broker's id.")
@connection_options
@takes(UnregisterOptions)
def unregister(options: UnregisterOptions) -> None:
    """Unregister a broker that is down for good: new topics get no replica on it any more.

    The replicas it has stay assigned to it: move them with `barnabas reassign-partitions`.
    """
    with options.connect() as cluster:
        cluster.brokers.unregister(options.broker_id)
    click.echo(f"Broker {options.broker_id} is no longer registered.")
