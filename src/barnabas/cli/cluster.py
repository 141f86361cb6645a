"""`barnabas cluster`: kafka-cluster, which tells a cluster's id and its brokers, and forgets a broker.

What kafka-cluster has for KRaft alone is left out: endpoints of controllers (here brokers are controllers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import connected, connected_group
from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, Group, option
from barnabas.cli.numbers import INT32
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table

if TYPE_CHECKING:
    from barnabas.cli.connection import Connect

DEFAULT_RACK_WIDTH = 10


@click.group(
    cls=Group,
    examples=[
        ("which cluster is this?", "barnabas cluster cluster-id"),
        ("its brokers, where they listen, and who is the controller", "barnabas cluster list-endpoints"),
        ("those that are away, too", "barnabas cluster list-endpoints --include-fenced-brokers"),
        ("a broker that does not come back", "barnabas cluster unregister --id 3"),
        ("of another one", "barnabas cluster list-endpoints --bootstrap-server broker1:9092 --json"),
    ],
)
@connected_group
def command() -> None:
    """Tell a cluster's id and its brokers. The commands are those of kafka-cluster."""


@command.command(
    "cluster-id",
    cls=Command,
    short_help="Show the cluster's id.",
    examples=[("of another cluster", "barnabas cluster cluster-id --bootstrap-server broker1:9092")],
)
@connected
@json_option
def cluster_id(connect: Connect, as_json: bool) -> None:
    """Show the cluster's id."""
    told = ask(connect)
    if as_json:
        print_json({"clusterId": told.cluster_id})
    else:
        click.echo(f"Cluster ID: {told.cluster_id}")


@command.command(
    "list-endpoints",
    cls=Command,
    short_help="List brokers and where they listen.",
    examples=[("addresses for a script", "barnabas cluster list-endpoints --json | jq -r '.brokers[].host'")],
)
@option("--include-fenced-brokers", is_flag=True, help="Also those that are away, until they are unregistered.")
@connected
@json_option
def list_endpoints(connect: Connect, include_fenced_brokers: bool, as_json: bool) -> None:
    """List the brokers that are up, and where clients reach them."""
    told = ask(connect, fenced=include_fenced_brokers)
    brokers = sorted(told.brokers, key=lambda broker: broker.broker_id)
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json(
                {
                    "clusterId": told.cluster_id,
                    "controllerId": None if told.controller_id < 0 else told.controller_id,
                    "brokers": [
                        {
                            "id": one.broker_id,
                            "host": one.host,
                            "port": one.port,
                            "rack": one.rack,
                            "state": _state(one),
                        }
                        for one in brokers
                    ],
                }
            )
        case Style.PLAIN:
            hosts = max(len(one.host) for one in brokers)
            racks = max((len(one.rack) for one in brokers if one.rack), default=DEFAULT_RACK_WIDTH)
            for words in (
                ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"),
                *((one.broker_id, one.host, one.port, one.rack or "null", _state(one), "broker") for one in brokers),
            ):
                widths = (10, hosts, 10, racks, 10, 15)
                click.echo(" ".join(str(word).ljust(width) for word, width in zip(words, widths, strict=True)))
        case Style.TABLE:
            print_table(
                ("Broker", "Host", "Port", "Rack", ""),
                (
                    (
                        one.broker_id,
                        one.host,
                        one.port,
                        one.rack or "-",
                        "controller" if one.broker_id == told.controller_id else "away" if one.is_fenced else "",
                    )
                    for one in brokers
                ),
            )


def _state(broker: Any) -> str:
    return "fenced" if broker.is_fenced else "unfenced"


@command.command(
    "unregister",
    cls=Command,
    short_help="Forget a broker that does not come back.",
    examples=[("broker 3 of another cluster", "barnabas cluster unregister --id 3 --bootstrap-server broker1:9092")],
)
@option("--id", "-i", "broker_id", type=INT32, required=True, metavar="ID", help="The broker.")
@connected
def unregister(connect: Connect, broker_id: int) -> None:
    """Forget a broker that is away for good: no replica of a new topic is placed on it any more.

    The replicas it has stay assigned to it: move them with `barnabas reassign-partitions`.
    """
    from kio.schema.types import BrokerId
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

    from barnabas.model.errors import ErrorCode

    with connect() as cluster:
        told = cluster.ask(UnregisterBrokerRequest(broker_id=BrokerId(broker_id)))
    if told.error_code is not ErrorCode.none:
        raise Failed(told.error_message or told.error_code.name)
    click.echo(f"Broker {broker_id} is no longer registered.")


def ask(connect: Connect, *, fenced: bool = False) -> Any:
    """What DescribeCluster answers."""
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest

    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=fenced)
    with connect() as cluster:
        return cluster.ask(request)
