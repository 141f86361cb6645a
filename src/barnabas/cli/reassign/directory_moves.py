"""Moves of replicas between directories of their brokers, which --execute begins and --cancel takes back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.reassign.options import DEFAULT_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sized

    from barnabas.cli.reassign.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.replicas import Replica

RETRY_SECONDS: Final = 0.1


def move_directories(cluster: ClusterAdmin, wanted: Mapping[Replica, str], options: Options) -> None:
    """Begin moves between directories; a replica can only be asked for once it is on its broker."""

    deadline = time.monotonic() + (options.timeout or DEFAULT_TIMEOUT_MS) / 1000
    pending = dict(wanted)
    while pending:
        for replica in sorted(cluster.replicas.move_to_directories(pending)):
            click.echo(
                f"Successfully started moving log directory to {pending.pop(replica)} for replica "
                f"{replica.partition} with broker {replica.broker}"
            )
        if pending and time.monotonic() >= deadline:
            names = ",".join(map(str, sorted(pending)))
            raise Failed(f"Timed out before log directory move{plural(pending)} could be started for: {names}")
        if pending:
            time.sleep(RETRY_SECONDS)


def plural(things: Sized) -> str:
    """The s behind a noun for several things."""
    return "" if len(things) == 1 else "s"
