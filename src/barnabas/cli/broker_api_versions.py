"""`barnabas broker-api-versions`: kafka-broker-api-versions, which shows the APIs of brokers and their versions.

"Usable" is the newest version that the broker and the clients of Apache Kafka 4.3.0 both know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.help import Command
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.clients.wire import Cluster


class Api(NamedTuple):
    """An API of Kafka 4.3.0's clients, with its oldest and newest version."""

    name: str
    oldest: int
    newest: int


CLIENT_APIS = {
    0: Api("Produce", 3, 13),
    1: Api("Fetch", 4, 18),
    2: Api("ListOffsets", 1, 11),
    3: Api("Metadata", 0, 13),
    8: Api("OffsetCommit", 2, 10),
    9: Api("OffsetFetch", 1, 10),
    10: Api("FindCoordinator", 0, 6),
    11: Api("JoinGroup", 0, 9),
    12: Api("Heartbeat", 0, 4),
    13: Api("LeaveGroup", 0, 5),
    14: Api("SyncGroup", 0, 5),
    15: Api("DescribeGroups", 0, 6),
    16: Api("ListGroups", 0, 5),
    17: Api("SaslHandshake", 0, 1),
    18: Api("ApiVersions", 0, 4),
    19: Api("CreateTopics", 2, 7),
    20: Api("DeleteTopics", 1, 6),
    21: Api("DeleteRecords", 0, 2),
    22: Api("InitProducerId", 0, 5),
    23: Api("OffsetForLeaderEpoch", 2, 4),
    24: Api("AddPartitionsToTxn", 0, 5),
    25: Api("AddOffsetsToTxn", 0, 4),
    26: Api("EndTxn", 0, 5),
    27: Api("WriteTxnMarkers", 1, 2),
    28: Api("TxnOffsetCommit", 0, 5),
    29: Api("DescribeAcls", 1, 3),
    30: Api("CreateAcls", 1, 3),
    31: Api("DeleteAcls", 1, 3),
    32: Api("DescribeConfigs", 1, 4),
    33: Api("AlterConfigs", 0, 2),
    34: Api("AlterReplicaLogDirs", 1, 2),
    35: Api("DescribeLogDirs", 1, 5),
    36: Api("SaslAuthenticate", 0, 2),
    37: Api("CreatePartitions", 0, 3),
    38: Api("CreateDelegationToken", 1, 3),
    39: Api("RenewDelegationToken", 1, 2),
    40: Api("ExpireDelegationToken", 1, 2),
    41: Api("DescribeDelegationToken", 1, 3),
    42: Api("DeleteGroups", 0, 2),
    43: Api("ElectLeaders", 0, 2),
    44: Api("IncrementalAlterConfigs", 0, 1),
    45: Api("AlterPartitionReassignments", 0, 1),
    46: Api("ListPartitionReassignments", 0, 0),
    47: Api("OffsetDelete", 0, 0),
    48: Api("DescribeClientQuotas", 0, 1),
    49: Api("AlterClientQuotas", 0, 1),
    50: Api("DescribeUserScramCredentials", 0, 0),
    51: Api("AlterUserScramCredentials", 0, 0),
    55: Api("DescribeQuorum", 0, 2),
    57: Api("UpdateFeatures", 0, 2),
    60: Api("DescribeCluster", 0, 2),
    61: Api("DescribeProducers", 0, 0),
    64: Api("UnregisterBroker", 0, 0),
    65: Api("DescribeTransactions", 0, 0),
    66: Api("ListTransactions", 0, 2),
    68: Api("ConsumerGroupHeartbeat", 0, 1),
    69: Api("ConsumerGroupDescribe", 0, 1),
    71: Api("GetTelemetrySubscriptions", 0, 0),
    72: Api("PushTelemetry", 0, 0),
    74: Api("ListConfigResources", 0, 1),
    75: Api("DescribeTopicPartitions", 0, 0),
    76: Api("ShareGroupHeartbeat", 1, 1),
    77: Api("ShareGroupDescribe", 1, 1),
    78: Api("ShareFetch", 1, 2),
    79: Api("ShareAcknowledge", 1, 2),
    80: Api("AddRaftVoter", 0, 1),
    81: Api("RemoveRaftVoter", 0, 0),
    83: Api("InitializeShareGroupState", 0, 0),
    84: Api("ReadShareGroupState", 0, 0),
    85: Api("WriteShareGroupState", 0, 1),
    86: Api("DeleteShareGroupState", 0, 0),
    87: Api("ReadShareGroupStateSummary", 0, 1),
    88: Api("StreamsGroupHeartbeat", 0, 0),
    89: Api("StreamsGroupDescribe", 0, 0),
    90: Api("DescribeShareGroupOffsets", 0, 1),
    91: Api("AlterShareGroupOffsets", 0, 0),
    92: Api("DeleteShareGroupOffsets", 0, 0),
}


