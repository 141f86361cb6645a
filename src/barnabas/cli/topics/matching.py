"""Which topics `--topic` means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.connection import refuse_forbidden
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.values.topic_patterns import is_name, parse_topics
from barnabas.model.permissions import on_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.topics.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.model.permissions import Action


def required_topics(cluster: ClusterAdmin, options: Options) -> list[str]:
    """Names that match --topic; none is an error unless --if-exists."""
    pattern = None if options.topic_id else options.topic
    names = matching(cluster.topics.topic_names(), pattern, exclude_internal=options.exclude_internal)
    if pattern and not names and not options.if_exists:
        if is_name(pattern):
            refuse_forbidden(cluster, pattern, _action(pattern, options))
        raise Failed(f"Topic '{pattern}' does not exist as expected. `barnabas topics --list` shows what is there.")
    return names


def _action(topic: str, options: Options) -> Action:
    """What is wanted of a topic."""
    if options.delete:
        return on_topic("delete", "Delete", topic)
    return on_topic("alter", "Alter", topic) if options.alter else on_topic("describe", "Describe", topic)


def matching(names: Iterable[str], pattern: str | None, *, exclude_internal: bool) -> list[str]:
    """Names that a pattern of kafka-topics takes: a regular expression for the whole name, commas for "or"."""
    found = list(names)
    if exclude_internal:
        from barnabas.model.internal_topics import INTERNAL_TOPICS

        found = [name for name in found if name not in INTERNAL_TOPICS]
    if not pattern:
        return found
    expression = parse_topics(pattern, "--topic")
    return [name for name in found if expression.fullmatch(name)]
