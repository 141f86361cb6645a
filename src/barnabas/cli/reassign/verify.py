"""`barnabas reassign-partitions --verify` and `--list`: how far moves are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import print_json
from barnabas.cli.reassign import throttles
from barnabas.cli.reassign.progress import directories_of, ongoing_lines, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.reassign.options import Options
    from barnabas.cli.reassign.progress import DirectoryProgress, PartitionProgress
    from barnabas.clients.admin.cluster_admin import ClusterAdmin


def verify(cluster: ClusterAdmin, options: Options) -> None:
    """`--verify`."""
    plan = options.plan
    ongoing = cluster.replicas.reassignments()
    partitions = partitions_of(cluster, plan, ongoing)
    replicas = directories_of(cluster, plan)
    if options.as_json:
        print_json(_document(partitions, replicas))
    else:
        click.echo("Status of partition reassignment:")
        for progress in partitions:
            click.echo(progress.text)
        click.echo("\n".join(one.text for one in replicas))
    if not ongoing and not any(one.moving for one in replicas) and not options.preserve_throttles:
        throttles.clear_plan(cluster, plan, quiet=options.as_json)


def _document(partitions: Iterable[PartitionProgress], replicas: Iterable[DirectoryProgress]) -> dict[str, object]:
    return {
        "partitions": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "replicas": one.current,
                "target": one.target,
                "moving": one.moving,
            }
            for one in partitions
        ],
        "directories": [
            {
                "topic": one.replica.partition.topic,
                "partition": one.replica.partition.partition,
                "broker": one.replica.broker,
                "directory": one.current,
                "target": one.target,
                "moving": one.moving,
            }
            for one in replicas
        ],
    }


def show_list(cluster: ClusterAdmin, options: Options) -> None:
    """`--list`."""
    ongoing = cluster.replicas.reassignments()
    if options.as_json:
        print_json(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": move.replicas,
                    "adding": move.adding,
                    "removing": move.removing,
                }
                for partition, move in sorted(ongoing.items())
            ]
        )
    elif ongoing:
        click.echo("Current partition reassignments:")
        for line in ongoing_lines(ongoing):
            click.echo(line)
    else:
        click.echo("No partition reassignments found.")
