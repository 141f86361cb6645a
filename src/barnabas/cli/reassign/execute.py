"""`barnabas reassign-partitions --execute`: begin to move partitions as a plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.remedies import with_remedy_of
from barnabas.cli.reassign import throttles
from barnabas.cli.reassign.directory_moves import move_directories, plural
from barnabas.cli.reassign.plans import as_text
from barnabas.cli.reassign.progress import directories

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.reassign.options import Options
    from barnabas.cli.reassign.plans import Plan
    from barnabas.cli.reassign.throttles import Move
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.model.ids import TopicPartition


def execute(cluster: ClusterAdmin, options: Options) -> None:
    """`--execute`."""
    plan = options.plan
    ongoing = cluster.replicas.reassignments()
    if ongoing and not options.additional:
        raise Failed(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be used "
            "to change the throttle by resubmitting the current reassignment."
        )
    found = cluster.replicas.layout(plan.topics)
    _check_existence(plan, found.racks, found.replicas)
    current = {partition: found.replicas[partition] for partition in plan.replicas}
    paths, _ = directories(cluster, {broker for brokers in current.values() for broker in brokers})
    click.echo(
        f"Current partition replica assignment\n\n{as_text(current, paths)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    limit(cluster, options, plan, throttles.moves(ongoing, plan.replicas, current))
    coming = {
        replica: path for replica, path in plan.directories.items() if replica.broker not in current[replica.partition]
    }
    cluster.replicas.move_to_directories(coming)  # so that they are made there, and need not be moved
    refused = cluster.replicas.reassign(
        plan.replicas, allow_replication_factor_change=not options.disallow_replication_factor_change
    )
    if refused:
        reasons = "\n".join(f"{partition}: {error}" for partition, error in sorted(refused.items()))
        raise Failed(with_remedy_of(f"Error reassigning partition(s):\n{reasons}", refused.values()))
    names = ",".join(map(str, sorted(plan.replicas)))
    click.echo(f"Successfully started partition reassignment{plural(plan.replicas)} for {names}")
    move_directories(cluster, plan.directories, options)


def limit(cluster: ClusterAdmin, options: Options, plan: Plan, moving: Mapping[TopicPartition, Move]) -> None:
    """Set the rates that --throttle and --replica-alter-log-dirs-throttle ask for."""
    if options.throttle is not None or options.replica_alter_log_dirs_throttle is not None:
        click.echo(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
            "is removed."
        )
    if options.throttle is not None:
        throttles.limit_moves(cluster, moving, options.throttle)
    if options.replica_alter_log_dirs_throttle is not None:
        brokers = {replica.broker for replica in plan.directories}
        throttles.limit_directories(cluster, brokers, options.replica_alter_log_dirs_throttle)


def _check_existence(plan: Plan, brokers: Mapping[int, Any], replicas: Mapping[Any, Any]) -> None:
    unknown = sorted(plan.brokers - brokers.keys())
    if unknown:
        raise Failed(f"Unknown broker id {unknown[0]}; there are {', '.join(map(str, sorted(brokers)))}.")
    missing = sorted(plan.replicas.keys() - replicas.keys())
    if missing:
        raise Failed(f"Unable to find partition: {', '.join(map(str, missing))}")
