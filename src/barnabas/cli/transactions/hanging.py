"""`barnabas transactions find-hanging`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.combinations import needs
from barnabas.cli.common.connection import ConnectionOptions, connection_options, find_broker
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option
from barnabas.cli.common.values.numbers import INT32
from barnabas.cli.transactions.output import column, show

if TYPE_CHECKING:
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.model.ids import TopicPartition

DEFAULT_TIMEOUT_MINUTES = 15
"""transaction.max.timeout.ms, as brokers have it by default."""
COLUMNS = [
    *(
        column(heading)
        for heading in (
            "Topic",
            "Partition",
            "ProducerId",
            "ProducerEpoch",
            "CoordinatorEpoch",
            "StartOffset",
            "LastTimestamp",
        )
    ),
    ("Duration(min)", "durationMinutes"),
]


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `find-hanging`."""

    broker_id: int | None
    topic: str | None
    partition: int | None
    max_transaction_timeout: int
    as_json: bool

    def check(self) -> None:
        """Refuse a search everywhere, by Kafka's rules."""
        if self.broker_id is None and self.topic is None:
            raise click.UsageError("Say where to look: --broker-id ID, --topic TOPIC, or both.")
        needs(self, "partition", "topic")


@click.command(
    "find-hanging",
    cls=Command,
    short_help="Find transactions that no coordinator would end.",
    examples=[("in one topic", "barnabas transactions find-hanging --topic orders")],
)
@option("--broker-id", type=INT32, metavar="ID", help="Look at the partitions of this broker.")
@option("--topic", metavar="TOPIC", help="Look at this topic.")
@option("--partition", type=INT32, metavar="N", help="Look at this partition of the topic.")
@option(
    "--max-transaction-timeout",
    type=INT32,
    default=DEFAULT_TIMEOUT_MINUTES,
    metavar="MINUTES",
    help="Only transactions without a write for so many minutes.  [default: 15]",
)
@connection_options
@json_option
@takes(Options)
def find_hanging(options: Options) -> None:
    """Find transactions that are open on partitions, and that their coordinators do not know."""
    with options.connect() as cluster:
        node = find_broker(cluster, options.broker_id)
        found = cluster.transactions.find_hanging(
            matching_partitions(cluster, options), options.max_transaction_timeout * 60_000, node
        )
    now_ms = time.time() * 1000
    rows = [
        (
            *one.partition,
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.start_offset,
            one.last_timestamp,
            int((now_ms - one.last_timestamp) // 60_000),
        )
        for one in found
    ]
    show(COLUMNS, rows, as_json=options.as_json)


def matching_partitions(cluster: ClusterAdmin, options: Options) -> list[TopicPartition]:
    """The partitions to look at; raises Failed when the topic or partition is not there."""
    topic, partition, broker_id = options.topic, options.partition, options.broker_id
    replicas = cluster.replicas.layout(None if topic is None else [topic]).replicas
    found = [
        place
        for place, brokers in sorted(replicas.items())
        if partition in (None, place.partition) and (broker_id is None or broker_id in brokers)
    ]
    if topic is not None and not found:
        where = "" if broker_id is None else f" on broker {broker_id}"
        raise Failed(f"There is no {topic if partition is None else f'{topic}-{partition}'}{where}.")
    return found
