"""`barnabas transactions abort` and `forceTerminateTransaction`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.values.numbers import INT16, INT64, Whole
from barnabas.cli.transactions.output import unknown
from barnabas.cli.transactions.partitions import PartitionOptions, partition_options
from barnabas.model.numbers import MAX_INT32

if TYPE_CHECKING:
    from barnabas.clients.admin.cluster_admin import ClusterAdmin


@dataclass(frozen=True, kw_only=True)
class AbortOptions(PartitionOptions):
    """The options of `abort`."""

    start_offset: int | None
    producer_id: int | None
    producer_epoch: int | None
    coordinator_epoch: int | None

    @property
    def producer(self) -> list[int]:
        """Those of the producer's three numbers that are given."""
        numbers = (self.producer_id, self.producer_epoch, self.coordinator_epoch)
        return [number for number in numbers if number is not None]

    def check(self) -> None:
        """Refuse options that do not name one transaction, by Kafka's rules."""
        if len(self.producer) != (3 if self.start_offset is None else 0):
            raise click.UsageError("Give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch.")


@click.command(
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
@option("--start-offset", type=INT64, metavar="OFFSET", help="The offset at which the transaction begins.")
@option("--producer-id", type=INT64, metavar="ID", help="The id of the producer, instead of --start-offset.")
@option("--producer-epoch", type=INT16, metavar="N", help="The epoch of the producer (--producer-id).")
@option(
    "--coordinator-epoch",
    type=Whole(-1, MAX_INT32),
    metavar="N",
    help="The epoch of the transaction's coordinator (--producer-id).",
)
@connection_options
@takes(AbortOptions)
def abort(options: AbortOptions) -> None:
    """Write the marker that aborts a transaction on one partition.

    For a transaction that a coordinator knows, use forceTerminateTransaction.
    """
    with options.connect() as cluster:
        producer = options.producer or producer_at(cluster, options)
        cluster.transactions.abort(options.place, *producer)
    click.echo(f"Aborted the transaction of producer {producer[0]} (epoch {producer[1]}) on {options.place}.")


def producer_at(cluster: ClusterAdmin, options: AbortOptions) -> list[int]:
    """Producer id and epochs of the transaction that begins at --start-offset; raises Failed."""
    for one in cluster.transactions.producers([options.place]):
        if one.start_offset == options.start_offset:
            return [one.producer_id, one.producer_epoch, one.coordinator_epoch]
    raise Failed(
        f"Could not find any open transactions starting at offset {options.start_offset} on partition {options.place}. "
        f"`barnabas transactions describe-producers --topic {options.topic} --partition {options.partition}` shows "
        "where they begin."
    )


@dataclass(frozen=True, kw_only=True)
class TerminateOptions(ConnectionOptions):
    """The options of `forceTerminateTransaction`."""

    transactional_id: str


@click.command(
    "forceTerminateTransaction",
    cls=Command,
    short_help="End a transaction that its coordinator knows.",
    examples=[
        ("of a producer that hangs", "barnabas transactions forceTerminateTransaction --transactionalId billing-1"),
    ],
)
@option(
    "--transactionalId",
    "transactional_id",
    required=True,
    metavar="ID",
    help="The transactional id of the producer.",
)
@connection_options
@takes(TerminateOptions)
def force_terminate(options: TerminateOptions) -> None:
    """Abort the open transaction of a transactional id, and fence its producer, which cannot go on."""
    with options.connect() as cluster:
        if not cluster.transactions.describe([options.transactional_id]):
            raise unknown(options.transactional_id)
        cluster.transactions.force_terminate(options.transactional_id)
    click.echo(f"Aborted what was open under {options.transactional_id}; its producer is fenced.")
