"""`barnabas reassign-partitions --cancel`: give up moves that are under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.remedies import with_remedy_of
from barnabas.cli.reassign import throttles
from barnabas.cli.reassign.directory_moves import move_directories, plural
from barnabas.cli.reassign.progress import directories_of

if TYPE_CHECKING:
    from barnabas.cli.reassign.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin


def cancel(cluster: ClusterAdmin, options: Options) -> None:
    """`--cancel`."""
    plan = options.plan
    moving = sorted(cluster.replicas.reassignments(plan.replicas))
    if moving:
        refused = cluster.replicas.reassign(dict.fromkeys(moving))
        if refused:
            reasons = "\n".join(f"{partition}: {error}" for partition, error in sorted(refused.items()))
            raise Failed(
                with_remedy_of(
                    f"Error cancelling partition reassignment{plural(refused)} for:\n{reasons}", refused.values()
                )
            )
        names = ",".join(map(str, moving))
        click.echo(f"Successfully cancelled partition reassignment{plural(moving)} for: {names}")
    else:
        click.echo("None of the specified partition reassignments are active.")
    back = {one.replica: one.current for one in directories_of(cluster, plan) if one.current and one.future is not None}
    if back:
        move_directories(cluster, back, options)
    else:
        click.echo("None of the specified partition moves are active.")
    if not options.preserve_throttles:
        throttles.clear_plan(cluster, plan)
