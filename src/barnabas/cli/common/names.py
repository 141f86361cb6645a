"""Names that a cluster has, for the shell to complete: topics after `--topic`, groups after `--group`.

The cluster is that of the command line so far, or the usual one. A shell that completes must not wait nor complain: a
cluster that does not answer at once has no names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    from barnabas.clients.admin.cluster_admin import ClusterAdmin

WAIT_MS: Final = 1000


def names_for(option: str, ctx: click.Context) -> Iterable[str]:
    """What may stand after an option; nothing for those that name nothing of a cluster."""
    find = _FIND.get(option)
    if find is None:
        return ()
    from barnabas.cli.common.connection import ConnectionOptions
    from barnabas.model.base_error import BarnabasError

    options = ConnectionOptions(
        bootstrap_server=ctx.params.get("bootstrap_server"),
        command_config=ctx.params.get("command_config"),
    )
    try:
        with options.connect(WAIT_MS) as cluster:
            return find(cluster)
    except (BarnabasError, OSError):
        return ()


def _topics(cluster: ClusterAdmin) -> list[str]:
    return [topic.name for topic in cluster.list_topics()]


def _groups(cluster: ClusterAdmin) -> list[str]:
    return [group.group_id for group in cluster.groups.listing()]


_FIND: Final[dict[str, Callable[[ClusterAdmin], Iterable[str]]]] = {"--topic": _topics, "--group": _groups}