class Broker(NamedTuple):
    """A broker as it is named in the output, and its versions by API key."""

    id: int
    host: str
    port: int
    rack: str | None
    versions: dict[int, tuple[int, int]]


@click.command(
    cls=Command,
    examples=[
        ("all brokers of the cluster", "barnabas broker-api-versions"),
        ("is the new group protocol there?", "barnabas broker-api-versions | grep ConsumerGroupHeartbeat"),
    ],
)
@connection_options
@json_option
def command(bootstrap_server: str, command_config: Path | None, as_json: bool) -> None:
    """Show which APIs each broker serves, in which versions. The flags are those of kafka-broker-api-versions."""
    from barnabas.cli import connection

    with connection.open_cluster(bootstrap_server, command_config) as cluster:
        brokers = ask(cluster)
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json(
                [
                    broker._asdict()
                    | {
                        "versions": [
                            {
                                "key": key,
                                "name": name_of(key),
                                "min": lowest,
                                "max": highest,
                                "usable": usable(key, span),
                            }
                            for key, span in sorted(broker.versions.items())
                            for lowest, highest in [span]
                        ]
                    }
                    for broker in brokers
                ]
            )
        case Style.PLAIN:
            for broker in brokers:
                print_lines(broker)
        case Style.TABLE:
            for broker in brokers:
                click.echo(click.style(f"{broker.host}:{broker.port}", bold=True) + f"  broker {broker.id}")
                print_table(
                    ("API", "Key", "Versions", "Usable"),
                    (
                        (name_of(key), key, span_text(span), "none" if (best := usable(key, span)) is None else best)
                        for key, span in sorted(broker.versions.items())
                    ),
                )


def ask(cluster: Cluster) -> list[Broker]:
    """Every broker, by id."""
    from kio.schema.api_versions.v4.request import ApiVersionsRequest
    from kio.schema.metadata.v13.request import MetadataRequest

    from barnabas import __version__
    from barnabas.clients.wire import CLIENT_ID, Node

    metadata = cluster.ask(
        MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    )
    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=__version__)
    brokers = []
    for one in sorted(metadata.brokers, key=lambda broker: broker.node_id):
        answer = cluster.ask(request, at=Node(one.node_id, one.host, one.port))
        versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        brokers.append(Broker(one.node_id, one.host, one.port, one.rack, versions))
    return brokers


def print_lines(broker: Broker) -> None:
    """As kafka-broker-api-versions prints it: also the APIs that the broker does not serve."""
    lines = []
    for key in sorted(CLIENT_APIS.keys() | broker.versions.keys()):
        span = broker.versions.get(key)
        text = "UNSUPPORTED" if span is None else f"{span_text(span)}{_usable_text(key, span)}"
        lines.append(f"{name_of(key)}({key}): {text}")
    where = f"{broker.host}:{broker.port} (id: {broker.id} rack: {broker.rack or 'null'} isFenced: false)"
    click.echo(f"{where} -> (\n\t" + ",\n\t".join(lines) + "\n)")


def name_of(key: int) -> str:
    """Kafka's name of an API."""
    return CLIENT_APIS[key].name if key in CLIENT_APIS else "UNKNOWN"


def span_text(span: tuple[int, int]) -> str:
    """`0 to 13`, or one number."""
    lowest, highest = span
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"


def usable(key: int, span: tuple[int, int]) -> int | None:
    """The newest version that both know; None if there is none."""
    api = CLIENT_APIS.get(key)
    if api is None or api.newest < span[0] or span[1] < api.oldest:
        return None
    return min(api.newest, span[1])


def _usable_text(key: int, span: tuple[int, int]) -> str:
    if key not in CLIENT_APIS:
        return ""
    version = usable(key, span)
    if version is None:
        return f" [unusable: node too {'new' if CLIENT_APIS[key].newest < span[0] else 'old'}]"
    return f" [usable: {version}]"
