"""What is kept for how long: the settings of retention and compaction of all topics, beside what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.console.api.answers import endpoint, session_of
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.console.cluster.metrics import CleanerFigures
    from barnabas.console.cluster.snapshot import ClusterSnapshot


@endpoint
async def listing(request: Request) -> object:
    """A row for each topic."""
    session = session_of(request)
    snapshot, disks = await session.observer.snapshot(), await session.observer.disks()
    found = await session.observer.retention()
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
    cleaners = await request.app.state.sampler.cleaners()
    return {"topics": rows, "cleaners": [_cleaner(each, snapshot) for each in cleaners]}


def _cleaner(cleaner: CleanerFigures, snapshot: ClusterSnapshot) -> dict[str, Any]:
    broker = None if cleaner.broker is None else snapshot.brokers.get(cleaner.broker)
    is_gone = broker is not None and (not broker.up or broker.id in snapshot.silent)
    silent = is_gone or cleaner.figures is None
    figures = {} if silent else dict(cleaner.figures or {})
    return {"broker": cleaner.broker, "address": cleaner.address, "silent": silent, **figures}


ROUTES = (Route("/api/retention", listing),)
