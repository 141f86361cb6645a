"""Names that a cluster has, for the shell to complete: topics after `--topic`, groups after `--group`.

The cluster is that of the command line so far, or the usual one. A shell that completes must not wait nor complain: a
cluster that does not answer at once has no names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.connection import DEFAULT_BOOTSTRAP_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

WAIT_SECONDS: Final = 1.0


def names_for(option: str, ctx: click.Context) -> Iterable[str]:
    """What may stand after an option; nothing for those that name nothing of a cluster."""
    listed = _LISTED.get(option)
    if listed is None:
        return ()
    return listed(ctx.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP_SERVER)


def _topics(bootstrap_server: str) -> Iterable[str]:
    from barnabas.clients.topic_list import list_topics

    return [topic.name for topic in list_topics(bootstrap_server, WAIT_SECONDS) or ()]


def _groups(bootstrap_server: str) -> Iterable[str]:
    from barnabas.clients.groups import Groups
    from barnabas.clients.wire import Cluster
    from barnabas.model.base_error import BarnabasError

    try:
        with Groups(Cluster(bootstrap_server, timeout=WAIT_SECONDS)) as groups:
            return [group.group_id for group in groups.listing()]
    except BarnabasError:
        return ()


_LISTED: Final[dict[str, Callable[[str], Iterable[str]]]] = {"--topic": _topics, "--group": _groups}
