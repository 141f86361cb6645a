"""`barnabas transactions`: kafka-transactions, which shows open transactions and ends those that hang."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import connected, connected_group, find_broker
from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, F, Group, option
from barnabas.cli.numbers import INT16, INT32, INT64, MAX_INT32, Whole
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_padded, print_table, remark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.connection import Connect
    from barnabas.clients.transaction_admin import ActiveProducer
    from barnabas.clients.wire import Cluster
    from barnabas.model.ids import TopicPartition

DEFAULT_TIMEOUT_MINUTES = 15
"""transaction.max.timeout.ms, as brokers have it unless they are told otherwise."""


@click.group(
    cls=Group,
    examples=[
        ("what is open, and where", "barnabas transactions list"),
        ("one of them in full", "barnabas transactions describe --transactional-id billing-1"),
        ("who writes to a partition", "barnabas transactions describe-producers --topic orders --partition 0"),
        ("what no coordinator would ever end", "barnabas transactions find-hanging --broker-id 1"),
        (
            "end it, so that readers of committed records go on",
            "barnabas transactions abort --topic orders --partition 0 --start-offset 1200",
        ),
    ],
)
@connected_group
def command() -> None:
    """Look at transactions, and end those that hang. The flags are those of kafka-transactions."""


@command.command(
    "list",
    cls=Command,
    short_help="List transactional ids and their states.",
    examples=[("what is open for more than a minute", "barnabas transactions list --duration-filter 60000")],
)
@option("--duration-filter", type=INT64, metavar="MS", help="Only what is open for longer than this.")
@option("--transactional-id-pattern", metavar="PATTERN", help="Only ids that match this regular expression (RE2).")
@connected
@json_option
def list_command(
    connect: Connect, duration_filter: int | None, transactional_id_pattern: str | None, as_json: bool
) -> None:
    """List what all coordinators know."""
    from barnabas.clients.transaction_admin import list_transactions

    with connect() as cluster:
        found = list_transactions(cluster, longer_than_ms=duration_filter, pattern=transactional_id_pattern)
    show(
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in found],
        as_json=as_json,
    )


@command.command(
    "describe",
    cls=Command,
    short_help="Show one transactional id in full.",
    examples=[("its open transaction", "barnabas transactions describe --transactional-id billing-1")],
)
@option("--transactional-id", required=True, metavar="ID", help="Of which producer.")
@connected
@json_option
def describe(connect: Connect, transactional_id: str, as_json: bool) -> None:
    """Show the state of a transactional id, and the partitions of its open transaction."""
    from barnabas.clients.transaction_admin import describe_transactions

    with connect() as cluster:
        found = describe_transactions(cluster, [transactional_id]).get(transactional_id)
    if found is None:
        raise unknown(transactional_id)
    lasts = None if found.started_ms is None else round(time.time() * 1000) - found.started_ms
    show(
        (
            "CoordinatorId",
            "TransactionalId",
            "ProducerId",
            "ProducerEpoch",
            "TransactionState",
            "TransactionTimeoutMs",
            "CurrentTransactionStartTimeMs",
            "TransactionDurationMs",
            "TopicPartitions",
        ),
        [
            (
                found.coordinator,
                found.transactional_id,
                found.producer_id,
                found.producer_epoch,
                found.state,
                found.timeout_ms,
                found.started_ms,
                lasts,
                ",".join(map(str, found.partitions)),
            )
        ],
        as_json=as_json,
    )


def partition_options(command: F) -> F:
    """`--topic` and `--partition`, both needed."""
    command = option("--partition", type=INT32, required=True, metavar="N", help="Its number.")(command)
    return option("--topic", required=True, metavar="TOPIC", help="The topic of the partition.")(command)


@command.command(
    "describe-producers",
    cls=Command,
    short_help="Show who writes to a partition.",
    examples=[
        (
            "as a follower knows it",
            "barnabas transactions describe-producers --topic orders --partition 0 --broker-id 2",
        ),
    ],
)
@partition_options
@option("--broker-id", type=INT32, metavar="ID", help="Ask this replica.  [default: the leader]")
@connected
@json_option
def describe_producers_command(
    connect: Connect, topic: str, partition: int, broker_id: int | None, as_json: bool
) -> None:
    """Show the producers that a partition remembers, and where their open transactions begin."""
    from barnabas.clients.transaction_admin import describe_producers
    from barnabas.model.ids import TopicPartition

    with connect() as cluster:
        node = find_broker(cluster, broker_id)
        found = describe_producers(cluster, [TopicPartition(topic, partition)], node)
    show(
        (
            "ProducerId",
            "ProducerEpoch",
            "LatestCoordinatorEpoch",
            "LastSequence",
            "LastTimestamp",
            "CurrentTransactionStartOffset",
        ),
        [
            (
                one.producer_id,
                one.producer_epoch,
                one.coordinator_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.start_offset,
            )
            for one in found
        ],
        as_json=as_json,
    )


@command.command(
    "find-hanging",
    cls=Command,
    short_help="Find transactions that no coordinator would end.",
    examples=[("in one topic", "barnabas transactions find-hanging --topic orders")],
)
@option("--broker-id", type=INT32, metavar="ID", help="Look at what this broker has.")
@option("--topic", metavar="TOPIC", help="Look at this topic.")
@option("--partition", type=INT32, metavar="N", help="Look at this partition of it.")
@option(
    "--max-transaction-timeout",
    type=INT32,
    default=DEFAULT_TIMEOUT_MINUTES,
    metavar="MINUTES",
    help="Only what nothing was written to for so long.  [default: 15]",
)
@connected
@json_option
def find_hanging_command(
    connect: Connect,
    broker_id: int | None,
    topic: str | None,
    partition: int | None,
    max_transaction_timeout: int,
    as_json: bool,
) -> None:
    """Find transactions that are open on partitions while their coordinators know nothing of it."""
    if broker_id is None and topic is None:
        raise click.UsageError("Say where to look: --broker-id ID, --topic TOPIC, or both.")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")

    from barnabas.clients.transaction_admin import find_hanging

    with connect() as cluster:
        node = find_broker(cluster, broker_id)
        places = look_at(cluster, topic, partition, broker_id)
        found = find_hanging(cluster, places, max_transaction_timeout * 60_000, node)
    now_ms = time.time() * 1000
    show(
        (
            "Topic",
            "Partition",
            "ProducerId",
            "ProducerEpoch",
            "CoordinatorEpoch",
            "StartOffset",
            "LastTimestamp",
            "Duration(min)",
        ),
        [
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
        ],
        as_json=as_json,
    )


def look_at(cluster: Cluster, topic: str | None, partition: int | None, broker_id: int | None) -> list[TopicPartition]:
    """The partitions to look at; raises Failed when there are none of that name."""
    from barnabas.clients.replicas import layout

    replicas = layout(cluster, None if topic is None else [topic]).replicas
    found = [
        place
        for place, brokers in sorted(replicas.items())
        if partition in (None, place.partition) and (broker_id is None or broker_id in brokers)
    ]
    if topic is not None and not found:
        where = "" if broker_id is None else f" on broker {broker_id}"
        raise Failed(f"There is no {topic if partition is None else f'{topic}-{partition}'}{where}.")
    return found


@command.command(
    "abort",
    cls=Command,
    short_help="End a transaction that hangs, on one partition.",
    examples=[
        (
            "the one that find-hanging shows with this StartOffset",
            "barnabas transactions abort --topic orders --partition 0 --start-offset 1200",
        ),
    ],
)
@partition_options
@option("--start-offset", type=INT64, metavar="OFFSET", help="The one that begins here.")
@option("--producer-id", type=INT64, metavar="ID", help="Or that of this producer, ...")
@option("--producer-epoch", type=INT16, metavar="N", help="... with its epoch ...")
@option("--coordinator-epoch", type=Whole(-1, MAX_INT32), metavar="N", help="... and that of its coordinator.")
@connected
def abort_command(
    connect: Connect,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Write the marker that ends a transaction. For one that a coordinator knows, see forceTerminateTransaction."""
    named = [number for number in (producer_id, producer_epoch, coordinator_epoch) if number is not None]
    if len(named) != (3 if start_offset is None else 0):
        raise click.UsageError("Give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch.")

    from barnabas.clients.transaction_admin import abort
    from barnabas.model.ids import TopicPartition

    place = TopicPartition(topic, partition)
    with connect() as cluster:
        if start_offset is not None:
            open_one = beginning_at(cluster, place, start_offset)
            named = [open_one.producer_id, open_one.producer_epoch, open_one.coordinator_epoch]
        abort(cluster, place, *named)
    click.echo(f"Aborted the transaction of producer {named[0]} (epoch {named[1]}) on {place}.")


