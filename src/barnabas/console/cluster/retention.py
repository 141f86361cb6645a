"""What topics have set about retention and compaction: of all topics, so no more is asked for than is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.clients.admin.configs import EntityType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.clients.admin.cluster_admin import ClusterAdmin

AT_ONCE: Final = 500
"""Topics that are asked for in one request."""
KEYS: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "segment.ms",
    "min.cleanable.dirty.ratio",
    "delete.retention.ms",
)
RetentionSettings: TypeAlias = dict[str, dict[str, str | None]]
"""Values by topic and key."""


def describe_retention(cluster: ClusterAdmin, topics: Sequence[str]) -> RetentionSettings:
    """The settings of these topics; raises RequestRefused."""
    found: RetentionSettings = {}
    for begin in range(0, len(topics), AT_ONCE):
        described = cluster.configs.describe(EntityType.TOPICS, topics[begin : begin + AT_ONCE], only=KEYS)
        for topic, settings in described.items():
            found[topic] = {each.name: each.value for each in settings}
    return found
