"""`barnabas transactions list`, `describe` and `describe-producers`."""

from __future__ import annotations

import time
from dataclasses import dataclass

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options, find_broker
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option
from barnabas.cli.common.values.numbers import INT32, INT64
from barnabas.cli.transactions.output import column, show, unknown
from barnabas.cli.transactions.partitions import PartitionOptions, partition_options


@dataclass(frozen=True, kw_only=True)
class ListOptions(ConnectionOptions):
    """The options of `list`."""

    duration_filter: int | None
    transactional_id_pattern: str | None
    as_json: bool


@click.command(
    "list",
    cls=Command,
    short_help="List transactional ids and their states.",
    examples=[("that are open for more than a minute", "barnabas transactions list --duration-filter 60000")],
)
@option("--duration-filter", type=INT64, metavar="MS", help="Only transactions that are open for longer than this.")
@option("--transactional-id-pattern", metavar="PATTERN", help="Only ids that match this regular expression (RE2).")
@connection_options
@json_option
@takes(ListOptions)
def list_transactions(options: ListOptions) -> None:
    """List the transactional ids of all coordinators."""
    with options.connect() as cluster:
        found = cluster.transactions.listing(
            longer_than_ms=options.duration_filter, pattern=options.transactional_id_pattern
        )
    show(
        [column(heading) for heading in ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")],
        [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in found],
        as_json=options.as_json,
    )


@dataclass(frozen=True, kw_only=True)
class DescribeOptions(ConnectionOptions):
    """The options of `describe`."""

    transactional_id: str
    as_json: bool


TRANSACTION_COLUMNS = [
    column(heading)
    for heading in (
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    )
]


@click.command(
    "describe",
    cls=Command,
    short_help="Show one transactional id in full.",
    examples=[("with its open transaction", "barnabas transactions describe --transactional-id billing-1")],
)
@option("--transactional-id", required=True, metavar="ID", help="The transactional id of the producer.")
@connection_options
@json_option
@takes(DescribeOptions)
def describe(options: DescribeOptions) -> None:
    """Show the state of a transactional id, and the partitions of its open transaction."""
    with options.connect() as cluster:
        found = cluster.transactions.describe([options.transactional_id]).get(options.transactional_id)
    if found is None:
        raise unknown(options.transactional_id)
    row = (
        found.coordinator,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        found.started_ms,
        None if found.started_ms is None else round(time.time() * 1000) - found.started_ms,
        ",".join(map(str, found.partitions)),
    )
    show(TRANSACTION_COLUMNS, [row], as_json=options.as_json)


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(PartitionOptions):
    """The options of `describe-producers`."""

    broker_id: int | None
    as_json: bool


PRODUCER_COLUMNS = [
    column(heading)
    for heading in (
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    )
]


@click.command(
    "describe-producers",
    cls=Command,
    short_help="Show who writes to a partition.",
    examples=[
        (
            "as a follower has it",
            "barnabas transactions describe-producers --topic orders --partition 0 --broker-id 2",
        ),
    ],
)
@partition_options
@option("--broker-id", type=INT32, metavar="ID", help="Ask the replica on this broker.  [default: the leader]")
@connection_options
@json_option
@takes(ProducerOptions)
def describe_producers(options: ProducerOptions) -> None:
    """Show the producers that a partition remembers, and where their open transactions begin."""
    with options.connect() as cluster:
        found = cluster.transactions.producers([options.place], find_broker(cluster, options.broker_id))
    rows = [
        (
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.start_offset,
        )
        for one in found
    ]
    show(PRODUCER_COLUMNS, rows, as_json=options.as_json)