def beginning_at(cluster: Cluster, place: TopicPartition, start_offset: int) -> ActiveProducer:
    """The transaction that begins there; raises Failed."""
    from barnabas.clients.transaction_admin import describe_producers

    for one in describe_producers(cluster, [place]):
        if one.start_offset == start_offset:
            return one
    raise Failed(
        f"Could not find any open transactions starting at offset {start_offset} on partition {place}. "
        f"`barnabas transactions describe-producers --topic {place.topic} --partition {place.partition}` shows where "
        "they begin."
    )


@command.command(
    "forceTerminateTransaction",
    cls=Command,
    short_help="End a transaction that its coordinator knows.",
    examples=[
        ("of a producer that hangs", "barnabas transactions forceTerminateTransaction --transactionalId billing-1"),
    ],
)
@option("--transactionalId", "transactional_id", required=True, metavar="ID", help="Of which producer.")
@connected
def force_terminate_command(connect: Connect, transactional_id: str) -> None:
    """Abort what is open under a transactional id, and fence its producer: it cannot go on."""
    from barnabas.clients.transaction_admin import describe_transactions, force_terminate

    with connect() as cluster:
        if not describe_transactions(cluster, [transactional_id]):
            raise unknown(transactional_id)
        force_terminate(cluster, transactional_id)
    click.echo(f"Aborted what was open under {transactional_id}; its producer is fenced.")


def unknown(transactional_id: str) -> Failed:
    """What to say of a transactional id that is not there."""
    return Failed(f"No coordinator knows {transactional_id}: `barnabas transactions list` shows those that are known.")


def show(columns: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool) -> None:
    """Print rows as they are wanted; what is None is told as such."""
    match choose_style(as_json=as_json):
        case Style.JSON:
            names = [column[0].lower() + column[1:] for column in columns]
            names = ["durationMinutes" if name == "duration(min)" else name for name in names]
            print_json([dict(zip(names, row, strict=True)) for row in rows])
        case Style.PLAIN:
            print_padded(columns, rows)
        case Style.TABLE if not rows:
            remark("There is nothing to show.")
        case Style.TABLE:
            print_table(columns, [["-" if cell is None else cell for cell in row] for row in rows])
