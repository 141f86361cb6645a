"""What is kept for how long: the settings of retention and compaction of all topics, beside what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from barnabas.clients.admin.configs import EntityType
from barnabas.console.api.answers import endpoint, session_of
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from starlette.requests import Request

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


@endpoint
async def listing(request: Request) -> object:
    """A row for each topic."""
    session = session_of(request)
    snapshot, disks = await session.observer.snapshot(), await session.observer.disks()
    found = await session.connections.ask(lambda cluster: _settings(cluster, list(snapshot.topics)))
    rows = []
    for topic in snapshot.topics.values():
        places = [TopicPartition(topic.name, each.number) for each in topic.partitions]
        rows.append(
            {
                "name": topic.name,
                "internal": topic.internal,
                "partitions": len(places),
                "size": sum(disks.sizes.get(place, 0) for place in places),
                "records": sum(max(0, snapshot.ends.get(place, 0) - disks.starts.get(place, 0)) for place in places),
                "removed": sum(disks.starts.get(place, 0) for place in places),
                **found.get(topic.name, {}),
            }
        )
    cleaners = request.app.state.sampler.cleaners
    return {"topics": rows, "cleaners": [{"broker": address, **done} for address, done in sorted(cleaners.items())]}


def _settings(cluster: ClusterAdmin, names: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for begin in range(0, len(names), AT_ONCE):
        described = cluster.configs.describe(EntityType.TOPICS, names[begin : begin + AT_ONCE])
        for topic, settings in described.items():
            found[topic] = {each.name: each.value for each in settings if each.name in KEYS}
    return found


ROUTES = (Route("/api/retention", listing),)
